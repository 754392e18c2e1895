"""The baseline: prices and counts stay what they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.domain.events import ForecastStep, OfferingForecast, SlotOpened
from spotline.domain.forecasting.distribution import certain
from spotline.domain.forecasting.prepared import PreparedForecaster
from spotline.domain.forecasting.scoring import ForecastScoring, quotes_by_offering
from spotline.domain.forecasting.state_format import state_version

_MODEL = "persistence"
_VERSIONS = {"format": "1"}


@dataclass(slots=True, kw_only=True)
class _State:
    horizon_slots: int
    slot: int = -1
    last_count: dict[str, int] = field(default_factory=dict)
    forecasts: tuple[OfferingForecast, ...] = ()
    scoring: ForecastScoring


class PersistenceForecaster(PreparedForecaster):
    """Forecasts the last price and, with certainty, the last known count."""

    model_id = "persistence-1"
    state_version = state_version(_MODEL, _VERSIONS)
    _model = _MODEL
    _versions = _VERSIONS
    _state: _State

    def __init__(self, horizon_slots: int = 12) -> None:
        super().__init__(horizon_slots)
        self._state = _State(
            horizon_slots=horizon_slots, scoring=ForecastScoring(horizon_slots=horizon_slots)
        )

    def learn(self, slot_opened: SlotOpened) -> None:
        """Take in one slot."""
        state = self._state
        if slot_opened.slot <= state.slot:
            return
        state.slot = slot_opened.slot
        quotes = quotes_by_offering(slot_opened)
        state.scoring.observe(state.slot, quotes)
        forecasts = []
        for offering_id, quote in quotes.items():
            if quote.spot_available.known:
                state.last_count[offering_id] = quote.spot_available.instances
            step = ForecastStep(
                spot_price_micro_usd=quote.spot_price_micro_usd,
                counts=certain(state.last_count.get(offering_id, 0)),
            )
            steps = (step,) * self.horizon_slots
            forecasts.append(OfferingForecast(offering_id=offering_id, steps=steps))
        state.forecasts = tuple(forecasts)
        state.scoring.issue(state.slot, quotes, state.forecasts)
