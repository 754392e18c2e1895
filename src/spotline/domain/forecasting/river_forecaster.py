"""River's online models, weighted against simpler ones by their errors.

`river_counts.py` says how availability is forecast, `river_prices.py` how prices are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from river.__version__ import __version__ as river_version

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import certain
from spotline.domain.forecasting.prepared import PreparedForecaster, offering_forecast
from spotline.domain.forecasting.river_counts import CountModel
from spotline.domain.forecasting.river_prices import PriceModel
from spotline.domain.market.forecast import CountProbability, OfferingForecast
from spotline.domain.market.offering import Quote
from spotline.domain.units import NS_PER_S, S_PER_HOUR

_VERSIONS = {"format": "2", "river": river_version}


def _season(ts_ns: int) -> tuple[float, float]:
    """Sine and cosine of the hour of day (UTC)."""
    turn = 2.0 * math.pi * ((ts_ns // NS_PER_S) % (24 * S_PER_HOUR)) / (24 * S_PER_HOUR)
    return math.sin(turn), math.cos(turn)


@dataclass(slots=True)
class _OfferingModel:
    price: PriceModel
    count: CountModel

    @property
    def fraction(self) -> float:
        """Present count as a share of the greatest, 0.5 where nothing is known."""
        if self.count.last is None or self.count.greatest == 0:
            return 0.5
        return self.count.last / self.count.greatest


@dataclass(slots=True, kw_only=True)
class RiverModel:
    """Price and count models of every offering."""

    horizon_slots: int
    offerings: dict[str, _OfferingModel] = field(default_factory=dict)

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Label and train what matures in this slot."""
        season = _season(opened.ts_event_ns)
        for offering_id, quote in quotes.items():
            if offering_id not in self.offerings:
                self.offerings[offering_id] = _OfferingModel(
                    PriceModel.fresh(self.horizon_slots),
                    CountModel(horizon_slots=self.horizon_slots),
                )
            model = self.offerings[offering_id]
            model.price.learn(opened.slot, quote.spot_price_micro_usd)
            if quote.spot_available.known:
                model.count.learn(opened.slot, quote.spot_available.instances, season)

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Forecast every offering, each in the light of the others."""
        season = _season(opened.ts_event_ns)
        slot_ns = opened.slot_s * NS_PER_S
        seasons = [
            _season(opened.ts_event_ns + step * slot_ns)
            for step in range(1, self.horizon_slots + 1)
        ]
        forecasts = []
        for offering_id, quote in quotes.items():
            model = self.offerings[offering_id]
            prices = model.price.issue(opened.slot, season, quote.spot_price_micro_usd)
            counts: Sequence[tuple[CountProbability, ...]] = ()
            if quote.spot_available.known:
                counts = self._counts(offering_id, opened.slot, seasons, quotes)
            forecasts.append(
                offering_forecast(offering_id, quote, model.count.last, prices, counts)
            )
        return tuple(forecasts)

    def _counts(
        self,
        offering_id: str,
        slot: int,
        seasons: Sequence[tuple[float, float]],
        quotes: Mapping[str, Quote],
    ) -> Sequence[tuple[CountProbability, ...]]:
        count = self.offerings[offering_id].count
        if count.greatest == 0:
            return (certain(0),) * self.horizon_slots
        others = [self.offerings[i].fraction for i in quotes if i != offering_id]
        elsewhere = sum(others) / len(others) - 0.5 if others else 0.0
        return count.issue(slot, seasons, elsewhere)

    def forget(self, offering_id: str) -> None:
        """Let frequencies and weights of the offering follow the latest slots."""
        if offering_id in self.offerings:
            self.offerings[offering_id].count.forget()


class RiverForecaster(PreparedForecaster, name="river", model=RiverModel, versions=_VERSIONS):
    """River models per offering, updated one slot at a time."""

    model_id = f"river-2/{river_version}"
