"""A job as people write it (docs/job-file.md), read into the job as Spotline decides it.

Every mistake is reported with the field's dotted path, what was expected and what was found; all
mistakes of a file at once.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spotline.application.admission import MOST_INSTANCES, job_id_for
from spotline.contracts.errors import ConfigError
from spotline.domain.jobs.job import (
    WORK_UNITS,
    Checkpoint,
    Deadline,
    DeadlineKind,
    Job,
    Overheads,
    Throughput,
    Topology,
    Work,
)
from spotline.domain.units import micro_usd_from_usd, ns_from_datetime

DOCUMENTATION = "docs/job-file.md"

_A_TIME = "a time with its UTC offset, such as 2026-03-01T18:00:00Z or 2026-03-01T18:00:00+02:00"


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


# --- fields -----------------------------------------------------------------------------------


def _expected(what: str) -> PydanticCustomError:
    # Braces would be taken for placeholders.
    return PydanticCustomError("expected", "{what}", {"what": what})


def _no_bool(value: Any) -> Any:
    # YAML's yes and on are true, which Python counts as 1.
    if isinstance(value, bool):
        raise _expected("a number")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise _expected("a finite number")
    return value


def _time_ns(value: Any) -> int:
    if not isinstance(value, str):
        raise _expected(_A_TIME)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise _expected(_A_TIME) from None
    if moment.utcoffset() is None:
        raise _expected(_A_TIME)
    return ns_from_datetime(moment)


Number = Annotated[float, BeforeValidator(_no_bool), AfterValidator(_finite)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Seconds = Annotated[int, BeforeValidator(_no_bool), Field(ge=0)]
Instances = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=MOST_INSTANCES)]
TimeNs = Annotated[int, BeforeValidator(_time_ns)]
Name = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkPart(_Part):
    """How much there is to do."""

    amount: Positive
    unit: str

    @model_validator(mode="after")
    def _known_unit(self) -> Self:
        if self.unit not in WORK_UNITS:
            near = difflib.get_close_matches(self.unit, WORK_UNITS, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise _At("unit", f"one of {', '.join(WORK_UNITS)}{hint}", self.unit)
        return self


class DeadlinePart(_Part):
    """By when: `hard`, or `soft` with the time after which the result is worthless."""

    hard: TimeNs | None = None
    soft: TimeNs | None = None
    worthless_after: TimeNs | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.hard is None) == (self.soft is None):
            raise _expected("either hard, or soft with worthless_after")
        if (self.soft is None) != (self.worthless_after is None):
            raise _expected("worthless_after with soft, and only with soft")
        if self.soft is not None and (self.worthless_after or 0) <= self.soft:
            raise _At("worthless_after", "a time after deadline.soft", "one that is not")
        return self

    def to_domain(self) -> Deadline:
        """The deadline; one of the two kinds is certain here."""
        if self.hard is not None:
            return Deadline(kind=DeadlineKind.HARD, at_ns=self.hard, expires_ns=self.hard)
        return Deadline(
            kind=DeadlineKind.SOFT, at_ns=self.soft or 0, expires_ns=self.worthless_after or 0
        )


class InstancesPart(_Part):
    """On how many instances it can run: every count from `min` to `max`, or those `allowed`."""

    min: Instances | None = None
    max: Instances | None = None
    allowed: tuple[Instances, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        bounds = self.min is not None or self.max is not None
        if bounds == (self.allowed is not None):
            raise _expected("either min and max, or allowed")
        if bounds and (self.min is None or self.max is None):
            raise _expected("both min and max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise _At("min", f"a count <= instances.max ({self.max})", str(self.min))
        return self

    def counts(self) -> tuple[int, ...]:
        """The allowed counts, ascending."""
        if self.allowed is not None:
            return tuple(sorted(set(self.allowed)))
        return tuple(range(self.min or 1, (self.max or 1) + 1))


class ThroughputPart(_Part):
    """Work units per hour on n instances: alpha * n + beta, or the n-th entry of the table."""

    alpha_per_hour: Number | None = None
    beta_per_hour: Number = 0.0
    table_per_hour: tuple[NotNegative, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.alpha_per_hour is None) == (self.table_per_hour is None):
            raise _expected("either alpha_per_hour (and beta_per_hour), or table_per_hour")
        if self.table_per_hour is not None and "beta_per_hour" in self.model_fields_set:
            raise _At("beta_per_hour", "no beta_per_hour beside table_per_hour", "both")
        return self


class CheckpointPart(_Part):
    """How it saves its state."""

    interval_s: Seconds = 1800
    save_s: Seconds = 120
    size_gb: NotNegative = 0.0
    location: str = ""


class OverheadPart(_Part):
    """Seconds without progress after each kind of change of what it holds."""

    launch: Seconds
    grow: Seconds
    shrink: Seconds
    migrate: Seconds
    interrupted: Seconds

    @model_validator(mode="after")
    def _larger_changes_cost_more(self) -> Self:
        if self.shrink > self.grow:
            raise _At("shrink", f"seconds <= overhead_s.grow ({self.grow})", str(self.shrink))
        if self.grow > self.migrate:
            raise _At("grow", f"seconds <= overhead_s.migrate ({self.migrate})", str(self.grow))
        return self


_DEFAULT_OVERHEAD = OverheadPart(launch=180, grow=180, shrink=90, migrate=300, interrupted=180)


class JobFile(_Part):
    """A whole job file."""

    name: str = ""
    tenant: Name
    request_id: Name | None = None
    work: WorkPart
    deadline: DeadlinePart
    value_usd: NotNegative
    instances: InstancesPart
    throughput: dict[Name, ThroughputPart] = Field(min_length=1)
    offerings: tuple[Name, ...] = ()
    topology: Literal["one_zone", "one_region", "any"] = "one_zone"
    checkpoint: CheckpointPart = CheckpointPart()
    overhead_s: OverheadPart = _DEFAULT_OVERHEAD
    budget_usd: Positive | None = None
    start_at: TimeNs | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        counts = self.instances.counts()
        for where, part in self.throughput.items():
            table = part.table_per_hour
            if table is not None and len(table) < counts[-1]:
                raise _At(
                    f"throughput.{where}.table_per_hour",
                    f"one rate for each of 1..{counts[-1]} instances",
                    f"{len(table)} rates",
                )
            throughput = _throughput(where, part)
            for count in counts:
                rate = throughput.rate_per_hour(count)
                if rate <= 0:
                    raise _At(
                        f"throughput.{where}",
                        f"more than 0 work units per hour on {count} instances",
                        f"{rate:g}",
                    )
        deadline_ns = self.deadline.hard or self.deadline.soft or 0
        if self.start_at is not None and self.start_at >= deadline_ns:
            raise _At("start_at", "a time before the deadline", "one that is not")
        return self


class _At(PydanticCustomError):
    """A mistake of one field that only shows beside others."""

    def __new__(cls, field: str, what: str, found: str) -> _At:
        return super().__new__(
            cls, "expected_at", "{what}", {"what": what, "field": field, "found": found}
        )


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


def read_job_file(path: Path) -> Job:
    """Read a job file.

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


def parse_job_file(text: str, *, where: str = "the job file") -> Job:
    """Read a job from the text of a job file; `JobFileError` as `read_job_file`."""
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.YAMLError as error:
        problem = Problem(field="(file)", expected="YAML", found=" ".join(str(error).split()))
        raise JobFileError(where, [problem]) from error
    if not isinstance(content, Mapping):
        found = "nothing" if content is None else type(content).__name__
        problem = Problem(field="(file)", expected="a mapping of fields", found=found)
        raise JobFileError(where, [problem])
    try:
        parsed = JobFile.model_validate(content)
        return job_of(parsed)
    except ValidationError as error:
        raise JobFileError(where, [_problem(one) for one in error.errors()]) from error
    except ValueError as error:
        problem = Problem(field="(file)", expected="a consistent job", found=str(error))
        raise JobFileError(where, [problem]) from error


def job_of(file: JobFile) -> Job:
    """The job that a file describes; without a request id, equal files are the same request."""
    request_id = file.request_id or _content_id(file)
    overhead = file.overhead_s
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
        throughputs=tuple(
            _throughput(where, part) for where, part in sorted(file.throughput.items())
        ),
        topology=Topology(file.topology),
        checkpoint=Checkpoint(
            interval_s=file.checkpoint.interval_s,
            save_s=file.checkpoint.save_s,
            size_gb=file.checkpoint.size_gb,
            location=file.checkpoint.location,
        ),
        overheads=Overheads(
            launch_s=overhead.launch,
            grow_s=overhead.grow,
            shrink_s=overhead.shrink,
            migrate_s=overhead.migrate,
            interrupted_s=overhead.interrupted,
        ),
        offerings=file.offerings,
        budget_micro_usd=0 if file.budget_usd is None else micro_usd_from_usd(file.budget_usd),
    )


def _throughput(where: str, part: ThroughputPart) -> Throughput:
    return Throughput(
        offering=where,
        alpha=part.alpha_per_hour or 0.0,
        beta=part.beta_per_hour,
        table=part.table_per_hour or (),
    )


def _content_id(file: JobFile) -> str:
    content = json.dumps(file.model_dump(mode="json"), sort_keys=True)
    return "file-" + hashlib.sha256(content.encode()).hexdigest()[:16]


# --- mistakes ---------------------------------------------------------------------------------

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


def _problem(error: Any) -> Problem:
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
            return Problem(field=".".join(path), expected=_known_fields(path), found="")
        case "missing":
            expected, found = _EXPECTED[kind], "nothing"
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
}


def _known_fields(path: list[str]) -> str:
    """What is known where an unknown field stands, and what was probably meant."""
    model = JobFile if len(path) == 1 else _PARTS.get(path[0], JobFile)
    known = list(model.model_fields)
    unknown = path[-1]
    near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.5)
    if not near:
        near = [name for name in known if name.startswith(unknown) or unknown.startswith(name)]
        near += [name for name in known if name.split("_")[0] == unknown.split("_")[0]]
    if near:
        return f"a known field; did you mean {near[0]}?"
    return f"a known field, one of {', '.join(known)}"
