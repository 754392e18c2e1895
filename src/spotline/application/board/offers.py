"""What the market offered every job in the slots of its life, beside other jobs.

Where jobs are served in order that is what those before left it; where bids are cleared together, what all
others leave it.

The same as the selector keeps for its feedback, in a few integers a slot. What other rules would
have cost is worked out from it when somebody asks, see `otherwise.py`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, LaunchRefused
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.lot import Lot
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.market.offering import CapacityType, Offering
from spotline.domain.market.stock import stock_terms
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.units import NS_PER_S

# As far back as the selector looks by default.
STOCK_SLOTS = 192
# Of jobs that are over, so many keep what they were offered: about 14 KB for 300 slots.
MOST_CLOSED = 2_000

OFFER_WIDTH = 6
"""Spot price, on-demand price, spot, on-demand, reserve slots and rescue instances of a slot."""


@dataclass(slots=True, kw_only=True)
class JobOffers:
    """What a job was offered at its home in each slot, oldest first; `rows` is flat, `OFFER_WIDTH` a slot.

    `homes` are the offerings it was at home on, `target` what it was to hold last.
    """

    allowed_counts: tuple[int, ...]
    home: str = ""
    homes: tuple[str, ...] = ()
    first_slot: int = -1
    first_slot_start_ns: int = 0
    deadline_slot: int = 0
    target: tuple[Lot, ...] = ()
    over: bool = False
    rows: array[int] = field(default_factory=lambda: array("q"))

    @property
    def slots(self) -> int:
        """For how many slots it is known what was offered."""
        return len(self.rows) // OFFER_WIDTH


_TAKEN = frozenset(
    {
        *(MarketOpened, SlotOpened, JobSubmitted, JobAdmitted, AllocationDecided),
        *(LaunchRefused, CapacityReported, JobClosed),
    }
)


@dataclass(slots=True, kw_only=True)
class OfferBook:
    """The offers of all jobs that were admitted, by id; `fold` alone changes it.

    `cleared` says that this log's bids are cleared together.
    """

    jobs: dict[str, JobOffers] = field(default_factory=dict)
    offerings: dict[str, Offering] = field(default_factory=dict)
    opened: SlotOpened | None = None
    live: dict[str, None] = field(default_factory=dict)
    closed: deque[str] = field(default_factory=deque)
    order: list[str] = field(default_factory=list)
    finishing: list[str] = field(default_factory=list)
    cleared: bool = False
    refused: set[tuple[str, CapacityType]] = field(default_factory=set)
    caps: dict[tuple[str, CapacityType], int] = field(default_factory=dict)
    stock: dict[str, deque[int]] = field(default_factory=dict)

    def fold(self, event: Event) -> None:
        """Apply an event; those that say nothing of offers change nothing."""
        if type(event) not in _TAKEN:
            return
        match event:
            case MarketOpened():
                self.offerings = {offering.offering_id: offering for offering in event.offerings}
            case SlotOpened():
                if self.opened is None or event.slot > self.opened.slot:
                    self._open(event)
            case JobSubmitted():
                counts = event.job.allowed_counts
                self.jobs.setdefault(event.job.job_id, JobOffers(allowed_counts=counts))
            case JobAdmitted() if event.job_id in self.jobs and self.opened is not None:
                offers = self.jobs[event.job_id]
                offers.home, offers.homes = event.offering_id, (event.offering_id,)
                offers.first_slot, offers.deadline_slot = event.slot, event.deadline_slot
                offers.first_slot_start_ns = self.opened.ts_event_ns
                self.live[event.job_id] = None
            case AllocationDecided() if event.job_id in self.live:
                self._decide(event)
            case LaunchRefused() if self._is_open(event.slot):
                self._refuse(event)
            case CapacityReported() if self._is_open(event.slot):
                self._report(event)
            case JobClosed() if event.job_id in self.jobs:
                self._close(event)
            case _:
                pass

    def _is_open(self, slot: int) -> bool:
        return self.opened is not None and self.opened.slot == slot

    def _open(self, event: SlotOpened) -> None:
        self._record()
        self.opened = event
        self.order, self.finishing = [], []
        self.refused.clear()
        self.caps.clear()
        for slot_quote in event.quotes:
            count = slot_quote.quote.on_demand_available
            stock = self.stock.setdefault(slot_quote.quote.offering_id, deque(maxlen=STOCK_SLOTS))
            stock.append(count.instances if count.known else UNCOUNTED)

    def _decide(self, event: AllocationDecided) -> None:
        offers = self.jobs[event.job_id]
        offers.target = event.lots
        self.cleared = self.cleared or event.cleared
        if event.lots and event.lots[0].offering_id != offers.home:
            offers.home = event.lots[0].offering_id
            if offers.home not in offers.homes:
                offers.homes = (*offers.homes, offers.home)
        if event.revision or event.reason is DecisionReason.RETRYING:
            return
        served = self.finishing if event.reason is DecisionReason.FINISHING else self.order
        served.append(event.job_id)

    def _refuse(self, event: LaunchRefused) -> None:
        if event.limit_scope in (FreezeScope.JOB, FreezeScope.TENANT):
            return
        self.refused.add((event.offering_id, event.capacity_type))
        of_cloud = event.limit_scope is None and event.capacity_type is CapacityType.ON_DEMAND
        if of_cloud and event.offering_id in self.stock:
            self.stock[event.offering_id][-1] = 0

    def _report(self, event: CapacityReported) -> None:
        refused, self.refused = self.refused, set()
        if event.settled or self.opened is None or event.offset_s >= self.opened.slot_s:
            return
        held = dict.fromkeys((*refused, *self.caps), 0)
        for holding in event.holdings if held else ():
            for lot in holding.lots if holding.job_id in self.jobs else ():
                for kind, count in (
                    (CapacityType.SPOT, lot.spot),
                    (CapacityType.ON_DEMAND, lot.on_demand),
                ):
                    if (lot.offering_id, kind) in held:
                        held[lot.offering_id, kind] += count
        # What turned up since a refusal is there in spite of it.
        for key, count in held.items():
            self.caps[key] = count if key in refused else max(count, self.caps[key])

    def _close(self, event: JobClosed) -> None:
        offers = self.jobs[event.job_id]
        offers.over, offers.target = True, ()
        self.closed.append(event.job_id)
        if len(self.closed) > MOST_CLOSED:
            oldest = self.closed.popleft()
            self.jobs.pop(oldest, None)
            self.live.pop(oldest, None)

    def _record(self) -> None:
        """Keep what the slot that is over offered, for all jobs that it is still to be known of."""
        if self.opened is None or not self.live:
            return
        quotes = {quoted.quote.offering_id: quoted.quote for quoted in self.opened.quotes}
        residual = self._residual(self.opened)
        offered = (self._beside if self.cleared else self._after)(residual, quotes)
        for job_id in tuple(self.live):
            offers = self.jobs[job_id]
            # Feedback comes when a job is over and its deadline has passed: nothing is kept after.
            if offers.over and self.opened.slot > offers.deadline_slot:
                del self.live[job_id]
                continue
            quote = quotes.get(offers.home)
            if quote is None:
                continue
            spot, on_demand = offered.get(job_id) or _left(residual, offers.home)
            prices = (quote.spot_price_micro_usd, quote.on_demand_price_micro_usd)
            offers.rows.extend((*prices, spot, on_demand, *self._stock_terms(offers, self.opened)))

    def _after(
        self, residual: ResidualCapacity, quoted: Collection[str]
    ) -> dict[str, tuple[int, int]]:
        """What each job was offered after those that were served before it; takes what they took."""
        before: dict[str, tuple[int, int]] = {}
        for job_id in (*sorted(self.finishing), *self.order):
            offers = self.jobs.get(job_id)
            if offers is not None and offers.home in quoted:
                before[job_id] = _left(residual, offers.home)
                residual.take_what_is_left(offers.target)
        return before

    def _beside(
        self, residual: ResidualCapacity, quoted: Collection[str]
    ) -> dict[str, tuple[int, int]]:
        """What each job could have had beside all others; takes what all took."""
        taken: dict[str, tuple[int, int]] = {}
        for job_id in sorted(self.live):
            offers = self.jobs[job_id]
            if offers.target and offers.home in quoted:
                spot, on_demand = _left(residual, offers.home)
                residual.take_what_is_left(offers.target)
                left = _left(residual, offers.home)
                taken[job_id] = (spot - left[0], on_demand - left[1])
        beside = {}
        for job_id, own in taken.items():
            spot, on_demand = _left(residual, self.jobs[job_id].home)
            beside[job_id] = (spot + own[0], on_demand + own[1])
        return beside

    def _residual(self, opened: SlotOpened) -> ResidualCapacity:
        residual = ResidualCapacity(opened.quotes)
        for (offering_id, kind), held in self.caps.items():
            spot = kind is CapacityType.SPOT
            residual.cap(offering_id, spot=held if spot else None, on_demand=None if spot else held)
        return residual

    def _stock_terms(self, offers: JobOffers, opened: SlotOpened) -> tuple[int, int]:
        stock = self.stock.get(offers.home, ())
        if min(stock, default=0) >= offers.allowed_counts[-1]:
            return 0, 0
        offering = self.offerings.get(offers.home)
        reservation = None if offering is None else offering.reservation
        until_ns = opened.ts_event_ns + opened.slot_s * NS_PER_S
        if reservation is not None and reservation.instances_until(until_ns) == 0:
            return 0, 0
        return stock_terms(tuple(stock), offers.allowed_counts)


def _left(residual: ResidualCapacity, offering_id: str) -> tuple[int, int]:
    """Spot and on-demand that are left of an offering."""
    return residual.spot(offering_id), residual.on_demand(offering_id)
