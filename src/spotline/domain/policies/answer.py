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
class JobAnswer:
    """What a policy answered for one job: what to hold now, what it remembers, and why.

    `move` is None where the job stays on its offering.
    """

    job_id: str
    policy_id: str
    lots: tuple[Lot, ...]
    memory: tuple[int, ...]
    reason: DecisionReason
    move: Move | None = None


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
