"""Whether a quote from outside may be believed, before it is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from spotline.domain.market.offering import Offering, Quote, check_price
from spotline.domain.units import MICRO_USD_PER_USD

# Above any price of a machine: a wrong unit, not a price.
DEAREST_MICRO_USD = 1_000_000 * MICRO_USD_PER_USD
# A price does not rise or fall like that at once, units do: cents for dollars, micro-USD for USD.
MOST_TIMES = 50
# What is said so often in a row is believed all the same.
BELIEVED_AFTER = 3


class Verdict(Enum):
    """What becomes of a quote: it is recorded, known already, or refused."""

    RECORDED = "recorded"
    KNOWN = "known"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vetted:
    """The verdict on a quote; `detail` says which field was refused and why."""

    verdict: Verdict
    detail: str = ""


@dataclass(slots=True)
class QuoteVetting:
    """Judges the quotes of one feed, which may come twice and in any order.

    `offerings` are by id. Keeps the last quote recorded of each offering, and how often in a row
    one was refused for its jump.
    """

    offerings: Mapping[str, Offering]
    last: dict[str, Quote] = field(default_factory=dict)
    jumps: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, offerings: Iterable[Offering]) -> QuoteVetting:
        """Start with nothing recorded."""
        return cls({offering.offering_id: offering for offering in offerings})

    def judge(self, quote: Quote) -> Vetted:
        """Judge a quote, and remember one that is recorded."""
        offering = self.offerings.get(quote.offering_id)
        if offering is None:
            return _refused(f"offering_id must be one of the feed's, was {quote.offering_id!r}")
        try:
            check_price(offering, quote)
        except ValueError as error:
            return _refused(str(error))
        for name in ("spot_price_micro_usd", "on_demand_price_micro_usd"):
            if getattr(quote, name) > DEAREST_MICRO_USD:
                return _refused(
                    f"{name} must be <= {DEAREST_MICRO_USD}, was {getattr(quote, name)}"
                )
        last = self.last.get(quote.offering_id)
        if last is not None:
            if quote == last or quote.ts_event_ns < last.ts_event_ns:
                return Vetted(verdict=Verdict.KNOWN)
            jump = _jump(last, quote)
            if jump and self.jumps.get(quote.offering_id, 0) + 1 < BELIEVED_AFTER:
                self.jumps[quote.offering_id] = self.jumps.get(quote.offering_id, 0) + 1
                return _refused(jump)
        self.jumps.pop(quote.offering_id, None)
        self.last[quote.offering_id] = quote
        return Vetted(verdict=Verdict.RECORDED)


def _refused(detail: str) -> Vetted:
    return Vetted(verdict=Verdict.REFUSED, detail=detail)


def _jump(last: Quote, quote: Quote) -> str:
    """Which price is too far from the last one, empty where none is."""
    for name in ("spot_price_micro_usd", "on_demand_price_micro_usd"):
        before, now = getattr(last, name), getattr(quote, name)
        if max(before, now) > MOST_TIMES * min(before, now):
            return (
                f"{name} must lie within {MOST_TIMES} times the price before ({before}), was {now}: "
                "is its unit micro-USD per instance-hour?"
            )
    return ""
