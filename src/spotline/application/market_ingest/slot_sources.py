"""Where the quotes of a slot come from: a recorded market, or what feeds have said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from spotline.application.market_ingest.opening import NO_SLOT, quote_events
from spotline.application.market_ingest.said import SaidQuote, SaidQuotes
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import QuoteObserved, SlotOpened
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.limits.market_doubts import MarketDoubts, OfferingJudged
from spotline.domain.limits.price_sanity import JudgedQuote, SanityRule
from spotline.domain.market.grid import AnyMarket, ends_ns, opens_ns
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.offering import (
    MOST_PRICE_MICRO_USD,
    Count,
    Offering,
    Provenance,
    Quote,
)
from spotline.domain.market.reservations import reserved_quote
from spotline.domain.market.slot_quote import SlotQuote

FIRST_QUOTES_S = 60.0
"""How long the first slot of a live market waits for offerings that were never quoted, wall time."""

_NOTHING = Count(instances=0, provenance=Provenance.INFERRED)


class SlotSource(Protocol):
    """The market's half of opening slots."""

    @property
    def market(self) -> AnyMarket:
        """What is traded, on which grid."""
        ...

    @property
    def slots(self) -> int | None:
        """How many slots there are, None where nobody knows the end."""
        ...

    @property
    def ends_ns(self) -> int:
        """When the last slot ends, 0 where nobody knows."""
        ...

    def said(self) -> SaidQuotes:
        """Nothing said so far."""
        ...

    def fold(self, said: SaidQuotes, event: Event) -> None:
        """Follow what was said."""
        ...

    def judged(
        self, slot: int, said: SaidQuotes, doubts: MarketDoubts
    ) -> tuple[OfferingJudged, ...]:
        """What stands in a slot, offering by offering."""
        ...

    def told(
        self, slot: int, found: Sequence[OfferingJudged], said: SaidQuotes, doubts: MarketDoubts
    ) -> Iterator[Event]:
        """What is new in the quotes of a slot, to be recorded before it opens."""
        ...

    def not_before_ns(self, slot: int) -> int:
        """The wall time before which a slot does not open by time."""
        ...

    def waits_s(self, slot: int, said: SaidQuotes) -> float:
        """How long a slot waits whatever time it is, seconds of wall time."""
        ...


class RecordedQuotes:
    """Implements `SlotSource` on a recorded or generated market: all its quotes are known."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.slots = market.slots
        self.ends_ns = ends_ns(market)

    def said(self) -> SaidQuotes:
        """Nothing, and it stays so."""
        return SaidQuotes()

    def fold(self, said: SaidQuotes, event: Event) -> None:
        """Nothing: nobody says anything beside the market."""

    def judged(
        self, slot: int, said: SaidQuotes, doubts: MarketDoubts
    ) -> tuple[OfferingJudged, ...]:
        """The market's quotes, judged."""
        market = self.market
        return doubts.judge(
            market.offerings, market.quotes(slot), opens_ns(market, slot), market.slot_s
        )

    def told(
        self, slot: int, found: Sequence[OfferingJudged], said: SaidQuotes, doubts: MarketDoubts
    ) -> Iterator[Event]:
        """Each quote that differs from the slot before."""
        before = self.market.quotes(slot - 1) if slot else ()
        known = {quote.offering_id: quote for quote in before}
        for each in found:
            offering_id = each.offering.offering_id
            yield from quote_events(each, known.get(offering_id), doubts.doubted(offering_id))

    def not_before_ns(self, slot: int) -> int:
        """Its opening: market time is wall time."""
        return opens_ns(self.market, slot)

    def waits_s(self, slot: int, said: SaidQuotes) -> float:
        """None does."""
        return 0.0


class LiveQuotes:
    """Implements `SlotSource` on what the log holds of feeds.

    An offering that was never quoted stands with no instances at the dearest first price that would
    be believed, in doubt: nothing is bought for it and nothing learnt from it. A reservation is
    known without a feed. The first slot may open in its middle: it shows what is quoted then.
    """

    slots = None
    ends_ns = 0

    def __init__(self, market: LiveMarket, clock: MarketClock, rule: SanityRule | None) -> None:
        self.market = market
        self._clock = clock
        self._dearest_gpu_micro_usd = (rule or SanityRule()).dearest_gpu_micro_usd

    def said(self) -> SaidQuotes:
        """Nothing yet."""
        return SaidQuotes(start_ns=self.market.start_ns, slot_s=self.market.slot_s)

    def fold(self, said: SaidQuotes, event: Event) -> None:
        """Follow what was recorded of feeds, and which of it slots have shown."""
        match event:
            case QuoteObserved():
                said.note(event.quote)
            case QuoteQuarantined():
                said.note(event.quote, doubted=True)
            case SlotOpened():
                said.note_slot(event.ts_event_ns)
            case BuyingFrozen(freeze=freeze) if freeze.reason is FreezeReason.STALE_QUOTES:
                if freeze.slot == NO_SLOT:
                    said.note_silence(freeze.key, freeze.ts_event_ns)
            case BuyingUnfrozen() if not event.by:
                said.end_silence(event.freeze_id.partition(":")[2])
            case _:
                pass

    def judged(
        self, slot: int, said: SaidQuotes, doubts: MarketDoubts
    ) -> tuple[OfferingJudged, ...]:
        """What was said last by the opening of a slot, judged; what nobody said stands in doubt."""
        market, at_ns = self.market, opens_ns(self.market, slot)
        shown = [self._shown(offering, slot, said) for offering in market.offerings]
        quotes = [
            self._unquoted(offering) if quote is None else quote
            for offering, quote in zip(market.offerings, shown, strict=True)
        ]
        found = doubts.judge(market.offerings, quotes, at_ns, market.slot_s)
        return tuple(
            self._in_doubt(each, at_ns)
            if quote is None
            else _silenced(each, at_ns)
            if said.silent(each.offering.offering_id, at_ns)
            else each
            for each, quote in zip(found, shown, strict=True)
        )

    def told(
        self, slot: int, found: Sequence[OfferingJudged], said: SaidQuotes, doubts: MarketDoubts
    ) -> Iterator[Event]:
        """Each quote that is judged otherwise than when it was recorded."""
        for each in found:
            if each.offering.reservation is not None:
                continue
            shown = self._said(each.offering.offering_id, slot, said)
            if shown is not None and shown.doubted is not bool(each.judged.doubts):
                yield from quote_events(each, None, was_doubted=False)

    def not_before_ns(self, slot: int) -> int:
        """The wall time at which market time comes to its opening."""
        return max(0, self._clock.wall_at(opens_ns(self.market, slot)))

    def waits_s(self, slot: int, said: SaidQuotes) -> float:
        """The first one does, until every offering is quoted once, but not for long."""
        if slot:
            return 0.0
        unsaid = any(
            offering.reservation is None and said.first(offering.offering_id) is None
            for offering in self.market.offerings
        )
        if not unsaid:
            return 0.0
        return min(FIRST_QUOTES_S, self.market.slot_s / self._clock.market_s_per_s)

    def _said(self, offering_id: str, slot: int, said: SaidQuotes) -> SaidQuote | None:
        at_ns = opens_ns(self.market, slot)
        found = said.at(offering_id, at_ns)
        if found is None and slot == 0 and (first := said.first(offering_id)) is not None:
            quote = replace(first.quote, ts_event_ns=min(first.quote.ts_event_ns, at_ns))
            return replace(first, quote=quote)
        return found

    def _shown(self, offering: Offering, slot: int, said: SaidQuotes) -> Quote | None:
        if offering.reservation is not None:
            market = self.market
            return reserved_quote(offering, opens_ns(market, slot), market.slot_s)
        found = self._said(offering.offering_id, slot, said)
        return None if found is None else found.quote

    def _unquoted(self, offering: Offering) -> Quote:
        dearest = self._dearest_gpu_micro_usd * offering.gpus_per_instance
        price = min(MOST_PRICE_MICRO_USD, dearest)
        return Quote(
            offering_id=offering.offering_id,
            ts_event_ns=self.market.start_ns,
            spot_price_micro_usd=price,
            on_demand_price_micro_usd=price,
            spot_available=_NOTHING,
            on_demand_available=_NOTHING,
        )

    def _in_doubt(self, each: OfferingJudged, at_ns: int) -> OfferingJudged:
        """What stands where nothing was ever said; there is nothing to judge."""
        quote = self._unquoted(each.offering)
        stands = SlotQuote(
            quote=quote,
            age_s=quote.age_s(at_ns),
            quarantined_spot_price_micro_usd=quote.spot_price_micro_usd,
            quarantined_on_demand_price_micro_usd=quote.on_demand_price_micro_usd,
        )
        return replace(each, judged=JudgedQuote(said=quote, stands=stands), outdated=False)


def _silenced(each: OfferingJudged, at_ns: int) -> OfferingJudged:
    """What a source has fallen silent about is stale, however short its pace would call it."""
    return replace(each, stale_after_s=each.stale_after_s or max(1, each.judged.said.age_s(at_ns)))


def slot_source(
    market: AnyMarket, clock: MarketClock, rule: SanityRule | None = None
) -> SlotSource:
    """Where the quotes of a market come from."""
    if isinstance(market, LiveMarket):
        return LiveQuotes(market, clock, rule)
    return RecordedQuotes(market)
