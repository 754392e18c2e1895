"""A fine-tuning job whose owner leaves out what he does not know."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from spotline.domain.configuration.configuration import PRECISIONS, Method, MethodOption
from spotline.domain.jobs.job import (
    Checkpoint,
    Deadline,
    Job,
    OnLimit,
    Overheads,
    Throughput,
    Topology,
)
from spotline.domain.jobs.run import Run
from spotline.domain.problems import refuse_any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDraft:
    """What is stated of a job: at least a model, `tokens` to train on, a deadline and a value.

    Empty, 0 or None is "not stated", to be filled in; what is stated is never overridden. `gpus`
    and `batch_size` are over all instances. Stated `throughputs` are tokens per hour.
    """

    job_id: str = ""
    tenant: str
    client_request_id: str
    name: str = ""
    model_name: str
    model_parameters: int = 0
    tokens: float
    deadline: Deadline
    value_micro_usd: int
    start_ns: int = 0
    method: Method | None = None
    gpu_model: str = ""
    gpus: int = 0
    tokens_per_sample: int = 0
    batch_size: int = 0
    precision: str = ""
    expert_parallel: int = 0
    options: tuple[MethodOption, ...] = ()
    allowed_counts: tuple[int, ...] = ()
    throughputs: tuple[Throughput, ...] = ()
    topology: Topology | None = None
    checkpoint: Checkpoint | None = None
    overheads: Overheads | None = None
    offerings: tuple[str, ...] = ()
    budget_micro_usd: int = 0
    retries: int = 0
    on_limit: OnLimit | None = None
    awaits_exit: bool = False
    run: Run | None = None
    egress_budget_micro_usd: int = 0
    value_from_quote: bool = False

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        for name in ("tenant", "client_request_id", "model_name"):
            if not getattr(self, name):
                yield f"{name} of a draft must not be empty"
        if not (math.isfinite(self.tokens) and self.tokens > 0):
            yield f"tokens must be finite and > 0, was {self.tokens}"
        for name in (
            "model_parameters",
            "value_micro_usd",
            "gpus",
            "tokens_per_sample",
            "batch_size",
            "expert_parallel",
            "budget_micro_usd",
            "egress_budget_micro_usd",
            "retries",
        ):
            if getattr(self, name) < 0:
                yield f"{name} must be >= 0, was {getattr(self, name)}"
        if self.precision and self.precision not in PRECISIONS:
            yield f"precision must be one of {', '.join(PRECISIONS)}, was {self.precision!r}"
        names = [option.name for option in self.options]
        if names != sorted(set(names)):
            yield f"options must ascend by name without repeats, were {names}"
        counts = self.allowed_counts
        if counts and (counts[0] < 1 or list(counts) != sorted(set(counts))):
            yield f"allowed_counts must ascend from >= 1 without repeats, were {counts}"


_FILLED_IN = ("job_id", "allowed_counts", "throughputs", "topology", "checkpoint", "overheads")

KEPT = tuple(
    field.name
    for field in fields(JobDraft)
    if field.name in Job.__dataclass_fields__ and field.name not in _FILLED_IN
)
"""Fields that the completed job takes from its draft as they are."""
