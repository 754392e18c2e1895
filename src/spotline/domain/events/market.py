"""Events of the market: `market.proto`. Times are nanoseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.offering import Offering, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOpened:
    """The offerings and the slot grid of a partition; `mode` None, as in logs of before, is live."""

    offerings: tuple[Offering, ...]
    slot_s: int
    first_slot_start_ns: int
    source: str
    ends_ns: int = 0
    waits_for_work: bool = False
    mode: Mode | None = None

    @property
    def runs_in(self) -> Mode:
        """How far decisions of this log reach."""
        return self.mode or Mode.LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteObserved:
    """A new quote of one offering."""

    quote: Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOpened:
    """Slot `slot` opens: every offering's latest quote and its age. `last` ends a replay.

    `mode` is that of `MarketOpened`, for those who follow slots alone. `missed` are the slots before
    this one that were over before anybody opened them: what was held went on through them.
    """

    slot: int
    ts_event_ns: int
    slot_s: int
    quotes: tuple[SlotQuote, ...]
    last: bool = False
    mode: Mode | None = None
    missed: int = 0

    @property
    def runs_in(self) -> Mode:
        """How far decisions of this log reach."""
        return self.mode or Mode.LIVE
