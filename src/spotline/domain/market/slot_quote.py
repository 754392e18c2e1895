"""A quote as a slot shows it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, CapacityType, Quote, is_reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotQuote:
    """A quote as it stood when a slot opened, and how old it was.

    A newer price that is not believed stands beside it (0: none): nothing is decided by it, but
    what is held and what limits allow is reckoned with the worse of the two. What is listed stands
    beside a price that is this buyer's own (0: it is the listed one).
    """

    quote: Quote
    age_s: int
    quarantined_spot_price_micro_usd: int = 0
    quarantined_on_demand_price_micro_usd: int = 0
    listed_spot_price_micro_usd: int = 0
    listed_on_demand_price_micro_usd: int = 0

    def __post_init__(self) -> None:
        if self.age_s < 0:
            raise ValueError(f"age_s must be >= 0, was {self.age_s}")
        for name in (
            *("quarantined_spot_price_micro_usd", "quarantined_on_demand_price_micro_usd"),
            *("listed_spot_price_micro_usd", "listed_on_demand_price_micro_usd"),
        ):
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
    def listed(self) -> Quote:
        """The quote with the prices that everybody pays; of a reservation nobody pays any."""
        if is_reserved(self.quote):
            paid = self.quote.on_demand_price_micro_usd
            return replace(self.quote, on_demand_price_micro_usd=0) if paid else self.quote
        spot, on_demand = self.listed_spot_price_micro_usd, self.listed_on_demand_price_micro_usd
        if not (spot or on_demand):
            return self.quote
        return replace(
            self.quote,
            spot_price_micro_usd=spot or self.quote.spot_price_micro_usd,
            on_demand_price_micro_usd=on_demand or self.quote.on_demand_price_micro_usd,
        )

    @property
    def as_listed(self) -> SlotQuote:
        """The same at the prices that everybody pays: what these are judged by."""
        listed = self.listed
        if listed is self.quote:
            return self
        return replace(
            self,
            quote=listed,
            listed_spot_price_micro_usd=0,
            listed_on_demand_price_micro_usd=0,
        )

    @property
    def unquoted(self) -> bool:
        """Whether nobody has ever said a price of it: what stands is in doubt, nothing beside it."""
        quote = self.quote
        return (
            quote.spot_price_micro_usd == self.quarantined_spot_price_micro_usd
            and quote.on_demand_price_micro_usd == self.quarantined_on_demand_price_micro_usd
        )

    @property
    def doubted(self) -> bool:
        """Whether a newer price of it is not believed."""
        return bool(
            self.quarantined_spot_price_micro_usd or self.quarantined_on_demand_price_micro_usd
        )
