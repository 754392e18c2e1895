"""The baseline: prices and counts stay what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import certain
from spotline.domain.forecasting.prepared import PreparedForecaster, offering_forecast
from spotline.domain.market.forecast import OfferingForecast
from spotline.domain.market.offering import Quote


@dataclass(slots=True, kw_only=True)
class PersistenceModel:
    """The last known count of every offering."""

    horizon_slots: int
    last: dict[str, int] = field(default_factory=dict)

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Remember the counts that are known."""
        for offering_id, quote in quotes.items():
            if quote.spot_available.known:
                self.last[offering_id] = quote.spot_available.instances

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Forecast what is."""
        steps = self.horizon_slots
        return tuple(
            offering_forecast(
                offering_id,
                quote,
                self.last.get(offering_id),
                (quote.spot_price_micro_usd,) * steps,
                (certain(self.last.get(offering_id, 0)),) * steps,
            )
            for offering_id, quote in quotes.items()
        )

    def forget(self, offering_id: str) -> None:
        """There is no past to forget."""


class PersistenceForecaster(
    PreparedForecaster, name="persistence", model=PersistenceModel, versions={"format": "2"}
):
    """Forecasts the last price and, with certainty, the last known count."""

    model_id = "persistence-1"
