"""A pipeline as its owner hands it over: what a `PipelineJob` needs, but no clock yet."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from spotline.domain.placement.pipeline import PipelineJob
from spotline.domain.problems import refuse_any

# Beyond these nothing is a training job any more, but much would exhaust a service.
_MOST: dict[str, float] = {
    "iterations": 10**12,
    "microbatches": 10**9,
    "compute_s": 10**6,
    "activation_bytes": 10**15,
    "stage_overhead_s": 10**6,
    "max_gpus": 1 << 16,
    "deadline_s": 10**9,
    "checkpoint_gb": 10**9,
    "checkpoint_interval_iterations": 10**12,
    "restart_s": 10**9,
}
# What is smaller is no time and no traffic, and its reciprocal is no number. 0 says "none".
_LEAST = 1e-9
_NONE_ALLOWED: dict[str, bool] = {
    "compute_s": False,
    "activation_bytes": True,
    "stage_overhead_s": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What is to be run; the fields of `PipelineJob`, with `deadline_s` counted from submission.

    `deadline_s` 0: whenever. The same `client_request_id` of the same tenant is the same job.

    Raises
    ------
    ValueError
        A field is out of its range; the message begins with its name.
    """

    message_name: ClassVar[str] = "PipelineJob"

    job_id: str
    tenant: str
    client_request_id: str
    iterations: int
    microbatches: int
    compute_s: float
    activation_bytes: float
    model_name: str = ""
    stage_overhead_s: float = 0.0
    min_gpus: int = 1
    max_gpus: int = 1024
    deadline_s: float = 0.0
    checkpoint_gb: float = 0.0
    checkpoint_interval_iterations: int = 1
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        refuse_any(self._problems())
        self.job(0.0)

    def _problems(self) -> Iterator[str]:
        if not self.client_request_id:
            yield "client_request_id must not be empty"
        if not self.deadline_s >= 0:
            yield f"deadline_s must be >= 0, was {self.deadline_s}"
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value > most:
                yield f"{name} must be <= {most:g}, was {value:g}"
        for name, none_allowed in _NONE_ALLOWED.items():
            value = getattr(self, name)
            if value < _LEAST and not (none_allowed and value == 0):
                zero = "0 or " if none_allowed else ""
                yield f"{name} must be {zero}>= {_LEAST:g}, was {value:g}"

    def job(self, arrival_s: float) -> PipelineJob:
        """The job as methods see it, on the clock of the run.

        Parameters
        ----------
        arrival_s
            When it was submitted.
        """
        stated = {
            field.name: getattr(self, field.name)
            for field in fields(PipelineJob)
            if field.name not in ("arrival_s", "deadline_s", "promised")
        }
        deadline_s = arrival_s + self.deadline_s if self.deadline_s else math.inf
        return PipelineJob(arrival_s=arrival_s, deadline_s=deadline_s, **stated)
