"""A quote as a slot shows it."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, CapacityType, Quote


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

    def __post_init__(self) -> None:
        if self.age_s < 0:
            raise ValueError(f"age_s must be >= 0, was {self.age_s}")
        for name in ("quarantined_spot_price_micro_usd", "quarantined_on_demand_price_micro_usd"):
            if not 0 <= getattr(self, name) <= MOST_PRICE_MICRO_USD:
                raise ValueError(
                    f"{name} must lie in 0..{MOST_PRICE_MICRO_USD}, was {getattr(self, name)}"
                )

    def worst_price(self, capacity_type: CapacityType) -> int:
        """The dearest that anybody says an instance-hour costs, believed or not, micro-USD.

        What is held and what limits allow is reckoned with it: a price that is not believed may be
        true all the same.
        """
        if capacity_type is CapacityType.SPOT:
            return max(self.quote.spot_price_micro_usd, self.quarantined_spot_price_micro_usd)
        return max(self.quote.on_demand_price_micro_usd, self.quarantined_on_demand_price_micro_usd)

    @property
    def doubted(self) -> bool:
        """Whether a newer price of it is not believed."""
        return bool(
            self.quarantined_spot_price_micro_usd or self.quarantined_on_demand_price_micro_usd
        )
