"""What a policy answers for a job, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.jobs.lot import Lot


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A job leaves an offering for the one of its lots: seconds without progress, and egress."""

    from_offering_id: str
    overhead_s: int
    cost_micro_usd: int

    def __post_init__(self) -> None:
        if self.overhead_s < 0 or self.cost_micro_usd < 0:
            raise ValueError(
                f"overhead_s and cost_micro_usd of a move must be >= 0, were "
                f"{self.overhead_s}, {self.cost_micro_usd}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielded:
    """Spot that a job would have held, had it been alone, and that is worth more to another job.

    `gain_micro_usd` is how much more it is worth there, all of it; below 0 it is worth less, and was
    yielded for fairness between tenants. `to_job_id` is empty where
    whoever reads it may not know whose that job is.
    """

    offering_id: str
    spot: int
    to_job_id: str
    gain_micro_usd: int

    def __post_init__(self) -> None:
        if self.spot < 1:
            raise ValueError(f"spot that is yielded must be >= 1, was {self.spot}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotWorth:
    """What one more instance of an offering's spot would be worth beyond its price, in a slot."""

    offering_id: str
    micro_usd_per_instance_hour: int

    def __post_init__(self) -> None:
        if self.micro_usd_per_instance_hour < 0:
            raise ValueError(
                f"micro_usd_per_instance_hour must be >= 0, was {self.micro_usd_per_instance_hour}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """What a policy answered for one job: what to hold now, what it remembers, and why.

    `move` is None where the job stays on its offering, `yielded` where it got all that it bid for.
    """

    job_id: str
    policy_id: str
    lots: tuple[Lot, ...]
    memory: tuple[int, ...]
    reason: DecisionReason
    move: Move | None = None
    yielded: Yielded | None = None


class DecisionReason(Enum):
    """Why an allocation is what it is."""

    POLICY = "policy"
    SAFETY_NET = "safety_net"
    FORECAST_OVERDUE = "forecast_overdue"
    FORECAST_UNTRUSTED = "forecast_untrusted"
    ALLOCATOR_UNAVAILABLE = "allocator_unavailable"
    LAUNCH_REFUSED = "launch_refused"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"
    CLOSED = "closed"
    AFTER_DEADLINE = "after_deadline"
    NO_CAPACITY = "no_capacity"
    RETRYING = "retrying"
    FINISHING = "finishing"
