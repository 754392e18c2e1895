"""The market as a service folds it from the log, and as a job submitted now would meet it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from spotline.application.slot_checks import check_slot, slot_of
from spotline.domain.events.allocation import ShadowPricesUpdated
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import (
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
    PlacementOutcome,
)
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.market.offering import Offering
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.modes import Mode
from spotline.domain.policies.answer import SpotWorth
from spotline.domain.units import NS_PER_S

# Slots of the past that planning learns from; with 10-minute slots more than a day.
HISTORY_SLOTS = 192

# A forecast this many slots old still says something; an older one is no forecast.
_STALE_SLOTS = 2


class MarketState(Enum):
    """Whether market time goes on."""

    NOT_OPEN = "not_open"
    OPEN = "open"
    WAITING_FOR_WORK = "waiting_for_work"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """Market time: when the open `slot` opened; before the first (-1), when it will.

    `wall_ns` is when the log stored that, in wall time (0: not known). `mode` is how far decisions
    reach; None: a service of before 0.3.0 says it, and is live.
    """

    message_name: ClassVar[str] = "MarketClock"

    market_ns: int
    slot: int
    slot_s: int
    wall_ns: int = 0
    mode: Mode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketStatus:
    """What time it is in the market, and whether that goes on; fields as in `job_service.proto`.

    `quotes` are those of the open slot, or an offering's of the latest slots, oldest first. `shadow_prices`
    are what spot is worth to all jobs beyond its price, where it is scarce. `offerings` are there
    only where they were asked for.
    """

    message_name: ClassVar[str] = "GetMarketResponse"

    state: MarketState
    next_slot_start_ns: int = 0
    ends_ns: int = 0
    source: str = ""
    clock: ClockReading | None = None
    quotes: tuple[SlotQuote, ...] = ()
    shadow_prices: tuple[SpotWorth, ...] = ()
    offerings: tuple[Offering, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketView:
    """The market at one moment, as planning and admission need it.

    `next_slot` is the first that a job submitted now can get. `quotes` are the latest slot's,
    empty before the first; step 1 of `forecast` is `next_slot`. `ended` says that no slot follows.
    """

    offerings: tuple[Offering, ...]
    slot_s: int
    next_slot: int
    next_slot_start_ns: int
    quotes: tuple[SlotQuote, ...]
    forecast: ForecastIssued | None
    history: tuple[SlotOpened, ...]
    ended: bool = False

    @property
    def slot_ns(self) -> int:
        """Slot length, nanoseconds."""
        return self.slot_s * NS_PER_S

    def first_slot(self, job: Job) -> tuple[int, int]:
        """The number of a new job's first slot, and when it opens (ns since the epoch)."""
        waits = max(0, -(-(job.start_ns - self.next_slot_start_ns) // self.slot_ns))
        return self.next_slot + waits, self.next_slot_start_ns + waits * self.slot_ns

    def runnable(self, job: Job) -> tuple[tuple[Offering, Throughput], ...]:
        """The offerings the job can run on, with its throughput there, by offering id."""
        found = []
        for offering in sorted(self.offerings, key=lambda o: o.offering_id):
            throughput = job.throughput_on(offering.offering_id, offering.instance_type)
            if throughput is not None:
                found.append((offering, throughput))
        return tuple(found)


@dataclass(slots=True, kw_only=True)
class MarketFold:
    """The recent market, folded from the log; `fold` alone changes it."""

    offerings: tuple[Offering, ...] = ()
    slot_s: int = 0
    first_slot_start_ns: int = 0
    source: str = ""
    ends_ns: int = 0
    waits_for_work: bool = False
    mode: Mode = Mode.LIVE
    opened: SlotOpened | None = None
    forecast: ForecastIssued | None = None
    shadow_prices: tuple[SpotWorth, ...] = ()
    history: deque[SlotOpened] = field(default_factory=lambda: deque(maxlen=HISTORY_SLOTS))

    @property
    def now_ns(self) -> int:
        """Market time: when the latest slot opened, before that when the first one will."""
        return self.first_slot_start_ns if self.opened is None else self.opened.ts_event_ns

    def clock(self) -> ClockReading | None:
        """Market time, None before a market is known."""
        if not self.slot_s:
            return None
        slot = -1 if self.opened is None else self.opened.slot
        return ClockReading(market_ns=self.now_ns, slot=slot, slot_s=self.slot_s, mode=self.mode)

    def status(self, *, needed: bool) -> MarketStatus:
        """Whether market time goes on; `needed` says whether a job or pipeline needs a slot."""
        clock, opened = self.clock(), self.opened
        if clock is None or opened is None:
            state = MarketState.NOT_OPEN
        elif opened.last:
            state = MarketState.ENDED
        elif self.waits_for_work and not needed:
            state = MarketState.WAITING_FOR_WORK
        else:
            state = MarketState.OPEN
        slot_ns = self.slot_s * NS_PER_S
        ends_ns, next_ns = self.ends_ns, 0 if clock is None else clock.market_ns
        if opened is not None:
            next_ns += slot_ns
        if state is MarketState.ENDED:
            ends_ns, next_ns = ends_ns or next_ns, 0
        return MarketStatus(
            state=state,
            next_slot_start_ns=next_ns,
            ends_ns=ends_ns,
            source=self.source,
            clock=clock,
            quotes=() if opened is None else opened.quotes,
            shadow_prices=self.shadow_prices,
        )

    def quotes_of(self, offering_id: str) -> tuple[SlotQuote, ...]:
        """The quotes of an offering in the latest slots, oldest first."""
        return tuple(
            quoted
            for slot in self.history
            for quoted in slot.quotes
            if quoted.quote.offering_id == offering_id
        )

    def notice_lead_s(self, offering_id: str) -> int | None:
        """The `Offering.notice_lead_s` of an offering, None where it is not known."""
        leads = (o.notice_lead_s for o in self.offerings if o.offering_id == offering_id)
        return next(leads, None)

    def fold(self, event: Event) -> None:
        """Apply an event; those that do not concern the market change nothing."""
        match event:
            case MarketOpened():
                self.offerings = event.offerings
                self.slot_s = event.slot_s
                self.first_slot_start_ns = event.first_slot_start_ns
                self.source = event.source
                self.ends_ns = event.ends_ns
                self.waits_for_work = event.waits_for_work
                self.mode = event.runs_in
            case SlotOpened():
                last_slot, last_ns = slot_of(self.opened)
                if event.slot > last_slot:
                    check_slot(event, last_slot, last_ns)
                    self.opened = event
                    self.mode = event.runs_in
                    self.history.append(event)
            case ForecastIssued():
                if self.forecast is None or event.slot >= self.forecast.slot:
                    self.forecast = event
            case ShadowPricesUpdated():
                self.shadow_prices = event.prices
            case _:
                pass

    def view(self) -> MarketView | None:
        """The market as it stands, None before it opened."""
        if not self.offerings:
            return None
        opened = self.opened
        slot, start_ns = -1, self.first_slot_start_ns - self.slot_s * NS_PER_S
        if opened is not None:
            slot, start_ns = opened.slot, opened.ts_event_ns
        return MarketView(
            offerings=self.offerings,
            slot_s=self.slot_s,
            next_slot=slot + 1,
            next_slot_start_ns=start_ns + self.slot_s * NS_PER_S,
            quotes=() if opened is None else opened.quotes,
            forecast=None if self.forecast is None else _seen_from(self.forecast, slot),
            history=tuple(self.history),
            ended=opened is not None and opened.last,
        )


def _seen_from(forecast: ForecastIssued, slot: int) -> ForecastIssued | None:
    """The forecast with the steps that are still ahead of `slot`; None when too old."""
    lag = slot - forecast.slot
    if not 0 <= lag <= _STALE_SLOTS:
        return None
    if lag == 0:
        return forecast
    return replace(
        forecast,
        slot=slot,
        forecasts=tuple(replace(f, steps=f.steps[lag:]) for f in forecast.forecasts),
    )


# --- who needs it -----------------------------------------------------------------------------

# Who needs market time to go on: jobs and pipelines that are not over, and what follows them.
WORK_EVENTS = (
    JobSubmitted,
    JobAdmitted,
    JobClosed,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
)


_OF_WORK = frozenset(
    {
        *(JobSubmitted, JobAdmitted, JobClosed),
        *(PipelineSubmitted, PlacementDecided, PlacementEnded),
    }
)


@dataclass(slots=True, kw_only=True)
class WorkNeeded:
    """The ids of the jobs and pipelines that are not over.

    Up to `through_slot` slots are needed in any case: the first one, and those in which something
    still follows from a job or a pipeline that is over.
    """

    unfinished: set[str] = field(default_factory=set)
    through_slot: int = 0

    def needs(self, slot: int) -> bool:
        """Whether anybody needs the slot after `slot`."""
        return bool(self.unfinished) or slot < self.through_slot

    def fold(self, event: Event, slot: int) -> None:
        """Apply an event while `slot` is the latest."""
        if type(event) not in _OF_WORK:
            return
        match event:
            case JobSubmitted():
                self.unfinished.add(event.job.job_id)
            case JobAdmitted():
                # The selector learns from a job when its deadline has passed.
                self.through_slot = max(self.through_slot, event.deadline_slot + 1)
            case PipelineSubmitted():
                self.unfinished.add(event.pipeline.job_id)
            case JobClosed():
                self.unfinished.discard(event.job_id)
            case PlacementEnded():
                self.unfinished.discard(event.job_id)
                # The instances that it rented go back with the next slot.
                self.through_slot = max(self.through_slot, slot + 1)
            case PlacementDecided() if event.outcome is PlacementOutcome.REFUSED:
                self.unfinished.discard(event.job_id)
            case _:
                pass


def without_account(offering: Offering) -> Offering:
    """An offering as everybody may see it: not in whose account it is, nor what a reservation costs."""
    reservation = offering.reservation
    if reservation is not None:
        reservation = replace(
            reservation, sunk_price_micro_usd=0, plan="", plan_micro_usd_per_hour=0
        )
    return replace(offering, account="", reservation=reservation)
