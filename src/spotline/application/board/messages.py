"""Where jobs stand, as people are shown it: the values that every page, table and alert is made of.

Times are nanoseconds since the epoch, of the market unless named otherwise; money is micro-USD. What
is not known yet is 0, empty or None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.policies.answer import Yielded


class JobPhase(Enum):
    """The one thing that a job is doing; `job_view.proto` says when it is which."""

    WAITING = "waiting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    MOVING = "moving"
    SAVING = "saving"
    FINISHING = "finishing"
    COMPLETED = "completed"
    LATE = "late"
    MISSED = "missed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED_BY_LIMIT = "stopped_by_limit"
    MARKET_ENDED = "market_ended"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to the job; after a market's end something could."""
        return self in _OVER


_OVER = frozenset(
    {
        JobPhase.COMPLETED,
        JobPhase.LATE,
        JobPhase.MISSED,
        JobPhase.FAILED,
        JobPhase.CANCELLED,
        JobPhase.STOPPED_BY_LIMIT,
    }
)


class WaitingFor(Enum):
    """For what a job waits."""

    MARKET = "market"
    START = "start"
    SLOT = "slot"
    PRICE = "price"
    CAPACITY = "capacity"
    INSTANCES = "instances"
    RETRY = "retry"
    LIMIT = "limit"
    BUYING = "buying"


class JobFlag(Enum):
    """What deserves a look."""

    AT_RISK = "at_risk"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoney:
    """What a job costs, beside what it would have cost otherwise on the same market until now.

    `spent` is by the decisions, which is what the others are compared with; `billed` is by the
    ledger, and of it `egress` for copies of its checkpoint.
    """

    spent_micro_usd: int = 0
    billed_micro_usd: int = 0
    egress_micro_usd: int = 0
    on_demand_micro_usd: int = 0
    msu_micro_usd: int = 0
    budget_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How often something has happened to a job; `noticed` are of the `interruptions`."""

    interruptions: int = 0
    noticed: int = 0
    refusals: int = 0
    moves: int = 0
    checkpoints: int = 0
    failed_checkpoints: int = 0
    starts: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """Where a job stands.

    `held` is what the cloud said last, `wanted` what was decided last, and `why` says why. On-demand
    alone, begun at `latest_on_demand_start_ns`, is just on time; `slack_s` is the time until then.
    `yielded` is spot that it left to another job then; one of another tenant is not named. `outlook` is what is expected now, `quoted` what was when the job was handed over.
    """

    phase: JobPhase
    since_ns: int = 0
    waiting_for: WaitingFor | None = None
    flags: tuple[JobFlag, ...] = ()
    headline: str = ""
    held: tuple[Lot, ...] = ()
    wanted: tuple[Lot, ...] = ()
    why: str = ""
    yielded: Yielded | None = None
    latest_on_demand_start_ns: int = 0
    slack_s: int = 0
    outlook: JobOutlook | None = None
    quoted: JobOutlook | None = None
    money: JobMoney = field(default_factory=JobMoney)
    counts: JobCounts = field(default_factory=JobCounts)
    last_report_ns: int = 0
    last_report_wall_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """What all jobs hold together, at the prices of the open slot; bills are by the ledger.

    `fairness_cost_micro_usd` is what fairness between tenants has cost all jobs together.
    """

    spot: int = 0
    on_demand: int = 0
    micro_usd_per_hour: int = 0
    billed_micro_usd: int = 0
    open_jobs: int = 0
    at_risk: int = 0
    stalled: int = 0
    fairness_cost_micro_usd: int = 0
