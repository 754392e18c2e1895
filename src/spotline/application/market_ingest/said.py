"""What the feeds of a live market have said of each offering: a fold over its log."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.domain.market.offering import Quote
from spotline.domain.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidQuote:
    """A quote as it came, and whether a price of it was doubted when it was recorded."""

    quote: Quote
    doubted: bool = False


@dataclass(slots=True, kw_only=True)
class SaidQuotes:
    """What a slot may show: the latest quote that is not newer than its opening.

    Slots that nobody opened open later, with what was known then; so beside what the open slot
    shows the last quote of every slot since is kept, and nothing else.

    Parameters
    ----------
    start_ns, slot_s
        The market's grid: ns since the epoch, seconds.
    silent_since_ns
        By offering that a source has said to be silent: when it was quoted last.
    """

    start_ns: int = 0
    slot_s: int = 1
    silent_since_ns: dict[str, int] = field(default_factory=dict)
    # By offering, times ascending; no two first show in the same slot.
    _quotes: dict[str, list[SaidQuote]] = field(default_factory=dict)

    def note(self, quote: Quote, *, doubted: bool = False) -> None:
        """Take in a quote; of those that the same slot would show first, the latest stays."""
        kept = self._quotes.setdefault(quote.offering_id, [])
        at = len(kept)
        while at and kept[at - 1].quote.ts_event_ns > quote.ts_event_ns:
            at -= 1
        slot = self._first_shown(quote)
        if at < len(kept) and self._first_shown(kept[at].quote) == slot:
            return
        if at and self._first_shown(kept[at - 1].quote) == slot:
            at -= 1
            kept.pop(at)
        kept.insert(at, SaidQuote(quote=quote, doubted=doubted))

    def note_silence(self, offering_id: str, since_ns: int) -> None:
        """Take in that a source says nothing newer of an offering."""
        self.silent_since_ns[offering_id] = since_ns

    def end_silence(self, offering_id: str) -> None:
        """Take in that an offering is spoken of again."""
        self.silent_since_ns.pop(offering_id, None)

    def note_slot(self, at_ns: int) -> None:
        """Take in that a slot opened: what only slots before it would show is forgotten."""
        for kept in self._quotes.values():
            while len(kept) > 1 and kept[1].quote.ts_event_ns <= at_ns:
                kept.pop(0)

    def at(self, offering_id: str, at_ns: int) -> SaidQuote | None:
        """What was said last by then, None for nothing."""
        found = None
        for said in self._quotes.get(offering_id, ()):
            if said.quote.ts_event_ns > at_ns:
                break
            found = said
        return found

    def first(self, offering_id: str) -> SaidQuote | None:
        """The oldest that is kept, None where nothing was ever said."""
        kept = self._quotes.get(offering_id)
        return kept[0] if kept else None

    def latest(self, offering_id: str) -> SaidQuote | None:
        """What was said last, None where nothing was ever said."""
        kept = self._quotes.get(offering_id)
        return kept[-1] if kept else None

    def silent(self, offering_id: str, at_ns: int) -> bool:
        """Whether a source fell silent about an offering, and it was not quoted since."""
        since_ns = self.silent_since_ns.get(offering_id)
        if since_ns is None:
            return False
        said = self.at(offering_id, at_ns)
        return said is None or said.quote.ts_event_ns <= since_ns

    def _first_shown(self, quote: Quote) -> int:
        """The first slot that may show a quote: the one that opens when it is taken, or the next."""
        passed_ns = quote.ts_event_ns - self.start_ns
        return max(0, -(-passed_ns // (self.slot_s * NS_PER_S)))
