"""The fields of a job file: how each is read, what is said of it, and what carries it.

This is the one table of them: the reader, the mapping to jobs, drafts and messages, and the table
in docs/job-file.md all follow it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from spotline.adapters.files.deadline_fields import DeadlinePart
from spotline.adapters.files.fields import (
    Amount,
    AnyAmount,
    Count,
    FieldRow,
    Label,
    Name,
    Part,
    Seconds,
    SizeGb,
    Text,
    TimeNs,
    Tokens,
    Usd,
    expected,
    fields_by_key,
    no_bool,
    parts_in,
    row_of,
)
from spotline.adapters.files.run_fields import Data, DataPart, RunPart
from spotline.adapters.files.tuning_fields import FineTuningPart, ModelPart, model_name_alone
from spotline.adapters.files.units import amount_of
from spotline.application.admission import MOST_INSTANCES
from spotline.domain.jobs.job import (
    DEFAULT_CHECKPOINT,
    DEFAULT_OVERHEADS,
    DEFAULT_TOPOLOGY,
    WORK_UNITS,
    Checkpoint,
    OnLimit,
    Overheads,
    Throughput,
    Topology,
    Work,
)
from spotline.domain.units import micro_usd_from_usd

Instances = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=MOST_INSTANCES)]
Retries = Annotated[Count, Field(le=100)]


class WorkPart(Part):
    """How much there is to do."""

    amount: Annotated[
        Amount,
        FieldRow(
            "work.amount",
            "`work.unit` | required without a model | how much there is to do, > 0; `work: 300M "
            "tokens` is both in one",
        ),
    ]
    unit: Annotated[
        str,
        FieldRow(
            "work.unit",
            "| required without a model | `gpu_hours`, `instance_hours`, `tokens`, "
            "`samples` or `steps`",
        ),
    ]

    @model_validator(mode="after")
    def _known_unit(self) -> Self:
        if self.unit not in WORK_UNITS:
            near = difflib.get_close_matches(self.unit[:80], WORK_UNITS, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            known = ", ".join(WORK_UNITS)
            raise expected(f"one of {known}{hint}", at="unit", found=repr(self.unit[:80]))
        return self

    def to_domain(self) -> Work:
        """The work."""
        return Work(amount=self.amount, unit=self.unit)


def work_in_one(value: Any) -> Any:
    """Take `300M tokens` as the mapping that it is short for."""
    if not isinstance(value, str):
        return value
    found = amount_of(value)
    if found is None or not found[1]:
        raise expected(
            "an amount and its unit, such as 300M tokens or 64 instance_hours, or a mapping of both"
        )
    return {"amount": found[0], "unit": found[1]}


class InstancesPart(Part):
    """On how many instances it can run: every count from `min` to `max`, or those `allowed`."""

    min: Annotated[
        Instances | None,
        FieldRow(
            "allowed_counts",
            "instances | `min` and `max`, or `allowed`, are required; filled in for a draft "
            "| with `max`: every count between, both included",
        ),
    ] = None
    max: Annotated[
        Instances | None,
        FieldRow("allowed_counts", f"instances | required with `min` | at most {MOST_INSTANCES}"),
    ] = None
    allowed: Annotated[
        Annotated[tuple[Instances, ...], Field(min_length=1, max_length=MOST_INSTANCES)] | None,
        FieldRow("allowed_counts", "instances | | exactly these counts (gangs, divisibility)"),
    ] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        stated = f"{', '.join(sorted(self.model_fields_set)) or 'neither'}"
        bounds = self.min is not None or self.max is not None
        if bounds == (self.allowed is not None):
            raise expected("either min and max, or allowed", found=stated)
        if bounds and (self.min is None or self.max is None):
            raise expected("both min and max", found=stated)
        if self.min is not None and self.max is not None and self.min > self.max:
            most = f"a count <= instances.max ({self.max})"
            raise expected(most, at="min", found=str(self.min))
        return self

    def to_domain(self) -> tuple[int, ...]:
        """The allowed counts, ascending."""
        if self.allowed is not None:
            return tuple(sorted(set(self.allowed)))
        return tuple(range(self.min or 1, (self.max or 1) + 1))


class ThroughputPart(Part):
    """Work units per hour on n instances: alpha * n + beta, or the n-th entry of the table."""

    alpha_per_hour: Annotated[
        AnyAmount | None,
        FieldRow(
            "throughputs[].alpha",
            "work units per hour | alpha or a table is required; filled in for a draft | "
            "with beta: alpha * n + beta on n instances; tokens per hour in a draft",
        ),
    ] = None
    beta_per_hour: Annotated[
        AnyAmount, FieldRow("throughputs[].beta", "work units per hour | 0 | as above")
    ] = 0.0
    table_per_hour: Annotated[
        Annotated[tuple[Annotated[AnyAmount, Field(ge=0)], ...], Field(min_length=1)] | None,
        FieldRow(
            "throughputs[].table",
            "work units per hour | | the rate on 1, 2, ... instances, up to the largest count",
        ),
    ] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.alpha_per_hour is None) == (self.table_per_hour is None):
            raise expected(
                "either alpha_per_hour (and beta_per_hour), or table_per_hour",
                found="neither" if self.table_per_hour is None else "both",
            )
        if self.table_per_hour is not None and "beta_per_hour" in self.model_fields_set:
            raise expected(
                "no beta_per_hour beside table_per_hour", at="beta_per_hour", found="both"
            )
        return self

    def to_domain(self, where: str) -> Throughput:
        """The throughput on an offering, an instance type or `*`."""
        return Throughput(
            offering=where,
            alpha=self.alpha_per_hour or 0.0,
            beta=self.beta_per_hour,
            table=self.table_per_hour or (),
        )


class CheckpointPart(Part):
    """How it saves its state."""

    interval_s: Annotated[
        Seconds,
        FieldRow(
            "checkpoint.interval_s",
            f"seconds | {DEFAULT_CHECKPOINT.interval_s} | between two checkpoints",
        ),
    ] = DEFAULT_CHECKPOINT.interval_s
    save_s: Annotated[
        Seconds,
        FieldRow(
            "checkpoint.save_s",
            f"seconds | {DEFAULT_CHECKPOINT.save_s} | to write one; a guaranteed notice at least this "
            "long loses no work",
        ),
    ] = DEFAULT_CHECKPOINT.save_s
    size_gb: Annotated[
        SizeGb,
        FieldRow(
            "checkpoint.size_gb",
            "10^9 bytes | 0 | size of one; 0 with `run`: not known, so the job stays in its region",
        ),
    ] = 0.0
    location: Annotated[
        Text,
        FieldRow(
            "checkpoint.location",
            "| empty; required with `run` | where they are kept: a folder, or a URL that fsspec knows, "
            "which every instance reaches",
        ),
    ] = ""

    def to_domain(self) -> Checkpoint:
        """The checkpoints."""
        return Checkpoint(**self.model_dump())


def _overhead_row(says: str, name: str) -> FieldRow:
    default = getattr(DEFAULT_OVERHEADS, f"{name}_s")
    return FieldRow(f"overheads.{name}_s", f"seconds | {default} | {says}")


class OverheadPart(Part):
    """Seconds without progress after each kind of change of what it holds."""

    launch: Annotated[
        Seconds,
        _overhead_row("without progress after starting; all five are stated or none", "launch"),
    ]
    grow: Annotated[Seconds, _overhead_row("after adding or replacing; >= shrink", "grow")]
    shrink: Annotated[Seconds, _overhead_row("after only releasing", "shrink")]
    migrate: Annotated[Seconds, _overhead_row("after changing the offering; >= grow", "migrate")]
    interrupted: Annotated[Seconds, _overhead_row("after a reclaim", "interrupted")]

    @model_validator(mode="after")
    def _larger_changes_cost_more(self) -> Self:
        for smaller, larger in (("shrink", "grow"), ("grow", "migrate")):
            less, more = getattr(self, smaller), getattr(self, larger)
            if less > more:
                most = f"seconds <= overhead_s.{larger} ({more})"
                raise expected(most, at=smaller, found=str(less))
        return self

    def to_domain(self) -> Overheads:
        """The overheads."""
        return Overheads(**{f"{name}_s": value for name, value in self.model_dump().items()})


def _throughputs(stated: Mapping[str, ThroughputPart]) -> tuple[Throughput, ...]:
    return tuple(part.to_domain(where) for where, part in sorted(stated.items()))


class JobFile(Part):
    """All that a job file may state; what it must state depends on whether it is a draft."""

    name: Annotated[Label, FieldRow("name", "| empty | for people")] = ""
    tenant: Annotated[Name, FieldRow("tenant", "| your token's, or required | whose job it is")]
    request_id: Annotated[
        Name | None,
        FieldRow(
            "client_request_id",
            "| from the file's content | your id of this request; submitting it again is "
            "the same job, and another job under the same id is refused",
        ),
    ] = None
    model: Annotated[
        Annotated[ModelPart, BeforeValidator(model_name_alone)] | None,
        FieldRow(
            "model_name",
            "| required for a draft | the model's name, such as `llama-3.1-8b`",
            to=ModelPart.to_domain,
        ),
    ] = None
    tokens: Annotated[
        Tokens | None,
        FieldRow(
            "tokens",
            "tokens | required for a draft | to train on, over all epochs, > 0, such as `300M`",
        ),
    ] = None
    fine_tuning: Annotated[FineTuningPart | None, FieldRow(to=FineTuningPart.to_domain)] = None
    work: Annotated[
        Annotated[WorkPart, BeforeValidator(work_in_one)] | None,
        FieldRow("work", to=WorkPart.to_domain),
    ] = None
    deadline: Annotated[DeadlinePart, FieldRow("deadline")]
    value_usd: Annotated[
        Usd | None,
        FieldRow(
            "value_micro_usd",
            "USD | by the quote | what finishing on time is worth, >= 0; not stated, it is done by "
            "the deadline as cheaply as possible, for at most 1.5 times (`SPOTLINE_QUOTE_MARGIN`) "
            "what on-demand alone would cost when it is submitted",
            to=micro_usd_from_usd,
            empty=0,
        ),
    ] = None
    budget_usd: Annotated[
        Annotated[Usd, Field(gt=0)] | None,
        FieldRow(
            "budget_micro_usd",
            "USD | none | the most that may be spent, > 0",
            to=micro_usd_from_usd,
            empty=0,
        ),
    ] = None
    egress_usd: Annotated[
        Annotated[Usd, Field(gt=0)] | None,
        FieldRow(
            "egress_budget_micro_usd",
            "USD | none | the most that copying its checkpoints between regions may cost, > 0",
            to=micro_usd_from_usd,
            empty=0,
        ),
    ] = None
    on_limit: Annotated[
        Literal["wait", "stop", "finish"] | None,
        FieldRow(
            "on_limit",
            "| by the deadline | what follows at the job's limit (its budget; without one its value "
            "or 1.5 times its on-demand cost, whichever is more): `wait` for more of it, `stop` the "
            "job, whose last checkpoint stays, or `finish` while that costs less than is still to be "
            "gained. Not stated, a hard deadline finishes; a soft one buys nothing more, keeps what "
            "it has for ten minutes to save, and ends",
            to=OnLimit,
        ),
    ] = None
    retries: Annotated[
        Retries,
        FieldRow(
            "retries",
            "| 0 | how often the training program is started again after it failed, 0 to 100; the "
            "first time a minute later, then after twice as long each time, up to an hour",
        ),
    ] = 0
    awaits_exit: Annotated[
        bool | None,
        FieldRow(
            "awaits_exit",
            "| false; true with `run` | the program reports when it has ended: done work alone does "
            "not finish the job, which keeps what it holds until then, an hour at most",
            empty=False,
        ),
    ] = None
    instances: Annotated[
        InstancesPart | None, FieldRow("allowed_counts", to=InstancesPart.to_domain, empty=())
    ] = None
    throughput: Annotated[
        dict[Name, ThroughputPart] | None, FieldRow("throughputs", to=_throughputs, empty=())
    ] = None
    offerings: Annotated[
        tuple[Name, ...],
        FieldRow("offerings", "| any | offering ids or instance types the job is restricted to"),
    ] = ()
    topology: Annotated[
        Literal["one_zone", "one_region", "any"] | None,
        FieldRow(
            "topology",
            "| `one_zone` | `one_zone`, `one_region` or `any`: how far apart instances may "
            "be that are held at a time (a job may move; `offerings` bounds where)",
            to=Topology,
        ),
    ] = None
    checkpoint: Annotated[
        CheckpointPart | None, FieldRow("checkpoint", to=CheckpointPart.to_domain)
    ] = None
    overhead_s: Annotated[OverheadPart | None, FieldRow("overheads", to=OverheadPart.to_domain)] = (
        None
    )
    run: Annotated[
        RunPart | None,
        FieldRow(
            "run",
            "| none | how Spotline runs the program; without it, somebody else does",
        ),
    ] = None
    data: Annotated[Data, FieldRow("run.data", "| none | with `run`: what the program reads")] = ()
    start_at: Annotated[
        TimeNs | None,
        FieldRow(
            "start_ns",
            "time | at once | not before; the first slot that opens then or later is the "
            "job's first",
            empty=0,
        ),
    ] = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        deadline_ns = self.deadline.earliest_ns
        start_ns = self.start_at
        if start_ns is not None and deadline_ns is not None and start_ns >= deadline_ns:
            raise expected("a time before the deadline", at="start_at", found="one that is not")
        if self.instances is not None:
            _check_throughput(self.throughput or {}, self.instances.to_domain())
        return self


NEEDED = {False: ("work", "instances", "throughput"), True: ("model", "tokens")}
"""What a job and a draft (True) must state beside what every file must."""

ONLY = {False: ("work",), True: ("model", "tokens", "fine_tuning")}
"""What only a job and only a draft may state."""

DEFAULTS: Mapping[bool, Mapping[str, Any]] = {
    False: {
        "topology": DEFAULT_TOPOLOGY.value,
        "checkpoint": CheckpointPart(),
        "overhead_s": OverheadPart(
            launch=DEFAULT_OVERHEADS.launch_s,
            grow=DEFAULT_OVERHEADS.grow_s,
            shrink=DEFAULT_OVERHEADS.shrink_s,
            migrate=DEFAULT_OVERHEADS.migrate_s,
            interrupted=DEFAULT_OVERHEADS.interrupted_s,
        ),
    },
    True: {"fine_tuning": FineTuningPart(), "throughput": {}},
}
"""What a job and a draft have that state nothing; a draft's are mostly filled in later."""


def rows(part: type[Part] = JobFile, prefix: str = "") -> Iterator[tuple[str, FieldRow]]:
    """Walk the table: every field's path in the file and its row, groups before what is in them."""
    for key, field in fields_by_key(part).items():
        row = row_of(field)
        if row is None:
            continue
        inner = parts_in(field.annotation)
        path = f"{prefix}{key}"
        yield path, row
        # The user chooses the keys of `throughput`.
        below = f"{path}.<where>." if ThroughputPart in inner else f"{path}."
        below = f"{path}[]." if DataPart in inner else below
        for held in inner:
            yield from rows(held, below)


def _check_throughput(stated: Mapping[str, ThroughputPart], counts: tuple[int, ...]) -> None:
    for where, part in stated.items():
        table = part.table_per_hour
        if table is not None and len(table) < counts[-1]:
            raise expected(
                f"one rate for each of 1..{counts[-1]} instances",
                at=f"throughput.{where}.table_per_hour",
                found=f"{len(table)} rates",
            )
        throughput = part.to_domain(where)
        for count in counts:
            rate = throughput.rate_per_hour(count)
            if rate <= 0:
                raise expected(
                    f"more than 0 work units per hour on {count} instances",
                    at=f"throughput.{where}",
                    found=f"{rate:g}",
                )
