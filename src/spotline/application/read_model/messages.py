"""What is asked of the read model and answered, as frozen values.

Money is micro-USD, times nanoseconds since the epoch, of the market unless named otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotline.application.allocator.happenings import JobHappening
from spotline.application.board.messages import JobFlag, JobPhase, JobView
from spotline.application.market_view import ClockReading, MarketStatus
from spotline.application.paging import PagedQuery
from spotline.domain.market.offering import Offering
from spotline.domain.market.slot_quote import SlotQuote

MOST_EVENTS_A_PAGE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewQuery(PagedQuery):
    """Which jobs, ordered by id: of one tenant, in one phase, with one flag; a page at a time."""

    tenant: str = ""
    phase: JobPhase | None = None
    flag: JobFlag | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HappeningQuery:
    """What happened to a job after a place in the log, `most` of it (0: as much as is given).

    With a `tenant` there are no jobs but its own.
    """

    after_seq: int = 0
    most: int = 0
    tenant: str = ""

    @property
    def size(self) -> int:
        """How many are given at most, but that those of one place come together."""
        return min(self.most or MOST_EVENTS_A_PAGE, MOST_EVENTS_A_PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HappeningPage:
    """What happened to a job, oldest first; `next_after_seq` is 0 where that is all."""

    happenings: tuple[JobHappening, ...]
    next_after_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketBoard:
    """The market: whether it goes on, and what is sold at the quotes of the open slot."""

    status: MarketStatus
    offerings: tuple[Offering, ...]
    quotes: tuple[SlotQuote, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogPlace:
    """A place in the log: an entry, and which change of it, counted from 1 (0: before the first)."""

    seq: int
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """Something has changed, `change` being the kind of the event.

    Of a job its new view, and in words what happened where people are told of it; of the market
    (a slot opened) neither.
    """

    place: LogPlace
    change: str
    job_id: str = ""
    tenant: str = ""
    ts_event_ns: int = 0
    text: str = ""
    view: JobView | None = None
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """Which changes: of one job, of one tenant, or all; after a place (None: from now on)."""

    job_id: str = ""
    tenant: str = ""
    after: LogPlace | None = None
