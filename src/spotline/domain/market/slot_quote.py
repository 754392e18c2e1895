"""A quote as a slot shows it."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.offering import Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotQuote:
    """A quote as it stood when a slot opened, and how old it was.

    A newer price that is not believed stands beside it (0: none): nothing is decided by it, but
    what is held and what limits allow is reckoned with the worse of the two.
    """

    quote: Quote
    age_s: int
    quarantined_spot_price_micro_usd: int = 0
    quarantined_on_demand_price_micro_usd: int = 0
