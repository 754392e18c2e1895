"""What a job file may hold, field by field (docs/job-file.md), and what is wrong with what it does."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spotline.application.admission import MOST_INSTANCES
from spotline.domain.jobs.job import (
    DEFAULT_CHECKPOINT_INTERVAL_S,
    DEFAULT_OVERHEADS,
    WORK_UNITS,
    Deadline,
    DeadlineKind,
    Throughput,
)
from spotline.domain.units import ns_from_datetime

_A_TIME = "a time with its UTC offset, such as 2026-03-01T18:00:00Z or 2026-03-01T18:00:00+02:00"


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
            raise At("unit", f"one of {', '.join(WORK_UNITS)}{hint}", self.unit)
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
            raise At("worthless_after", "a time after deadline.soft", "one that is not")
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
            raise At("min", f"a count <= instances.max ({self.max})", str(self.min))
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
            raise At("beta_per_hour", "no beta_per_hour beside table_per_hour", "both")
        return self


class CheckpointPart(_Part):
    """How it saves its state."""

    interval_s: Seconds = DEFAULT_CHECKPOINT_INTERVAL_S
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
            raise At("shrink", f"seconds <= overhead_s.grow ({self.grow})", str(self.shrink))
        if self.grow > self.migrate:
            raise At("grow", f"seconds <= overhead_s.migrate ({self.migrate})", str(self.grow))
        return self


_DEFAULT_OVERHEAD = OverheadPart(
    launch=DEFAULT_OVERHEADS.launch_s,
    grow=DEFAULT_OVERHEADS.grow_s,
    shrink=DEFAULT_OVERHEADS.shrink_s,
    migrate=DEFAULT_OVERHEADS.migrate_s,
    interrupted=DEFAULT_OVERHEADS.interrupted_s,
)


class ModelPart(_Part):
    """Which model is tuned, and its size where nobody knows it by name."""

    name: Name
    parameters_billion: Positive | None = None


def _model(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping):
        raise _expected("a model's name, or a mapping of name and parameters_billion")
    return value


def _option(value: Any) -> str:
    # YAML's own types, as the training software's command line has them.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise _expected("text, a number, true or false")


OptionValue = Annotated[str, BeforeValidator(_option)]
Whole = Annotated[int, BeforeValidator(_no_bool), Field(ge=1)]


class FineTuningPart(_Part):
    """How the model is tuned, as far as the owner wants to say; `gpus` and `batch_size` in all."""

    method: Literal["full", "lora", "qlora", "gptq-lora", "adapter"] | None = None
    gpu: Name | None = None
    gpus: Whole | None = None
    tokens_per_sample: Whole | None = None
    batch_size: Whole | None = None
    precision: Literal["bfloat16", "float16", "float32", "fp8"] | None = None
    expert_parallel: Whole | None = None
    options: dict[Name, OptionValue] = {}


class _AnyFile(_Part):
    """What every job file may state."""

    name: str = ""
    tenant: Name
    request_id: Name | None = None
    deadline: DeadlinePart
    value_usd: NotNegative
    offerings: tuple[Name, ...] = ()
    budget_usd: Positive | None = None
    start_at: TimeNs | None = None

    @model_validator(mode="after")
    def _starts_before_its_deadline(self) -> Self:
        deadline_ns = self.deadline.hard or self.deadline.soft or 0
        if self.start_at is not None and self.start_at >= deadline_ns:
            raise At("start_at", "a time before the deadline", "one that is not")
        return self


class JobFile(_AnyFile):
    """A file that states how fast the job runs."""

    work: WorkPart
    instances: InstancesPart
    throughput: dict[Name, ThroughputPart] = Field(min_length=1)
    topology: Literal["one_zone", "one_region", "any"] = "one_zone"
    checkpoint: CheckpointPart = CheckpointPart()
    overhead_s: OverheadPart = _DEFAULT_OVERHEAD

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _check_throughput(self.throughput, self.instances.counts())
        return self


class DraftFile(_AnyFile):
    """A file that names a model, and leaves out what is to be filled in."""

    model: Annotated[ModelPart, BeforeValidator(_model)]
    tokens: Positive
    fine_tuning: FineTuningPart = FineTuningPart()
    instances: InstancesPart | None = None
    throughput: dict[Name, ThroughputPart] = {}
    topology: Literal["one_zone", "one_region", "any"] | None = None
    checkpoint: CheckpointPart | None = None
    overhead_s: OverheadPart | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.instances is not None:
            _check_throughput(self.throughput, self.instances.counts())
        return self


def throughput_of(where: str, part: ThroughputPart) -> Throughput:
    """A stated throughput, as the scheduler knows it."""
    return Throughput(
        offering=where,
        alpha=part.alpha_per_hour or 0.0,
        beta=part.beta_per_hour,
        table=part.table_per_hour or (),
    )


def _check_throughput(stated: Mapping[str, ThroughputPart], counts: tuple[int, ...]) -> None:
    for where, part in stated.items():
        table = part.table_per_hour
        if table is not None and len(table) < counts[-1]:
            raise At(
                f"throughput.{where}.table_per_hour",
                f"one rate for each of 1..{counts[-1]} instances",
                f"{len(table)} rates",
            )
        throughput = throughput_of(where, part)
        for count in counts:
            rate = throughput.rate_per_hour(count)
            if rate <= 0:
                raise At(
                    f"throughput.{where}",
                    f"more than 0 work units per hour on {count} instances",
                    f"{rate:g}",
                )


class At(PydanticCustomError):
    """A mistake of one field that only shows beside others."""

    def __new__(cls, field: str, what: str, found: str) -> At:
        """Say which field below the part, what was expected there and what was found."""
        return super().__new__(
            cls, "expected_at", "{what}", {"what": what, "field": field, "found": found}
        )
