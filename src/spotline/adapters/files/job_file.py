"""A job as people write it (docs/job-file.md), read into the job or draft that Spotline knows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotline.adapters.files.fields import fields_by_key, read_part, row_of
from spotline.adapters.files.job_fields import DEFAULTS, NEEDED, ONLY, JobFile
from spotline.adapters.files.mistake import (
    WHOLE_FILE,
    BadFile,
    Mistake,
    bad_file,
    mistake_of,
    shown,
)
from spotline.adapters.files.yaml_file import Limits, parse_yaml, read_yaml
from spotline.application.admission import job_id_for
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.domain.problems import problems_of

_MANY_JOBS = Limits(most_bytes=16 << 20, most_values=1_000_000)

# Part of what a file's own request id is made of, stated or not; a later field is where it is stated.
_FIRST_FIELDS = frozenset(
    {
        *("name", "tenant", "request_id", "model", "tokens", "fine_tuning", "work", "deadline"),
        *("value_usd", "budget_usd", "instances", "throughput", "offerings", "topology"),
        *("checkpoint", "overhead_s", "start_at"),
    }
)

_A_MODEL = "model and tokens"
_A_RATE = "work, instances and throughput"


def read_job_file(path: Path) -> Job | JobDraft:
    """Read a job file; one that names a model and not how fast it runs is a draft.

    Raises
    ------
    BadFile
        It cannot be read, or something in it is not as expected; names every such field.
    """
    return _job(read_yaml(path), str(path))


def parse_job_file(text: str, *, where: str = "the job file") -> Job | JobDraft:
    """Read a job or draft from the text of a job file; `BadFile` as `read_job_file`."""
    return _job(parse_yaml(text, where=where), where)


def job_of(content: Mapping[str, Any], *, where: str = "the job") -> Job | JobDraft:
    """Read a job or draft from the fields of a job file; `BadFile` as `read_job_file`."""
    return _job(content, where)


def read_jobs(path: Path) -> tuple[Job, ...]:
    """Read a job file, or a list of jobs in its format, where drafts are not completed.

    Raises
    ------
    BadFile
        As `read_job_file`; or it holds a draft, no jobs, or two that are the same request.
    """
    content = read_yaml(path, _MANY_JOBS)
    if not isinstance(content, list):
        return (_whole(_job(content, str(path)), str(path)),)
    found: dict[str, Job] = {}
    for index, entry in enumerate(content):
        where = f"{path} [{index}]"
        job = _whole(_job(entry, where), where)
        if job.job_id in found:
            again = f"{job.client_request_id} of {job.tenant} once more"
            raise bad_file(where, "request_id", "one of its own for each job", again)
        found[job.job_id] = job
    if not found:
        raise bad_file(str(path), WHOLE_FILE, "at least one job", "an empty list")
    return tuple(found.values())


def _whole(found: Job | JobDraft, where: str) -> Job:
    if isinstance(found, Job):
        return found
    expected = f"{_A_RATE} in the place of {_A_MODEL}, as no configurator is asked"
    raise bad_file(where, "throughput", expected, "a draft")


def _job(content: Any, where: str) -> Job | JobDraft:
    if not isinstance(content, Mapping):
        raise bad_file(where, WHOLE_FILE, "a mapping of fields", shown(content))
    as_draft = _is_draft(content)
    mistakes = _of_its_kind(content, as_draft)
    try:
        file = read_part(JobFile, content, where=where)
    except BadFile as error:
        raise BadFile(where, [*error.mistakes, *mistakes]) from error
    if mistakes:
        raise BadFile(where, mistakes)
    try:
        return _from_file(file, as_draft)
    except ValueError as error:
        raise BadFile(where, [mistake_of(problem) for problem in problems_of(error)]) from error


def _is_draft(content: Mapping[Any, Any]) -> bool:
    return "model" in content or (
        "work" not in content and bool({"tokens", "fine_tuning"} & content.keys())
    )


def _of_its_kind(content: Mapping[Any, Any], as_draft: bool) -> list[Mistake]:
    """The mistakes of a job in which only a draft may make, and the other way round."""
    stated = {name for name, value in content.items() if value is not None}
    found = []
    for name in ONLY[not as_draft]:
        if name in stated:
            expected = f"no {name} without a model"
            if as_draft:
                expected = "tokens in the place of work, as a model is named"
            found.append(Mistake(field=name, expected=expected, found=shown(content[name])))
    if not as_draft and not {"instances", "throughput"} & content.keys():
        # Said once, instead of all that this makes miss.
        expected = f"either {_A_MODEL}, to have the rest filled in, or {_A_RATE}"
        return [*found, Mistake(field=WHOLE_FILE, expected=expected, found="neither")]
    hint = "" if as_draft else f" (or {_A_MODEL}, to have what is missing filled in)"
    found += [
        Mistake(field=name, expected=f"this field{hint}", found="nothing")
        for name in NEEDED[as_draft]
        if name not in stated
    ]
    if not as_draft and content.get("throughput") == {}:
        found.append(Mistake(field="throughput", expected="at least one entry", found="none"))
    return found


def _from_file(file: JobFile, as_draft: bool) -> Job | JobDraft:
    """The job or draft that a file describes; equal files are the same request."""
    defaults = DEFAULTS[as_draft]
    update = {name: value for name, value in defaults.items() if getattr(file, name) is None}
    completed = file.model_copy(update=update)
    values: dict[str, Any] = {}
    for name, field in fields_by_key(JobFile).items():
        row, value = row_of(field), getattr(completed, name)
        if row is None or name in ONLY[not as_draft]:
            continue
        if value is None:
            values[row.wire] = row.empty
            continue
        value = value if row.to is None else row.to(value)
        # A part that becomes several fields says which.
        values |= value if isinstance(value, dict) else {row.wire: value}
    request_id = file.request_id or _content_id(completed, as_draft)
    values["client_request_id"] = request_id
    values["job_id"] = job_id_for(file.tenant, request_id)
    return JobDraft(**values) if as_draft else Job(**values)


def _content_id(completed: JobFile, as_draft: bool) -> str:
    unstated = JobFile.model_fields.keys() - _FIRST_FIELDS - completed.model_fields_set
    stated = completed.model_dump(mode="json", exclude={*ONLY[not as_draft], *unstated})
    content = json.dumps(stated, sort_keys=True)
    return "file-" + hashlib.sha256(content.encode()).hexdigest()[:16]
