"""Events in a job's life: `lifecycle.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook


class JobOutcome(Enum):
    """How a job ended."""

    COMPLETED = "completed"
    COMPLETED_LATE = "completed_late"
    MISSED_DEADLINE = "missed_deadline"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"
    STOPPED_BY_LIMIT = "stopped_by_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A platform handed over a job."""

    job: Job
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A platform withdrew a job, at `ts_event_ns` of market time: that is when it takes effect.

    0, in logs from before 0.3.0, stands for the opening of the next slot.
    """

    job_id: str
    tenant: str
    ts_event_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdated:
    """A platform changed deadline, value, budget or what follows from it: from now on it is `job`."""

    job_id: str
    tenant: str
    job: Job
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExited:
    """The training program of a job ended; `exit_code` 0 says that the job is finished.

    `generation` counts the starts of the program from 1 (0: not said).
    """

    job_id: str
    tenant: str
    generation: int
    exit_code: int
    detail: str
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetryScheduled:
    """A failed job is started again, not before `not_before_ns`; until then it holds nothing."""

    job_id: str
    tenant: str
    slot: int
    retry: int
    not_before_ns: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRecorded:
    """The ledger holds a submitted job too."""

    job_id: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressReported:
    """A platform says how much work a job has done, in the job's own unit.

    It had done that at `ts_event_ns` (0: not said). `rate_per_hour` (0: not measured) is its work
    per hour of late on `instances`, overheads apart. With a `generation` (starts of its program,
    from 1) the latest report of the latest one counts, and work done may fall; without one (0) the
    greatest report counts. `checkpointed` is what the newest committed checkpoint holds.
    """

    job_id: str
    tenant: str
    done: float
    ts_event_ns: int = 0
    rate_per_hour: float = 0.0
    instances: int = 0
    generation: int = 0
    checkpointed: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdmitted:
    """A job's first slot has come: its policy was drawn and its offering chosen.

    `on_demand_quote_micro_usd` is what all of it would cost on on-demand from here on,
    `limit_micro_usd` what it may spend before its limit is reached; both 0 where limits are off.
    """

    job_id: str
    tenant: str
    slot: int
    policy_id: str
    offering_id: str
    deadline_slot: int
    weight_ppb: int
    on_demand_quote_micro_usd: int = 0
    limit_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuoted:
    """What was expected of a job that had been handed over a short time ago, while `slot` was open.

    An observation: it is worked out away from any decision, and nothing is decided because of it.
    """

    job_id: str
    tenant: str
    slot: int
    outlook: JobOutlook


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
