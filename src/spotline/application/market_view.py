"""The market as a service folds it from the log, and as a job submitted now would meet it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.market.offering import Offering
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S

# Slots of the past that planning learns from; with 10-minute slots more than a day.
HISTORY_SLOTS = 192

# A forecast this many slots old still says something; an older one is no forecast.
_STALE_SLOTS = 2


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
    opened: SlotOpened | None = None
    forecast: ForecastIssued | None = None
    history: deque[SlotOpened] = field(default_factory=lambda: deque(maxlen=HISTORY_SLOTS))

    @property
    def now_ns(self) -> int:
        """Market time: when the latest slot opened, before that when the first one will."""
        return self.first_slot_start_ns if self.opened is None else self.opened.ts_event_ns

    def fold(self, event: Event) -> None:
        """Apply an event; those that do not concern the market change nothing."""
        match event:
            case MarketOpened():
                self.offerings = event.offerings
                self.slot_s = event.slot_s
                self.first_slot_start_ns = event.first_slot_start_ns
            case SlotOpened():
                if self.opened is None or event.slot > self.opened.slot:
                    self.opened = event
                    self.history.append(event)
            case ForecastIssued():
                if self.forecast is None or event.slot >= self.forecast.slot:
                    self.forecast = event
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
