"""All that the pages are made of, folded to one place in the log.

Every page is a pure function of this value, so that the same place gives the same page, whether the
log goes on behind it or not. A chapter is what one kind of page remembers beyond where jobs stand
now; chapters know nothing of each other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.market_view import ClockReading
from spotline.application.page.applied import Applied
from spotline.application.page.decisions import DecisionsChapter
from spotline.application.page.feed import FeedChapter
from spotline.application.page.fleet import FleetChapter
from spotline.application.page.holdings import HoldingsChapter
from spotline.application.page.laws import LawsChapter
from spotline.application.page.log_tally import TallyChapter
from spotline.application.page.market import MarketChapter
from spotline.application.page.money import MoneyChapter
from spotline.application.page.otherwise import OtherwiseChapter
from spotline.application.page.raw import RawChapter
from spotline.application.page.selection import SelectionChapter
from spotline.application.tenancy import check_tenant
from spotline.application.unfit import Unfit
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.units import NS_PER_S

_MOST_LEFT_OUT = 100


class Chapter(Protocol):
    """What one kind of page remembers; `fold` alone changes it."""

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event; `jobs` has it already."""
        ...


class LeftOutEvent(NamedTuple):
    """An event that a chapter could not take: pages may lack what it said."""

    seq: int
    kind: str
    error: str


@dataclass(slots=True, kw_only=True)
class PageState:
    """The log up to `seq`, stored at `wall_ns`; `applied` counts the events.

    `jobs` is what the allocator and the read model answer from. `left_out` are the last events that
    a chapter could not take. `opened_wall_ns` is when the log
    stored that the open slot opened (0: not known).
    """

    jobs: JobsState = field(default_factory=JobsState)
    feed: FeedChapter = field(default_factory=FeedChapter)
    fleet: FleetChapter = field(default_factory=FleetChapter)
    tally: TallyChapter = field(default_factory=TallyChapter)
    holdings: HoldingsChapter = field(default_factory=HoldingsChapter)
    decisions: DecisionsChapter = field(default_factory=DecisionsChapter)
    raw: RawChapter = field(default_factory=RawChapter)
    money: MoneyChapter = field(default_factory=MoneyChapter)
    otherwise: OtherwiseChapter = field(default_factory=OtherwiseChapter)
    selection: SelectionChapter = field(default_factory=SelectionChapter)
    market: MarketChapter = field(default_factory=MarketChapter)
    laws: LawsChapter = field(default_factory=LawsChapter)
    left_out: deque[LeftOutEvent] = field(default_factory=lambda: deque(maxlen=_MOST_LEFT_OUT))
    seq: int = 0
    wall_ns: int = 0
    opened_wall_ns: int = 0
    applied: int = 0

    @property
    def slot(self) -> int:
        """The open slot, -1 before the first."""
        opened = self.jobs.recent.opened
        return -1 if opened is None else opened.slot

    @property
    def slot_s(self) -> int:
        """Slot length, seconds; 0 before the market opened."""
        return self.jobs.recent.slot_s

    @property
    def now_ns(self) -> int:
        """Market time: when the open slot opened, before the first when it will."""
        return self.jobs.now_ns

    def clock(self) -> ClockReading | None:
        """Market and wall time, None before a market is known."""
        reading = self.jobs.recent.clock()
        return None if reading is None else replace(reading, wall_ns=self.opened_wall_ns)

    def start_ns(self, slot: int) -> int:
        """When a slot opens in market time; 0 before the market opened."""
        recent = self.jobs.recent
        if not recent.slot_s:
            return 0
        return recent.first_slot_start_ns + slot * recent.slot_s * NS_PER_S

    def fold(self, told: Applied) -> None:
        """Apply an event; nothing else changes the state.

        What services refuse to take, and park, is left out here as well.
        """
        event = told.event
        self.seq, self.wall_ns = told.seq, told.wall_ns or self.wall_ns
        self.applied += 1
        try:
            check_tenant(event, self.jobs.tenant_of)
            self.jobs.fold(event)
        except Unfit as unfit:
            self._leave_out(told, unfit)
            return
        if isinstance(event, MarketOpened | SlotOpened):
            self.opened_wall_ns = told.wall_ns
        placed = replace(told, slot=self.slot, market_ns=self._market_ns(event))
        for chapter in self._chapters():
            try:
                chapter.fold(placed, self.jobs)
            except Exception as error:  # noqa: BLE001 - only looked at: told on the page itself
                self._leave_out(told, error)

    def _leave_out(self, told: Applied, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        self.left_out.append(LeftOutEvent(told.seq, told.kind, said))

    def _chapters(self) -> tuple[Chapter, ...]:
        return (
            *(self.feed, self.fleet, self.tally, self.holdings, self.decisions, self.raw),
            *(self.money, self.otherwise, self.selection, self.market, self.laws),
        )

    def _market_ns(self, event: Event) -> int:
        """When an event happened: its own time, or that of its place in its slot."""
        own_ns: int = getattr(event, "ts_event_ns", 0)
        if own_ns:
            return own_ns
        slot = getattr(event, "slot", None)
        if not isinstance(slot, int) or slot < 0:
            return self.now_ns
        return self.start_ns(slot) + int(getattr(event, "offset_s", 0)) * NS_PER_S
