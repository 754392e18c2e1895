"""Whether quotes of a live market's feeds may be believed, by what its log says of the past.

Several feeds may quote one offering: the newest quote stands, whoever said it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from spotline.application.market_ingest.handler import IngestState
from spotline.application.market_ingest.opening import (
    NO_SLOT,
    SlotMoment,
    freeze_id,
    frozen,
    quote_events,
)
from spotline.application.market_ingest.vetting import Verdict, Vetted
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingUnfrozen
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.market.grid import floored_ns
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.offering import Quote, check_price
from spotline.domain.units import utc_iso


class LiveVetting:
    """Implements `Vetting` for one feed of a live market, on the state that its log gives.

    Parameters
    ----------
    state
        What the log says by now. What this feed said last may not be in it yet.
    """

    def __init__(self, market: LiveMarket, state: Callable[[], IngestState]) -> None:
        self._slot_s = market.slot_s
        self._offerings = {offering.offering_id: offering for offering in market.offerings}
        self._state = state
        # What this feed has said, and of what its source has said that it says nothing newer.
        self._last: dict[str, Quote] = {}
        self._stale: set[str] = set()
        self._begun: set[str] = set()

    def judge(self, quote: Quote) -> Vetted:
        """Judge a quote; one of an offering that is not traded here is left out."""
        offering = self._offerings.get(quote.offering_id)
        if offering is None or offering.reservation is not None:
            return Vetted(verdict=Verdict.KNOWN)
        try:
            check_price(offering, quote)
        except ValueError as error:
            return Vetted(verdict=Verdict.REFUSED, detail=str(error))
        if not self._is_news(quote):
            return Vetted(verdict=Verdict.KNOWN)
        self._last[quote.offering_id] = quote
        self._stale.discard(quote.offering_id)
        (found,) = self._state().doubts.judge(
            (offering,), (quote,), quote.ts_event_ns, self._slot_s
        )
        doubts = found.judged.doubts
        return Vetted(
            verdict=Verdict.QUARANTINED if doubts else Verdict.RECORDED,
            events=tuple(quote_events(found, None, was_doubted=False)),
            detail="; ".join(doubt.detail for doubt in doubts),
        )

    def answered(self, offering_id: str, at_ns: int) -> tuple[Event, ...]:
        """What to record where the source speaks again of an offering, after it did not answer."""
        named = freeze_id(FreezeReason.STALE_QUOTES, offering_id)
        state = self._state()
        is_silent = offering_id in state.said.silent_since_ns or named in self._begun
        if offering_id in self._stale or not is_silent:
            return ()
        self._begun.discard(named)
        detail = f"its source answers again, {utc_iso(at_ns)}"
        return (BuyingUnfrozen(freeze_id=named, detail=detail, slot=NO_SLOT, ts_event_ns=at_ns),)

    def fell_silent(self, offering_ids: Iterable[str], since_ns: int) -> tuple[Event, ...]:
        """What to record when the source says that it has nothing newer than `since_ns`."""
        known = [each for each in offering_ids if each in self._offerings]
        self._stale.update(known)
        return tuple(self._silences(known, since_ns, "its source has said nothing newer"))

    def unanswered(self, since_ns: int) -> tuple[Event, ...]:
        """What to record when the source has not answered since then.

        It is silent about all that it has quoted; where it never answered, nobody knows what it
        would have quoted, and that is all that nobody has quoted since.
        """
        quoted = sorted(self._last or self._offerings)
        return tuple(self._silences(quoted, since_ns, "its source does not answer"))

    def _silences(self, offering_ids: Iterable[str], since_ns: int, why: str) -> Iterable[Event]:
        state = self._state()
        for offering_id in offering_ids:
            named = freeze_id(FreezeReason.STALE_QUOTES, offering_id)
            said = state.said.latest(offering_id)
            newer = said is not None and said.quote.ts_event_ns > since_ns
            if self._offerings[offering_id].reservation is not None or newer:
                continue
            # One that is frozen for its age would thaw with the next quote that a slot shows.
            if named in self._begun or offering_id in state.said.silent_since_ns:
                continue
            self._begun.add(named)
            detail = f"nothing was said of {offering_id} since {utc_iso(since_ns)}: {why}"
            moment = SlotMoment(slot=NO_SLOT, ts_event_ns=since_ns)
            yield frozen(offering_id, FreezeReason.STALE_QUOTES, detail, moment)

    def _is_news(self, quote: Quote) -> bool:
        """Whether a quote is newer than all before, and says more than that nothing has changed.

        That nothing has changed is recorded once in a slot, as it keeps a quote young, and where
        it ends a silence.
        """
        said = self._state().said.latest(quote.offering_id)
        known = [
            each
            for each in (None if said is None else said.quote, self._last.get(quote.offering_id))
            if each is not None
        ]
        if not known:
            return True
        last = max(known, key=lambda each: each.ts_event_ns)
        if quote.ts_event_ns < last.ts_event_ns or quote == last:
            return False
        if replace(quote, ts_event_ns=last.ts_event_ns) != last:
            return True
        silent_ns = self._state().said.silent_since_ns.get(quote.offering_id)
        if silent_ns is not None and quote.ts_event_ns > silent_ns:
            return True
        return floored_ns(quote.ts_event_ns, self._slot_s) > floored_ns(
            last.ts_event_ns, self._slot_s
        )
