"""How often each count has been seen lately, whatever the present one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import quantised
from spotline.domain.forecasting.prepared import PreparedForecaster, offering_forecast
from spotline.domain.market.forecast import OfferingForecast
from spotline.domain.market.offering import Quote

_MEMORY = 0.994  # about three and a half days of half-hours
_FORGOTTEN = 0.25  # what is left of the past after drift
_NEGLIGIBLE = 1e-4


@dataclass(slots=True, kw_only=True)
class _Histogram:
    """Decayed weight of every count seen."""

    last: int
    weight: dict[int, float] = field(default_factory=dict)

    def learn(self, count: int) -> None:
        kept = {c: w * _MEMORY for c, w in self.weight.items() if w > _NEGLIGIBLE}
        kept[count] = kept.get(count, 0.0) + 1.0
        self.weight = kept
        self.last = count


@dataclass(slots=True, kw_only=True)
class ClimatologyModel:
    """One histogram per offering."""

    horizon_slots: int
    histograms: dict[str, _Histogram] = field(default_factory=dict)

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Count what is known."""
        for offering_id, quote in quotes.items():
            if quote.spot_available.known:
                count = quote.spot_available.instances
                self.histograms.setdefault(offering_id, _Histogram(last=count)).learn(count)

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Forecast the histogram at every step, and the price as it is."""
        steps = self.horizon_slots
        forecasts = []
        for offering_id, quote in quotes.items():
            known = self.histograms.get(offering_id)
            counts = quantised(known.weight.items()) if known is not None else ()
            forecasts.append(
                offering_forecast(
                    offering_id,
                    quote,
                    known.last if known is not None else None,
                    (quote.spot_price_micro_usd,) * steps,
                    (counts,) * steps,
                )
            )
        return tuple(forecasts)

    def forget(self, offering_id: str) -> None:
        """Let the present count for more."""
        known = self.histograms.get(offering_id)
        if known is not None:
            known.weight = {c: w * _FORGOTTEN for c, w in known.weight.items()}


class ClimatologyForecaster(
    PreparedForecaster, name="climatology", model=ClimatologyModel, versions={"format": "1"}
):
    """Forecasts the recent distribution of counts, and the last price."""

    model_id = "climatology-1"
