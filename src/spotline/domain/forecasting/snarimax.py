"""River's SNARIMAX for price and count; the distribution is that of its own recent residuals."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from river import linear_model, optim, time_series
from river.__version__ import __version__ as river_version

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import quantised
from spotline.domain.forecasting.prepared import PreparedForecaster, offering_forecast
from spotline.domain.forecasting.river_state import SnarimaxOrders, snarimax
from spotline.domain.market.forecast import CountProbability, OfferingForecast
from spotline.domain.market.offering import Quote
from spotline.domain.units import S_PER_HOUR

_VERSIONS = {"format": "1", "river": river_version}

_DAY_S = 24 * S_PER_HOUR
_RESIDUALS = 96  # two days of half-hours
_FORGOTTEN = 12  # residuals kept after drift
_OUTGROWN = 2.0  # a count this far above the scale starts a new series
_RATE = 0.02
_GREATEST_LOG_MOVE = 2.0
_PRICE_SCALE = 50.0  # usual moves of a log price become comparable to shares


def _regression() -> Any:
    # Without River's usual scaler: scaled residuals of a calm market make the series swing.
    return linear_model.LinearRegression(optim.SGD(_RATE), intercept_lr=_RATE, clip_gradient=1.0)


def _model(orders: SnarimaxOrders) -> Any:
    return time_series.SNARIMAX(
        p=orders.p, d=orders.d, q=orders.q, m=orders.m, sp=orders.sp, regressor=_regression()
    )


@dataclass(slots=True)
class _Series:
    """One SNARIMAX, what it said, and how far off it was, by steps ahead."""

    model: Annotated[Any, snarimax(_model)]
    horizon_slots: int
    slot: int = -1
    last: float = 0.0
    issued: deque[tuple[int, list[float]]] = field(default_factory=deque)
    residuals: list[deque[float]] = field(default_factory=list)

    def learn(self, slot: int, value: float) -> None:
        if not self.residuals:
            self.residuals = [deque(maxlen=_RESIDUALS) for _ in range(self.horizon_slots)]
        for issued_slot, said in self.issued:
            step = slot - issued_slot
            if step <= len(said):
                self.residuals[step - 1].append(value - said[step - 1])
        # Missing slots count as unchanged, up to a horizon of them: seasons then stay aligned.
        for _ in range(min(slot - self.slot - 1, self.horizon_slots) if self.slot >= 0 else 0):
            self.model.learn_one(self.last)
        self.model.learn_one(value)
        self.slot, self.last = slot, value
        said = [_finite(each, value) for each in self.model.forecast(self.horizon_slots)]
        self.issued.append((slot, said))
        while slot - self.issued[0][0] >= self.horizon_slots:
            self.issued.popleft()

    @property
    def said(self) -> list[float]:
        """The last forecast, shape (horizon,)."""
        return self.issued[-1][1]


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) and abs(value) < 1e6 else otherwise


@dataclass(slots=True, kw_only=True)
class _Offering:
    """Scaled log price as first differences, count as a share of `scale`."""

    price: _Series
    count: _Series
    scale: float = 1.0
    greatest: int = 0
    last: int | None = None

    def distribution(self, h: int) -> tuple[CountProbability, ...]:
        said = self.count.said[h]
        residuals = self.count.residuals[h]
        values = [said + residual for residual in residuals] or [self.count.last]
        return quantised((self._count(value * self.scale), 1.0) for value in values)

    def _count(self, value: float) -> int:
        return max(0, min(self.greatest, round(value)))


@dataclass(slots=True, kw_only=True)
class SnarimaxModel:
    """Two series per offering."""

    horizon_slots: int
    offerings: dict[str, _Offering] = field(default_factory=dict)

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Learn price and count of every offering quoted."""
        season_slots = max(2, round(_DAY_S / opened.slot_s))
        for offering_id, quote in quotes.items():
            if offering_id not in self.offerings:
                self.offerings[offering_id] = self._fresh(season_slots)
            known = self.offerings[offering_id]
            known.price.learn(opened.slot, _PRICE_SCALE * math.log(quote.spot_price_micro_usd))
            if quote.spot_available.known:
                known.last = quote.spot_available.instances
                known.greatest = max(known.greatest, known.last)
                if known.last > _OUTGROWN * known.scale:
                    known.scale = float(known.last)
                    known.count = self._count_series(season_slots)
                known.count.learn(opened.slot, known.last / known.scale)

    def _fresh(self, season_slots: int) -> _Offering:
        price = _model(SnarimaxOrders(p=2, d=1, q=0, m=1, sp=0))
        return _Offering(
            price=_Series(price, self.horizon_slots), count=self._count_series(season_slots)
        )

    def _count_series(self, season_slots: int) -> _Series:
        series = _model(SnarimaxOrders(p=2, d=0, q=1, m=season_slots, sp=1))
        return _Series(series, self.horizon_slots)

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Forecast the point plus what it was off by lately."""
        forecasts = []
        for offering_id, quote in quotes.items():
            known = self.offerings[offering_id]
            counts: list[tuple[CountProbability, ...]] = []
            if quote.spot_available.known:
                counts = [known.distribution(h) for h in range(self.horizon_slots)]
            moves = (
                max(
                    -_GREATEST_LOG_MOVE,
                    min(_GREATEST_LOG_MOVE, (said - known.price.last) / _PRICE_SCALE),
                )
                for said in known.price.said
            )
            prices = [max(1, round(quote.spot_price_micro_usd * math.exp(m))) for m in moves]
            forecasts.append(offering_forecast(offering_id, quote, known.last, prices, counts))
        return tuple(forecasts)

    def forget(self, offering_id: str) -> None:
        """Judge the spread by the latest residuals only."""
        known = self.offerings.get(offering_id)
        if known is not None:
            known.count.residuals = [
                deque(list(each)[-_FORGOTTEN:], maxlen=_RESIDUALS) for each in known.count.residuals
            ]


class SnarimaxForecaster(
    PreparedForecaster, name="snarimax", model=SnarimaxModel, versions=_VERSIONS
):
    """SNARIMAX(2,0,1)(1,0,0) over a day for counts, ARIMA(2,1,0) for log prices."""

    model_id = f"snarimax-1/{river_version}"
