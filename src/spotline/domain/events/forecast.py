"""Events of the forecaster: `forecast.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.forecast import ForecastScore, OfferingForecast


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOverdue:
    """No forecast for `slot` came in time; the selector decides without one."""

    slot: int
    waited_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastIssued:
    """The forecast of every offering, issued when `slot` opened."""

    slot: int
    model_id: str
    forecasts: tuple[OfferingForecast, ...]
    scores: tuple[ForecastScore, ...]
