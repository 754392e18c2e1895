"""A job as people write it (docs/job-file.md), read into the job or draft that Spotline knows.

Every mistake is reported with the field's dotted path, what was expected and what was found; all
mistakes of a file at once.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from spotline.adapters.files.job_fields import (
    CheckpointPart,
    DeadlinePart,
    DraftFile,
    FineTuningPart,
    InstancesPart,
    JobFile,
    ModelPart,
    OverheadPart,
    ThroughputPart,
    WorkPart,
    throughput_of,
)
from spotline.application.admission import job_id_for
from spotline.contracts.errors import ConfigError
from spotline.domain.configuration.configuration import Method, MethodOption
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Checkpoint, Job, Overheads, Throughput, Topology, Work
from spotline.domain.units import micro_usd_from_usd

DOCUMENTATION = "docs/job-file.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake: where, what was expected, what was found."""

    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        found = f", found {self.found}" if self.found else ""
        return f"{self.field}: expected {self.expected}{found}"


class JobFileError(ConfigError):
    """A job file that cannot be used; `problems` holds every mistake."""

    def __init__(self, path: str, problems: Iterable[Problem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{path} is no usable job file ({DOCUMENTATION} shows one):\n{lines}")


# --- reading ----------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML, but times stay as written (their offset matters) and no key may come twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key} is given twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else str(key))
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_job_file(path: Path) -> Job | JobDraft:
    """Read a job file; one that names a model and not how fast it runs is a draft.

    Raises
    ------
    JobFileError
        It cannot be read, or something in it is not as expected; names every such field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem(field="(file)", expected="a readable YAML file", found=str(error))
        raise JobFileError(str(path), [problem]) from error
    return parse_job_file(text, where=str(path))


def parse_job_file(text: str, *, where: str = "the job file") -> Job | JobDraft:
    """Read a job or draft from the text of a job file; `JobFileError` as `read_job_file`."""
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.YAMLError as error:
        problem = Problem(field="(file)", expected="YAML", found=" ".join(str(error).split()))
        raise JobFileError(where, [problem]) from error
    if not isinstance(content, Mapping):
        found = "nothing" if content is None else type(content).__name__
        problem = Problem(field="(file)", expected="a mapping of fields", found=found)
        raise JobFileError(where, [problem])
    as_draft = _is_draft(content)
    try:
        if as_draft:
            return draft_of(DraftFile.model_validate(content))
        return job_of(JobFile.model_validate(content))
    except ValidationError as error:
        file = DraftFile if as_draft else JobFile
        problems = [_problem(one, file) for one in error.errors()]
        raise JobFileError(where, _with_neither(content, problems)) from error
    except ValueError as error:
        problem = Problem(field="(file)", expected="a consistent job", found=str(error))
        raise JobFileError(where, [problem]) from error


def read_whole_job(path: Path) -> Job:
    """Read a job file where nobody completes drafts; `JobFileError` also for a draft."""
    return _whole(read_job_file(path), str(path))


def parse_whole_job(text: str, *, where: str) -> Job:
    """Read a job from the text of a job file; `JobFileError` as `read_whole_job`."""
    return _whole(parse_job_file(text, where=where), where)


def _whole(found: Job | JobDraft, where: str) -> Job:
    if isinstance(found, Job):
        return found
    problem = Problem(
        field="throughput",
        expected=f"{_A_RATE} in the place of {_A_MODEL}, as no configurator is asked",
        found="a draft",
    )
    raise JobFileError(where, [problem])


def _is_draft(content: Mapping[Any, Any]) -> bool:
    return "model" in content or (
        "work" not in content and bool({"tokens", "fine_tuning"} & content.keys())
    )


def job_of(file: JobFile) -> Job:
    """The job that a file describes; without a request id, equal files are the same request."""
    request_id = file.request_id or _content_id(file)
    return Job(
        job_id=job_id_for(file.tenant, request_id),
        tenant=file.tenant,
        client_request_id=request_id,
        name=file.name,
        work=Work(amount=file.work.amount, unit=file.work.unit),
        deadline=file.deadline.to_domain(),
        value_micro_usd=micro_usd_from_usd(file.value_usd),
        start_ns=file.start_at or 0,
        allowed_counts=file.instances.counts(),
        throughputs=_throughputs(file.throughput),
        topology=Topology(file.topology),
        checkpoint=_checkpoint(file.checkpoint),
        overheads=_overheads(file.overhead_s),
        offerings=file.offerings,
        budget_micro_usd=0 if file.budget_usd is None else micro_usd_from_usd(file.budget_usd),
    )


def draft_of(file: DraftFile) -> JobDraft:
    """The draft that a file describes; without a request id, equal files are the same request."""
    request_id = file.request_id or _content_id(file)
    tuning = file.fine_tuning
    return JobDraft(
        job_id=job_id_for(file.tenant, request_id),
        tenant=file.tenant,
        client_request_id=request_id,
        name=file.name,
        model_name=file.model.name,
        model_parameters=round((file.model.parameters_billion or 0.0) * 1e9),
        tokens=file.tokens,
        deadline=file.deadline.to_domain(),
        value_micro_usd=micro_usd_from_usd(file.value_usd),
        start_ns=file.start_at or 0,
        method=None if tuning.method is None else Method(tuning.method),
        gpu_model=tuning.gpu or "",
        gpus=tuning.gpus or 0,
        tokens_per_sample=tuning.tokens_per_sample or 0,
        batch_size=tuning.batch_size or 0,
        precision=tuning.precision or "",
        expert_parallel=tuning.expert_parallel or 0,
        options=tuple(
            MethodOption(name=name, value=value) for name, value in sorted(tuning.options.items())
        ),
        allowed_counts=() if file.instances is None else file.instances.counts(),
        throughputs=_throughputs(file.throughput),
        topology=None if file.topology is None else Topology(file.topology),
        checkpoint=None if file.checkpoint is None else _checkpoint(file.checkpoint),
        overheads=None if file.overhead_s is None else _overheads(file.overhead_s),
        offerings=file.offerings,
        budget_micro_usd=0 if file.budget_usd is None else micro_usd_from_usd(file.budget_usd),
    )


def _throughputs(stated: Mapping[str, ThroughputPart]) -> tuple[Throughput, ...]:
    return tuple(throughput_of(where, part) for where, part in sorted(stated.items()))


def _checkpoint(part: CheckpointPart) -> Checkpoint:
    return Checkpoint(
        interval_s=part.interval_s,
        save_s=part.save_s,
        size_gb=part.size_gb,
        location=part.location,
    )


def _overheads(part: OverheadPart) -> Overheads:
    return Overheads(
        launch_s=part.launch,
        grow_s=part.grow,
        shrink_s=part.shrink,
        migrate_s=part.migrate,
        interrupted_s=part.interrupted,
    )


def _content_id(file: JobFile | DraftFile) -> str:
    content = json.dumps(file.model_dump(mode="json"), sort_keys=True)
    return "file-" + hashlib.sha256(content.encode()).hexdigest()[:16]


# --- mistakes ---------------------------------------------------------------------------------

_A_MODEL = "model and tokens"
_STATED = ("work", "instances", "throughput")
_A_RATE = "work, instances and throughput"

_EXPECTED: Mapping[str, str] = {
    "missing": "this field",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "dict_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "too_short": "at least one entry",
}


def _with_neither(content: Mapping[Any, Any], problems: list[Problem]) -> list[Problem]:
    """Say once that the file is neither a job nor a draft, instead of all that this makes miss."""
    if _is_draft(content) or {"instances", "throughput"} & content.keys():
        return problems
    neither = Problem(
        field="(file)",
        expected=f"either {_A_MODEL}, to have the rest filled in, or {_A_RATE}",
        found="neither",
    )
    missing = {name for name in _STATED if name not in content}
    return [neither, *(one for one in problems if one.field not in missing)]


def _problem(error: Any, file: type[BaseModel]) -> Problem:
    """Turn one of pydantic's errors into ours."""
    kind, context = error["type"], error.get("ctx", {})
    path = [str(part) for part in error["loc"] if part != "[key]"]
    found = _shown(error["input"])
    match kind:
        case "expected_at":
            at = context["field"].split(".") if context["field"] else []
            return Problem(
                field=".".join([*path, *at]), expected=context["what"], found=context["found"]
            )
        case "expected":
            expected = context["what"]
            found = "" if isinstance(error["input"], Mapping) else found
        case "extra_forbidden":
            return Problem(field=".".join(path), expected=_known_fields(path, file), found="")
        case "missing":
            expected, found = _EXPECTED[kind], "nothing"
            if file is JobFile and path[0] in _STATED and len(path) == 1:
                expected = f"this field (or {_A_MODEL}, to have what is missing filled in)"
        case "greater_than":
            expected = f"a number > {context['gt']:g}"
        case "greater_than_equal":
            expected = f"a number >= {context['ge']:g}"
        case "less_than_equal":
            expected = f"a number <= {context['le']:g}"
        case "literal_error":
            expected = f"one of {context['expected']}".replace("'", "")
        case _:
            expected = _EXPECTED.get(kind, error["msg"])
    return Problem(field=".".join(path) or "(file)", expected=expected, found=found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_PARTS: Mapping[str, type[BaseModel]] = {
    "work": WorkPart,
    "deadline": DeadlinePart,
    "instances": InstancesPart,
    "throughput": ThroughputPart,
    "checkpoint": CheckpointPart,
    "overhead_s": OverheadPart,
    "model": ModelPart,
    "fine_tuning": FineTuningPart,
}


def _known_fields(path: list[str], file: type[BaseModel]) -> str:
    """What is known where an unknown field stands, and what was probably meant."""
    if file is DraftFile and path == ["work"]:
        return "tokens in the place of work, as a model is named"
    unknown = path[-1]
    if len(path) == 1:
        if file is JobFile and unknown in DraftFile.model_fields:
            return f"no {unknown} without a model"
        # A misspelt model makes a draft look like a job.
        known = list({**file.model_fields, **DraftFile.model_fields})
    else:
        known = list(_PARTS.get(path[0], file).model_fields)
    near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.5)
    if not near:
        near = [name for name in known if name.startswith(unknown) or unknown.startswith(name)]
        near += [name for name in known if name.split("_")[0] == unknown.split("_")[0]]
    if near:
        return f"a known field; did you mean {near[0]}?"
    return f"a known field, one of {', '.join(known)}"
