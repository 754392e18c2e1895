"""A job as people write it (docs/job-file.md), read into the job or draft that Spotline knows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spotline.adapters.files.fields import A_TIME, fields_by_key, read_part, row_of
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
from spotline.domain.jobs.run import RunPackage
from spotline.domain.jobs.run_limits import run_problems
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

# Of the clock, of several fields, or of what is packed.
_TOGETHER = ("deadline", "run", "data")

_A_MODEL = "model and tokens"
_A_RATE = "work, instances and throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJob:
    """What a job file says, before the market says what time it is and its folder is packed.

    Attributes
    ----------
    where
        How errors name the file.
    folder
        What relative paths in it are taken from.
    """

    where: str
    folder: Path
    file: JobFile
    as_draft: bool

    @property
    def needs_clock(self) -> bool:
        """Whether its deadline is a while after the submission."""
        return bool(self.file.deadline.relative)

    @property
    def workdir(self) -> Path | None:
        """The folder that is to be packed, None for none."""
        run = self.file.run
        return None if run is None or run.workdir is None else self._place(run.workdir)

    @property
    def checkpoint_location(self) -> str:
        """Where checkpoints and packages are kept: a URL or an absolute folder; empty: nowhere.

        A folder is taken from that of the file only for a program that Spotline runs; of any other
        it is whatever its owner means by it.
        """
        location = "" if self.file.checkpoint is None else self.file.checkpoint.location
        if self.file.run is None or not location or "://" in location:
            return location
        return str(self._place(location))

    def resolved(
        self, *, now_ns: int | None = None, package: RunPackage | None = None
    ) -> Job | JobDraft:
        """The job or draft, as submitted at a market time with a packed working directory.

        Equal files (with equal packages) are the same request whatever the time.

        Raises
        ------
        BadFile
            `now_ns` is needed and None, or with it the values do not fit together.
        """
        if now_ns is None and self.needs_clock:
            expected = f"{A_TIME}, as there is no market here that says what time it is"
            raise BadFile(
                self.where,
                [
                    Mistake(field=f"deadline.{name}", expected=expected, found="a while")
                    for name in self.file.deadline.relative
                ],
            )
        try:
            return self._from_file(now_ns or 0, package)
        except ValueError as error:
            problems = problems_of(error)
            raise BadFile(self.where, [mistake_of(problem) for problem in problems]) from error

    def _place(self, stated: str) -> Path:
        return (self.folder / Path(stated).expanduser()).absolute()

    def _from_file(self, now_ns: int, package: RunPackage | None) -> Job | JobDraft:
        file, as_draft = self.file, self.as_draft
        defaults = DEFAULTS[as_draft]
        update = {name: value for name, value in defaults.items() if getattr(file, name) is None}
        completed = file.model_copy(update=update)
        values = dict(_plain_fields(completed, as_draft))
        values["deadline"] = file.deadline.to_domain(now_ns)
        values["value_from_quote"] = file.value_usd is None
        if file.run is not None:
            run = file.run.to_domain(file.data, package)
            checkpoint = replace(values["checkpoint"], location=self.checkpoint_location)
            for field, problem in run_problems(run, checkpoint):
                raise ValueError(f"{field} {problem}")
            values |= {"run": run, "checkpoint": checkpoint, "awaits_exit": True}
        request_id = file.request_id or _content_id(completed, as_draft, package)
        values["client_request_id"] = request_id
        values["job_id"] = job_id_for(file.tenant, request_id)
        return JobDraft(**values) if as_draft else Job(**values)


def read_stated_job(path: Path, *, tenant: str = "") -> StatedJob:
    """Read a job file, as far as it can be without a market.

    With `tenant` a file may leave its tenant out, as one may who shows a token of that tenant.

    Raises
    ------
    BadFile
        It cannot be read, or something in it is not as expected; names every such field.
    """
    return _stated(read_yaml(path), str(path), path.parent, tenant)


def parse_stated_job(text: str, *, where: str, folder: Path, tenant: str = "") -> StatedJob:
    """Read the text of a job file whose relative paths start at `folder`; as above."""
    return _stated(parse_yaml(text, where=where), where, folder, tenant)


def stated_job_of(content: Mapping[str, Any], *, where: str, folder: Path) -> StatedJob:
    """Read the fields of a job file whose relative paths start at `folder`; `BadFile` as above."""
    return _stated(content, where, folder)


def read_job_file(path: Path, *, now_ns: int | None = None) -> Job | JobDraft:
    """Read a job file; one that names a model and not how fast it runs is a draft.

    Nothing is packed: a program has no working directory here.

    Raises
    ------
    BadFile
        It cannot be read, something in it is not as expected (names every such field), or its
        deadline counts from a market time that is not given.
    """
    return read_stated_job(path).resolved(now_ns=now_ns)


def parse_job_file(
    text: str, *, where: str = "the job file", now_ns: int | None = None
) -> Job | JobDraft:
    """Read a job or draft from the text of a job file; `BadFile` as `read_job_file`."""
    return parse_stated_job(text, where=where, folder=Path()).resolved(now_ns=now_ns)


def read_jobs(path: Path, *, now_ns: int | None = None) -> tuple[Job, ...]:
    """Read a job file, or a list of jobs in its format, where drafts are not completed.

    Raises
    ------
    BadFile
        As `read_job_file`; or it holds a draft, no jobs, or two that are the same request.
    """
    content = read_yaml(path, _MANY_JOBS)
    if not isinstance(content, list):
        return (_whole(content, str(path), path.parent, now_ns),)
    found: dict[str, Job] = {}
    for index, entry in enumerate(content):
        where = f"{path} [{index}]"
        job = _whole(entry, where, path.parent, now_ns)
        if job.job_id in found:
            again = f"{job.client_request_id} of {job.tenant} once more"
            raise bad_file(where, "request_id", "one of its own for each job", again)
        found[job.job_id] = job
    if not found:
        raise bad_file(str(path), WHOLE_FILE, "at least one job", "an empty list")
    return tuple(found.values())


def _whole(content: Any, where: str, folder: Path, now_ns: int | None) -> Job:
    found = _stated(content, where, folder).resolved(now_ns=now_ns)
    if isinstance(found, Job):
        return found
    expected = f"{_A_RATE} in the place of {_A_MODEL}, as no configurator is asked"
    raise bad_file(where, "throughput", expected, "a draft")


def _stated(content: Any, where: str, folder: Path, tenant: str = "") -> StatedJob:
    if not isinstance(content, Mapping):
        raise bad_file(where, WHOLE_FILE, "a mapping of fields", shown(content))
    if tenant and "tenant" not in content:
        content = {**content, "tenant": tenant}
    as_draft = _is_draft(content)
    mistakes = [*_of_its_kind(content, as_draft), *_of_its_program(content)]
    try:
        file = read_part(JobFile, content, where=where)
    except BadFile as error:
        raise BadFile(where, [*error.mistakes, *mistakes]) from error
    if mistakes:
        raise BadFile(where, mistakes)
    return StatedJob(where=where, folder=folder, file=file, as_draft=as_draft)


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


def _of_its_program(content: Mapping[Any, Any]) -> Iterator[Mistake]:
    """The mistakes that only show beside `run`, or where it is absent."""
    if content.get("run") is None:
        if content.get("data"):
            yield Mistake(
                field="data", expected="no data without run", found=shown(content["data"])
            )
        return
    checkpoint = content.get("checkpoint")
    # One that is nothing is no text, which is said already.
    stated = isinstance(checkpoint, Mapping) and checkpoint.get("location", "") != ""
    if not stated and (checkpoint is None or isinstance(checkpoint, Mapping)):
        expected = "a folder or URL that every instance reaches, as run is stated"
        yield Mistake(field="checkpoint.location", expected=expected, found="nothing")
    if content.get("awaits_exit") is False:
        expected = "true or nothing, as Spotline sees its program end"
        yield Mistake(field="awaits_exit", expected=expected, found="False")


def _plain_fields(completed: JobFile, as_draft: bool) -> Iterator[tuple[str, Any]]:
    """The fields of a job or draft that follow from one field of the file each."""
    for name, field in fields_by_key(JobFile).items():
        row, value = row_of(field), getattr(completed, name)
        if row is None or name in ONLY[not as_draft] or name in _TOGETHER:
            continue
        if value is None:
            yield row.wire, row.empty
            continue
        value = value if row.to is None else row.to(value)
        # A part that becomes several fields says which.
        yield from value.items() if isinstance(value, dict) else ((row.wire, value),)


def _content_id(completed: JobFile, as_draft: bool, package: RunPackage | None) -> str:
    unstated = JobFile.model_fields.keys() - _FIRST_FIELDS - completed.model_fields_set
    stated = completed.model_dump(mode="json", exclude={*ONLY[not as_draft], *unstated})
    if package is not None:
        # The same file with another program is another job.
        stated["package"] = package.sha256
    content = json.dumps(stated, sort_keys=True)
    return "file-" + hashlib.sha256(content.encode()).hexdigest()[:16]
