"""Whether a quote of a live feed may be believed, before it is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from spotline.application.market_ingest.opening import (
    NO_SLOT,
    SlotMoment,
    freeze_events,
    freeze_id,
    frozen,
    quote_events,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingUnfrozen
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.limits.market_doubts import OfferingJudged
from spotline.domain.limits.price_sanity import BelievedPrices, SanityRule
from spotline.domain.market.offering import Offering, Quote, check_price
from spotline.domain.units import utc_iso


class Verdict(Enum):
    """What becomes of a quote: it is believed, known already, doubted, or refused outright."""

    RECORDED = "recorded"
    KNOWN = "known"
    QUARANTINED = "quarantined"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vetted:
    """The verdict on a quote, and what to record of it; `detail` names the field and says why."""

    verdict: Verdict
    events: tuple[Event, ...] = ()
    detail: str = ""


class Vetting(Protocol):
    """Judges what one feed says."""

    def judge(self, quote: Quote) -> Vetted:
        """Judge a quote, and remember what is made of it."""
        ...

    def answered(self, offering_id: str, at_ns: int) -> tuple[Event, ...]:
        """What to record when the feed speaks of an offering, at a moment of market time."""
        ...

    def fell_silent(self, offering_ids: Iterable[str], since_ns: int) -> tuple[Event, ...]:
        """What to record when the feed says that it knows nothing newer than `since_ns`."""
        ...

    def unanswered(self, since_ns: int) -> tuple[Event, ...]:
        """What to record when the feed has not answered since then."""
        ...


@dataclass(slots=True)
class QuoteVetting:
    """Implements `Vetting` for a feed without a log: quotes which may come twice and in any order.

    `offerings` are by id. `last` is the latest quote of each, believed or not. Prices are judged as
    those of slots are (`SanityRule`), each quote as a slot of its own. Doubts and silences freeze
    new spot of their offering until they are over.
    """

    offerings: Mapping[str, Offering]
    rule: SanityRule = field(default_factory=SanityRule)
    last: dict[str, Quote] = field(default_factory=dict)
    _believed: dict[str, BelievedPrices] = field(default_factory=dict)
    _frozen: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, offerings: Iterable[Offering], rule: SanityRule | None = None) -> QuoteVetting:
        """Start with nothing recorded."""
        known = {offering.offering_id: offering for offering in offerings}
        return cls(known, rule or SanityRule())

    def judge(self, quote: Quote) -> Vetted:
        """Judge a quote, and remember what is made of it."""
        offering = self.offerings.get(quote.offering_id)
        if offering is None:
            return _refused(f"offering_id must be one of the feed's, was {quote.offering_id!r}")
        try:
            check_price(offering, quote)
        except ValueError as error:
            return _refused(str(error))
        last = self.last.get(quote.offering_id)
        if last is not None and (quote == last or quote.ts_event_ns < last.ts_event_ns):
            return Vetted(verdict=Verdict.KNOWN)
        return self._take(offering, quote)

    def fell_silent(self, offering_ids: Iterable[str], since_ns: int) -> tuple[Event, ...]:
        """What to record when a feed says nothing of offerings that is newer than `since_ns`."""
        events = []
        for offering_id in offering_ids:
            named = freeze_id(FreezeReason.STALE_QUOTES, offering_id)
            if offering_id in self.offerings and named not in self._frozen:
                self._frozen.add(named)
                detail = f"nothing was said of {offering_id} since {utc_iso(since_ns)}"
                moment = SlotMoment(slot=NO_SLOT, ts_event_ns=since_ns)
                events.append(frozen(offering_id, FreezeReason.STALE_QUOTES, detail, moment))
        return tuple(events)

    def answered(self, offering_id: str, at_ns: int) -> tuple[Event, ...]:
        """Nothing: a silence ends with a newer quote."""
        return ()

    def unanswered(self, since_ns: int) -> tuple[Event, ...]:
        """What to record when a feed has not answered since then: it is silent of everything."""
        return self.fell_silent(sorted(self.offerings), since_ns)

    def _take(self, offering: Offering, quote: Quote) -> Vetted:
        prices, at_ns = self._prices(quote.offering_id), quote.ts_event_ns
        judged = prices.judge(offering, quote, at_ns, self.rule)
        found = OfferingJudged(
            offering=offering, judged=judged, outdated=prices.outdated(judged, self.rule)
        )
        was_doubted = prices.last is not None and prices.last.doubted
        said = tuple(quote_events(found, self.last.get(quote.offering_id), was_doubted))
        for doubt in judged.doubts:
            prices.note_doubt(quote, doubt.field.value)
        prices.note_slot(judged.stands, at_ns, self.rule)
        self.last[quote.offering_id] = quote
        return Vetted(
            verdict=Verdict.QUARANTINED if judged.doubts else Verdict.RECORDED,
            events=(*said, *self._freezes(found, at_ns)),
            detail="; ".join(doubt.detail for doubt in judged.doubts),
        )

    def _freezes(self, found: OfferingJudged, at_ns: int) -> tuple[Event, ...]:
        moment = SlotMoment(slot=NO_SLOT, ts_event_ns=at_ns)
        events = tuple(freeze_events((found,), self._frozen, moment))
        for event in events:
            if isinstance(event, BuyingUnfrozen):
                self._frozen.discard(event.freeze_id)
            else:
                self._frozen.add(event.freeze.freeze_id)
        return events

    def _prices(self, offering_id: str) -> BelievedPrices:
        return self._believed.setdefault(offering_id, BelievedPrices())


def _refused(detail: str) -> Vetted:
    return Vetted(verdict=Verdict.REFUSED, detail=detail)
