"""What of a market is doubted, offering by offering: prices that are not believed, and old quotes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spotline.domain.limits.price_sanity import BelievedPrices, JudgedQuote, SanityRule, as_said
from spotline.domain.limits.quote_age import AgeRule, QuotePace
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtRules:
    """What is believed, and for how long; None: whatever is said, and for ever."""

    price: SanityRule | None = None
    age: AgeRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingJudged:
    """What stands for an offering in a slot, and what is doubted of it.

    `stale_after_s` is how old its latest quote may be where it is older, else 0. `outdated` says
    that what stands for a doubted price is too old to buy spot by.
    """

    offering: Offering
    judged: JudgedQuote
    stale_after_s: int = 0
    outdated: bool = False


@dataclass(slots=True)
class _Known:
    prices: BelievedPrices = field(default_factory=BelievedPrices)
    pace: QuotePace = field(default_factory=QuotePace)


@dataclass(slots=True)
class MarketDoubts:
    """What was believed of each offering: a fold over slots and doubted quotes.

    `judge` changes nothing.
    """

    rules: DoubtRules = field(default_factory=DoubtRules)
    _known: dict[str, _Known] = field(default_factory=dict)

    def judge(
        self, offerings: Sequence[Offering], quotes: Sequence[Quote], at_ns: int, slot_s: int
    ) -> tuple[OfferingJudged, ...]:
        """Judge the latest quotes, one per offering and in their order, when a slot opens."""
        rules, found = self.rules, []
        for offering, quote in zip(offerings, quotes, strict=True):
            known = self._known.get(offering.offering_id) or _Known()
            judged = (
                as_said(quote, at_ns)
                if rules.price is None
                else known.prices.judge(offering, quote, at_ns, rules.price)
            )
            stale_after_s = 0
            # What is paid for already costs nothing more, however old its quote is.
            if rules.age is not None and offering.reservation is None:
                limit_s = known.pace.limit_s(slot_s, rules.age)
                if at_ns - quote.ts_event_ns > limit_s * NS_PER_S:
                    stale_after_s = limit_s
            found.append(
                OfferingJudged(
                    offering=offering,
                    judged=judged,
                    stale_after_s=stale_after_s,
                    outdated=rules.price is not None and known.prices.outdated(judged, rules.price),
                )
            )
        return tuple(found)

    def doubted(self, offering_id: str) -> bool:
        """Whether a price of it was doubted when the last slot opened."""
        known = self._known.get(offering_id)
        return known is not None and known.prices.last is not None and known.prices.last.doubted

    def note_doubt(self, quote: Quote, name: str) -> None:
        """Take in that a quote's field of this name was doubted."""
        known = self._known.setdefault(quote.offering_id, _Known())
        if self.rules.price is not None:
            known.prices.note_doubt(quote, name)
        if self.rules.age is not None:
            known.pace.note(quote.ts_event_ns, self.rules.age)

    def note_slot(self, quotes: Sequence[SlotQuote], at_ns: int) -> None:
        """Take in what stood when a slot opened."""
        rules = self.rules
        if rules.price is None and rules.age is None:
            return
        for stood in quotes:
            known = self._known.setdefault(stood.quote.offering_id, _Known())
            if rules.price is not None:
                known.prices.note_slot(stood, at_ns, rules.price)
            if rules.age is not None and not stood.doubted:
                known.pace.note(stood.quote.ts_event_ns, rules.age)
