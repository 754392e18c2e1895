"""What every mapping offers: which tables it reads, and how a row becomes a measured run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from spotline.adapters.knowledge.cells import Row, RowRefused
from spotline.domain.configuration.configuration import Configuration, MeasuredRun, RunOutcome
from spotline.domain.configuration.gpus import UnknownGpu, gpu_facts
from spotline.domain.configuration.models import UnknownModel, model_facts
from spotline.domain.configuration.rules import broken_rules

GIB_GB = 2**30 / 1e9
MIB_GB = 2**20 / 1e9
S_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """How one kind of table is read.

    Attributes
    ----------
    name
        What `--format` calls it.
    stack
        The software its rows were measured with, where the row does not say.
    required
        Columns that tell this kind of table from others, all present.
    used
        All columns that are read or known to say nothing of a configuration; others are listed.
    read
        Turns a row into a run of the given stack, or raises `RowRefused`.
    """

    name: str
    stack: str
    description: str
    required: frozenset[str]
    used: frozenset[str]
    read: Callable[[Row, str], MeasuredRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a mapping's table calls the parts of a configuration, to name a field that is wrong."""

    model: str
    gpu: str = "gpu_model"
    gpus: str = "number_gpus"
    nodes: str = "number_nodes"
    batch: str = "batch_size"
    expert_parallel: str = "expert_parallel"


def resolved(columns: Columns, run: Configuration) -> Configuration:
    """Put a configuration under the canonical names of its model and GPU.

    Raises
    ------
    RowRefused
        The model's size or the GPU is unknown; or there are more nodes than GPUs.
    """
    try:
        model_name = model_facts(run.model_name).name
    except UnknownModel as error:
        raise RowRefused(
            columns.model,
            "a known model, or a name that holds its size such as 7b",
            repr(run.model_name),
        ) from error
    try:
        gpu_model = gpu_facts(run.gpu_model).name
    except UnknownGpu as error:
        raise RowRefused(columns.gpu, "a known GPU", repr(run.gpu_model)) from error
    if run.gpus < run.nodes:
        raise RowRefused(columns.gpus, f"at least {columns.nodes} ({run.nodes})", str(run.gpus))
    return replace(run, model_name=model_name, gpu_model=gpu_model)


def succeeded(
    columns: Columns,
    run: Configuration,
    *,
    stack: str,
    tokens_per_s: float,
    peak_memory_gb: float = 0.0,
    runtime_s: float = 0.0,
) -> MeasuredRun:
    """A run that was done; refused where its configuration could not have started."""
    broken = broken_rules(run)
    if broken:
        fields = {
            "batch_size": columns.batch,
            "gpus": columns.gpus,
            "expert_parallel": columns.expert_parallel,
        }
        first = broken[0]
        raise RowRefused(
            fields.get(first.field, first.field),
            "a configuration that can start, for this run succeeded",
            first.message,
        )
    return MeasuredRun(
        configuration=run,
        stack=stack,
        outcome=RunOutcome.SUCCEEDED,
        tokens_per_s=tokens_per_s,
        peak_memory_gb=round(peak_memory_gb, 6),
        runtime_s=runtime_s,
    )


def not_run(
    row: Row, run: Configuration, *, stack: str, outcomes: dict[str, str], rate: str
) -> MeasuredRun | None:
    """The run where the column `status` says that it did not succeed, else None.

    Raises
    ------
    RowRefused
        The status is not one of `outcomes`, or a run that did not succeed has a `rate` all the same.
    """
    outcome = RunOutcome(row.choice("status", outcomes))
    if outcome is RunOutcome.SUCCEEDED:
        return None
    if row.has(rate):
        raise RowRefused(rate, f"nothing, for status is {row.text('status')}", row.text(rate))
    return not_succeeded(run, stack=stack, outcome=outcome)


def not_succeeded(run: Configuration, *, stack: str, outcome: RunOutcome) -> MeasuredRun:
    """A run that ended otherwise: without rate; what it held in memory says nothing of its need."""
    return MeasuredRun(configuration=run, stack=stack, outcome=outcome)
