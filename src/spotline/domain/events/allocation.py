"""Events of allocation: `allocation.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.beliefs.probes import ProbeWorth
from spotline.domain.crowd.tenants import SlotFairness
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move, SpotWorth, Yielded


class CallOutcome(Enum):
    """How a recorded call ended."""

    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationAnswered:
    """What the allocator said to the request with this digest, or how the call failed.

    `spot_worth` is what scarce spot was worth to all jobs, by offering id, where bids were cleared,
    `fairness` what fairness between tenants cost, None where it was not asked for.
    `probe_worths` is what asking would be worth where a probe may be sent, by job and offering.
    """

    slot: int
    revision: int
    request_digest: str
    outcome: CallOutcome
    answers: tuple[JobAnswer, ...]
    detail: str = ""
    spot_worth: tuple[SpotWorth, ...] = ()
    fairness: SlotFairness | None = None
    probe_worths: tuple[ProbeWorth, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowPricesUpdated:
    """What spot is worth to all jobs beyond its price, as tables count on it from now on.

    By offering id; where nothing is said spot is plenty. `slot` is the last that was counted.
    """

    slot: int
    prices: tuple[SpotWorth, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationDecided:
    """What a job is to hold from `offset_s` into the slot on, and whether it moves for that.

    `cleared` says that all jobs' bids were cleared together. `yielded` is spot that it wanted and
    left to another, of whom a job of another tenant is not named (None: it got all that it bid for).
    """

    job_id: str
    tenant: str
    slot: int
    revision: int
    offset_s: int
    policy_id: str
    lots: tuple[Lot, ...]
    reason: DecisionReason
    forecast_used: bool
    explanation: str
    move: Move | None = None
    cleared: bool = False
    yielded: Yielded | None = None
