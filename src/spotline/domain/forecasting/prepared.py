"""What forecasters share that prepare their forecast while they learn a slot."""

from __future__ import annotations

from typing import ClassVar, Protocol, Self

from spotline.domain.events import ForecastScore, OfferingForecast
from spotline.domain.forecasting.interface import check_horizon
from spotline.domain.forecasting.scoring import ForecastScoring
from spotline.domain.forecasting.state_format import pack, unpack


class PreparedState(Protocol):
    """The part of a forecaster's state that is alike in all."""

    horizon_slots: int
    forecasts: tuple[OfferingForecast, ...]
    scoring: ForecastScoring


class PreparedForecaster:
    """Answers from what `learn` prepared, and freezes all of `_state`."""

    _model: ClassVar[str]
    _versions: ClassVar[dict[str, str]]
    _state: PreparedState
    horizon_slots: int

    def __init__(self, horizon_slots: int) -> None:
        check_horizon(horizon_slots, horizon_slots)
        self.horizon_slots = horizon_slots

    def forecast(self, horizon_slots: int) -> tuple[OfferingForecast, ...]:
        """Forecast every offering quoted in the last slot."""
        check_horizon(horizon_slots, self.horizon_slots)
        return tuple(
            OfferingForecast(offering_id=f.offering_id, steps=f.steps[:horizon_slots])
            for f in self._state.forecasts
        )

    def scores(self) -> tuple[ForecastScore, ...]:
        """How earlier forecasts fared against persistence."""
        return self._state.scoring.scores()

    def dump(self) -> bytes:
        """Freeze the state, with the format's version and what else decides its meaning."""
        return pack(self._model, self._versions, self._state)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Restore a dumped state; `ValueError` where it is not one of this forecaster."""
        state = unpack(cls._model, cls._versions, data)
        restored = cls(state.horizon_slots)
        restored._state = state
        return restored
