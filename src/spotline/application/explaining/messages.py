"""Why a decision was what it was: the alternatives, what it was made from, and what came of it.

Money is micro-USD, probabilities parts per million, times nanoseconds since the epoch, of the market.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from spotline.application.market_view import ClockReading
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import SpotWorth


class AlternativeCut(Enum):
    """What keeps an alternative from being chosen, whatever it is worth."""

    AVAILABILITY = "availability"
    YIELDED = "yielded"
    LIMIT = "limit"
    QUOTA = "quota"
    TOPOLOGY = "topology"
    SAFETY_NET = "safety_net"
    COOL_DOWN = "cool_down"
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsideredAlternative:
    """Something that could have been held instead; `worse_by` is in utility, against the chosen.

    No lots are nothing at home; nothing elsewhere is a lot without instances.
    """

    lots: tuple[Lot, ...]
    chosen: bool
    immediate_cost_micro_usd: int
    cost_to_go_micro_usd: int
    utility_micro_usd: int
    on_time_probability_ppm: int
    worse_by_micro_usd: int
    cut: AlternativeCut | None = None
    cut_detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BidOption:
    """Something that the job's policy would hold if so much was left to it: what it bids for.

    `more_micro_usd` is how much more than what it got that is worth to the job, `others_lose_micro_usd`
    how much less the others would get out of the slot then (None: they were not asked, as the job
    itself gains nothing). `why` says why it did not get it, empty for what it got.
    """

    offering_id: str
    spot: int
    on_demand: int
    chosen: bool
    more_micro_usd: int
    others_lose_micro_usd: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearedBids:
    """The bids of a job, the best for itself first, among those of all `jobs` that were cleared.

    `spot_worth` is what one more instance of scarce spot was worth to all. The clearing is the best
    there is to within `gap_micro_usd`, 0 where that is proven. Fairness between tenants cost all jobs
    together `fairness_cost_micro_usd`.
    """

    jobs: int
    options: tuple[BidOption, ...]
    spot_worth: tuple[SpotWorth, ...] = ()
    gap_micro_usd: int = 0
    fairness_cost_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionInput:
    """Something that a decision was made from; `seq` 0: no event brought it."""

    kind: str
    id: str
    seq: int
    age_s: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseLink:
    """An event on the way from a quote to a bill."""

    kind: str
    seq: int
    event_id: str
    ts_event_ns: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionQuery:
    """Which decision: of a job, in a slot (None: the latest), a revision of it (None: the last)."""

    message_name: ClassVar[str] = "ExplainDecisionRequest"

    job_id: str
    slot: int | None = None
    revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionExplanation:
    """Why a decision was what it was; `alternatives` begin with what was chosen, then by utility.

    `clearing` is None where jobs were served in order. `method` says what utility and probability of the alternatives are estimated by; `chain` leads
    from the quote to the bill, in the order of the log.
    """

    message_name: ClassVar[str] = "ExplainDecisionResponse"

    decision: AllocationDecided
    seq: int
    ts_event_ns: int
    summary: str
    alternatives: tuple[ConsideredAlternative, ...]
    method: str
    inputs: tuple[DecisionInput, ...]
    chain: tuple[CauseLink, ...]
    clock: ClockReading | None = None
    clearing: ClearedBids | None = None
