"""What is asked of the allocator's gRPC services and answered, as frozen values.

Only adapters see protobuf. A value maps to the message of the same name, or to the one its `message_name` says. Money is
micro-USD, times nanoseconds since the epoch, probabilities parts per million.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from spotline.application.board.messages import FleetView, JobView
from spotline.application.configurator.messages import Completion
from spotline.application.market_view import ClockReading
from spotline.application.paging import PagedQuery
from spotline.domain.configuration.provenance import JobConfiguration
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.market.offering import Offering
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.modes import Mode
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.problems import refuse_any


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimit:
    """How many instances of a quota pool may be held at a time, spot and on-demand together."""

    quota_pool: str
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Plan one job, or several (`jobs`) at once on what they share.

    A `draft` in the place of a job is completed first. Without `quotes` the latest slot the allocator has seen is used. The limits at the end are for
    several jobs: `budget_micro_usd_per_hour` (0: none) holds for all of them together in every
    slot, `egress_micro_usd_per_gb` is what copying a checkpoint to another region costs.
    """

    job: Job | None = None
    policy_ids: tuple[str, ...] = ()
    quotes: tuple[SlotQuote, ...] = ()
    forecast: ForecastIssued | None = None
    offerings: tuple[Offering, ...] = ()
    slot: int = 0
    slot_s: int = 0
    slot_start_ns: int = 0
    jobs: tuple[Job, ...] = ()
    quotas: tuple[QuotaLimit, ...] = ()
    budget_micro_usd_per_hour: int = 0
    egress_micro_usd_per_gb: int = 0
    draft: JobDraft | None = None
    deadlines_ns: tuple[int, ...] = ()
    least_on_time_ppm: int = 0

    def __post_init__(self) -> None:
        if self.quotes and self.slot_s < 1:
            raise ValueError(f"slot_s must be >= 1 where quotes are given, was {self.slot_s}")
        if self.quotes and not self.offerings:
            raise ValueError("offerings must be given where quotes are")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One slot of a plan."""

    slot: int
    slot_start_ns: int
    lot: Lot


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOption:
    """What one policy would do on one offering, and why it is or is not `chosen`."""

    policy_id: str
    offering_id: str
    expected_cost_micro_usd: int
    cost_p10_micro_usd: int
    cost_p90_micro_usd: int
    on_time_probability_ppm: int
    expected_utility_micro_usd: int
    chosen: bool
    why: str
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSchedule:
    """One job's part of a plan of several; `finished_slot` is -1 where the window ends before.

    `value_micro_usd` is earned within the window; `end_value_micro_usd` is what being this far at
    its end is worth to a job that is not done. `cost_micro_usd` holds `egress_micro_usd`.
    """

    job_id: str
    cost_micro_usd: int
    egress_micro_usd: int
    value_micro_usd: int
    end_value_micro_usd: int
    finished_slot: int
    progress_ppm: int
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """A plan of several jobs over one window; no plan of it is worth more than the upper bound."""

    first_slot: int
    slots: int
    utility_micro_usd: int
    upper_utility_micro_usd: int
    proven: bool
    schedules: tuple[JointSchedule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineOutlook:
    """What is expected of a job with another deadline, None where it cannot be met at all."""

    deadline_ns: int
    outlook: JobOutlook | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """What was considered, best first; `earliest_feasible_deadline_ns` is 0 where unknown.

    Several jobs have no options but a `joint` plan, None where there is none. `completion` says
    how a draft was completed. `on_demand_quote_micro_usd` is what one job would cost on on-demand
    alone (0: no quote), `most_cost_micro_usd` its budget, by that quote where it states no value.
    `outlook` says what submitting it now would bring, `curve` the same for other deadlines.
    """

    message_name: ClassVar[str] = "PlanResponse"

    feasible: bool
    infeasible_reason: str
    earliest_feasible_deadline_ns: int
    options: tuple[PlanOption, ...]
    joint: JointPlan | None = None
    completion: Completion | None = None
    clock: ClockReading | None = None
    on_demand_quote_micro_usd: int = 0
    most_cost_micro_usd: int = 0
    outlook: JobOutlook | None = None
    likely_enough: bool = False
    curve: tuple[DeadlineOutlook, ...] = ()
    all_on_time_probability_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketSlot:
    """One slot as a job would have seen it."""

    slot: int
    slot_start_ns: int
    quotes: tuple[SlotQuote, ...]
    forecast: ForecastIssued | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """Replay policies (all if none is named) for a job over consecutive slots from its first."""

    message_name: ClassVar[str] = "ComparePoliciesRequest"

    job: Job
    policy_ids: tuple[str, ...]
    slots: tuple[MarketSlot, ...]
    slot_s: int
    offerings: tuple[Offering, ...]

    def __post_init__(self) -> None:
        if self.slot_s < 1:
            raise ValueError(f"slot_s must be >= 1, was {self.slot_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """How a job fares under one policy; `finished_slot` counts from 1, 0: it does not finish."""

    policy_id: str
    offering_id: str = ""
    cost_micro_usd: int
    utility_micro_usd: int
    finished_slot: int
    on_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonAnswer:
    """One comparison per policy, in the order asked for, and the best any schedule had."""

    message_name: ClassVar[str] = "ComparePoliciesResponse"

    comparisons: tuple[PolicyComparison, ...]
    clairvoyant: PolicyComparison
    clock: ClockReading | None = None


class JobState(Enum):
    """Where a job stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_LATE = "completed_late"
    MISSED_DEADLINE = "missed_deadline"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FINISHING = "finishing"
    FAILED = "failed"
    STOPPED_BY_LIMIT = "stopped_by_limit"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.FINISHING)

    @classmethod
    def from_outcome(cls, outcome: JobOutcome) -> JobState:
        """The state of a job that ended like this."""
        return cls(outcome.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job and where it stands; fields without an answer yet are empty, 0 or None.

    `lots` is what it is to hold now, `value_micro_usd` what it was worth once over, `seq` the
    place in the log of the last change, `etag` what its owner states, `view` the same for people
    (these three are made where it is answered), `mode` whether it is paid for (None: live).
    """

    job: Job
    state: JobState
    submitted_ns: int
    policy_id: str = ""
    offering_id: str = ""
    progress_ppm: int = 0
    cost_micro_usd: int = 0
    value_micro_usd: int = 0
    lots: tuple[Lot, ...] = ()
    deadline_slot: int = 0
    last_slot: int = 0
    last_reason: DecisionReason | None = None
    last_explanation: str = ""
    seq: int = 0
    etag: str = ""
    view: JobView | None = None
    mode: Mode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job handed over, or a draft of one that is to be completed first."""

    message_name: ClassVar[str] = "SubmitRequest"

    job: Job | None = None
    draft: JobDraft | None = None
    request_id: str = ""
    least_on_time_ppm: int = 0

    def __post_init__(self) -> None:
        if (self.job is None) == (self.draft is None):
            raise ValueError("exactly one of job and draft must be given")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionReceipt:
    """The job was recorded, now or by an earlier, equal request.

    `configuration` says how a draft was completed, `on_demand_quote_micro_usd` from what the value
    of a job that states none was set (0: it states one).
    """

    message_name: ClassVar[str] = "SubmitResponse"

    job_id: str
    already_submitted: bool
    configuration: JobConfiguration | None = None
    request_id: str = ""
    clock: ClockReading | None = None
    on_demand_quote_micro_usd: int = 0
    outlook: JobOutlook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery(PagedQuery):
    """Which jobs, ordered by id: of one tenant, in one state, a page at a time."""

    message_name: ClassVar[str] = "ListRequest"

    tenant: str = ""
    state: JobState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of jobs; an empty `next_page_token` says that it was the last."""

    message_name: ClassVar[str] = "ListResponse"

    statuses: tuple[JobStatus, ...]
    next_page_token: str = ""
    clock: ClockReading | None = None
    fleet: FleetView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """Work a job has done so far, in its own unit; see `JobProgressReported`."""

    message_name: ClassVar[str] = "ReportProgressRequest"

    job_id: str
    tenant: str
    done: float
    ts_event_ns: int = 0
    rate_per_hour: float = 0.0
    instances: int = 0
    generation: int = 0
    checkpointed: float | None = None
    request_id: str = ""

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        for name in (
            *("done", "ts_event_ns", "rate_per_hour", "instances"),
            *("generation", "checkpointed"),
        ):
            if (getattr(self, name) or 0) < 0:
                yield f"{name} must be >= 0, was {getattr(self, name)}"
        if self.checkpointed is not None and self.checkpointed > self.done:
            yield f"checkpointed must be <= done ({self.done:g}), was {self.checkpointed:g}"
        if (self.rate_per_hour > 0) != (self.instances > 0):
            yield (
                "rate_per_hour and instances must be given together, were "
                f"{self.rate_per_hour:g} and {self.instances}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    """A job's training program has ended; see `JobExited`."""

    message_name: ClassVar[str] = "ReportExitRequest"

    job_id: str
    tenant: str
    generation: int = 0
    exit_code: int = 0
    detail: str = ""
    request_id: str = ""

    def __post_init__(self) -> None:
        if self.generation < 0:
            raise ValueError(f"generation must be >= 0, was {self.generation}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReceipt:
    """A changed job as it stands, and what could be done with the work that is left."""

    message_name: ClassVar[str] = "UpdateJobResponse"

    status: JobStatus
    plan: PlanAnswer | None = None
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """A job after one change; `change` is the event's kind, empty in the first of a watch."""

    message_name: ClassVar[str] = "WatchResponse"

    status: JobStatus
    change: str
    seq: int
    clock: ClockReading | None = None
