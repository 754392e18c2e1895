"""Events in a job's life: `lifecycle.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot


class JobOutcome(Enum):
    """How a job ended."""

    COMPLETED = "completed"
    COMPLETED_LATE = "completed_late"
    MISSED_DEADLINE = "missed_deadline"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A platform handed over a job."""

    job: Job
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A platform withdrew a job."""

    job_id: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressReported:
    """A platform says how much work a job has done, in the job's own unit.

    It had done that at `ts_event_ns` (0: not said). `rate_per_hour` (0: not measured) is its work
    per hour of late on `instances`, overheads apart.
    """

    job_id: str
    tenant: str
    done: float
    ts_event_ns: int = 0
    rate_per_hour: float = 0.0
    instances: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdmitted:
    """A job's first slot has come: its policy was drawn and its offering chosen."""

    job_id: str
    tenant: str
    slot: int
    policy_id: str
    offering_id: str
    deadline_slot: int
    weight_ppb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdvanced:
    """A slot is over: where the job stands."""

    job_id: str
    tenant: str
    slot: int
    lots: tuple[Lot, ...]
    progress_ppm: int
    slot_cost_micro_usd: int
    cost_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClosed:
    """A job ended; `slot` is the last one it was charged for."""

    job_id: str
    tenant: str
    slot: int
    outcome: JobOutcome
    policy_id: str
    cost_micro_usd: int
    value_micro_usd: int
    progress_ppm: int
