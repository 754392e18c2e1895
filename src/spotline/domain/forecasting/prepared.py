"""What forecasters share that prepare their forecast while they learn a slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from river.__version__ import __version__ as river_version

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import certain
from spotline.domain.forecasting.interface import check_horizon
from spotline.domain.forecasting.scoring import ForecastScoring, quotes_by_offering
from spotline.domain.forecasting.state_format import pack, state_version, unpack
from spotline.domain.market.forecast import (
    CountProbability,
    ForecastScore,
    ForecastStep,
    OfferingForecast,
)
from spotline.domain.market.offering import Quote


class MarketModel(Protocol):
    """What is particular about a forecaster: a model of all offerings, as a plain value."""

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Take in the next slot, whose quotes are `quotes`, ordered by offering id."""
        ...

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Forecast every offering of the slot just learnt, over the whole horizon."""
        ...

    def forget(self, offering_id: str) -> None:
        """Trust the past of an offering less: its scores have drifted."""
        ...


@dataclass(slots=True, kw_only=True)
class PreparedState:
    """What a forecaster keeps beside its model."""

    horizon_slots: int
    scoring: ForecastScoring
    slot: int = -1
    forecasts: tuple[OfferingForecast, ...] = ()


class PreparedForecaster:
    """Keeps a model, scores what it says, tells it of drift, and freezes all of it.

    A subclass names itself, what makes a model that knows nothing, and the versions its state
    depends on.
    """

    state_version: ClassVar[str]
    _name: ClassVar[str]
    _versions: ClassVar[dict[str, str]]
    _fresh_model: ClassVar[Callable[..., MarketModel]]
    _kind: ClassVar[object]
    horizon_slots: int

    def __init_subclass__(
        cls,
        *,
        name: str,
        model: type[MarketModel],
        versions: dict[str, str],
        fresh: Callable[..., MarketModel] | None = None,
    ) -> None:
        cls._name = name
        # Scores hold a detector of River's, whatever the model is.
        cls._versions = {**versions, "river": river_version}
        cls._fresh_model = staticmethod(fresh or model)
        cls._kind = tuple[model, PreparedState]  # type: ignore[valid-type]
        cls.state_version = state_version(name, cls._versions)

    def __init__(self, horizon_slots: int = 12) -> None:
        check_horizon(horizon_slots, horizon_slots)
        self.horizon_slots = horizon_slots
        self._model = self._fresh_model(horizon_slots=horizon_slots)
        self._state = PreparedState(
            horizon_slots=horizon_slots,
            scoring=ForecastScoring(horizon_slots=horizon_slots),
        )

    def learn(self, slot_opened: SlotOpened) -> None:
        """Take in one slot: score what it proves, learn it, and prepare the next forecast."""
        state = self._state
        if slot_opened.slot <= state.slot:
            return
        state.slot = slot_opened.slot
        quotes = quotes_by_offering(slot_opened)
        for offering_id in state.scoring.observe(state.slot, quotes):
            self._model.forget(offering_id)
        self._model.learn(slot_opened, quotes)
        state.forecasts = self._model.issue(slot_opened, quotes)
        state.scoring.issue(state.slot, quotes, state.forecasts)

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
        return pack(self._name, self._versions, (self._model, self._state), self._kind)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Restore a dumped state; `ValueError` where it is not one of this forecaster."""
        model, state = unpack(cls._name, cls._versions, data, cls._kind)
        restored = cls(state.horizon_slots)
        restored._model, restored._state = model, state
        return restored


def offering_forecast(
    offering_id: str,
    quote: Quote,
    last: int | None,
    prices_micro_usd: Sequence[int],
    counts: Sequence[tuple[CountProbability, ...]],
) -> OfferingForecast:
    """Put a forecast together; an unknown present count makes the last known one certain.

    `prices_micro_usd` and `counts` hold one entry per step; `counts` is not looked at where the
    present count is unknown.
    """
    if not quote.spot_available.known:
        counts = (certain(last or 0),) * len(prices_micro_usd)
    return OfferingForecast(
        offering_id=offering_id,
        steps=tuple(
            ForecastStep(spot_price_micro_usd=price, counts=count)
            for price, count in zip(prices_micro_usd, counts, strict=True)
        ),
    )
