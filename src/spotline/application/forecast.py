"""The forecaster: learns from every slot and issues one forecast for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.domain.events import Event, ForecastIssued, MarketOpened, SlotOpened
from spotline.domain.forecasting.interface import Forecaster, check_horizon

SPEC = Spec(
    service="forecaster",
    consumes=(MarketOpened, SlotOpened),
    produces=(ForecastIssued,),
    decides=(ForecastIssued,),
)

DEFAULT_HORIZON_SLOTS = 12


@dataclass(slots=True, kw_only=True)
class ForecastState:
    """The forecaster itself, and the last slot it learnt."""

    forecaster: Forecaster
    slot: int = -1


class ForecastHandler:
    """Turns `SlotOpened(k)` into `ForecastIssued(k)`.

    Parameters
    ----------
    factory
        A forecaster's class, from the registry.
    horizon_slots
        Steps to forecast, >= 1.
    """

    spec = SPEC

    def __init__(
        self, factory: type[Forecaster], *, horizon_slots: int = DEFAULT_HORIZON_SLOTS
    ) -> None:
        check_horizon(horizon_slots, horizon_slots)
        self._factory = factory
        self._horizon_slots = horizon_slots

    def initial(self) -> ForecastState:
        """A forecaster without any knowledge."""
        return ForecastState(forecaster=self._factory(self._horizon_slots))

    def evolve(self, state: ForecastState, event: Event) -> None:
        """Learn from a slot; slots that are not later than the last one teach nothing."""
        match event:
            case SlotOpened() if event.slot > state.slot:
                state.forecaster.learn(event)
                state.slot = event.slot
            case _:
                pass

    def decide(self, state: ForecastState, event: Event, ctx: Context) -> Outcome:
        """Issue the forecast of a slot that was just learnt."""
        match event:
            case SlotOpened() if event.slot == state.slot:
                issued = ForecastIssued(
                    slot=event.slot,
                    model_id=state.forecaster.model_id,
                    forecasts=state.forecaster.forecast(self._horizon_slots),
                    scores=state.forecaster.scores(),
                )
                return Outcome(events=(issued,))
            case _:
                return NOTHING

    def due(self, state: ForecastState) -> Sequence[Timer]:
        """No timers: slots open by event."""
        return ()


class ForecastStateCodec:
    """Writes and reads the handler's state for snapshots."""

    def __init__(
        self, factory: type[Forecaster], *, horizon_slots: int = DEFAULT_HORIZON_SLOTS
    ) -> None:
        self._factory = factory
        self._horizon_slots = horizon_slots

    @property
    def version(self) -> str:
        """Model, library version and horizon: a snapshot of any other is to be refolded."""
        return f"1 {self._factory.state_version} horizon={self._horizon_slots}"

    def dump(self, state: ForecastState) -> bytes:
        """Write the slot and the forecaster's own dump."""
        return f"{state.slot}\n".encode() + state.forecaster.dump()

    def load(self, dumped: bytes) -> ForecastState:
        """Read what `dump` wrote.

        Raises
        ------
        ValueError
            The bytes are not such a state, or come from other versions or another horizon.
        """
        slot_line, separator, rest = dumped.partition(b"\n")
        if not separator:
            raise ValueError("a forecaster's snapshot must start with its slot, these bytes do not")
        forecaster = self._factory.load(rest)
        if forecaster.horizon_slots != self._horizon_slots:
            raise ValueError(
                f"the snapshot must be of horizon {self._horizon_slots}, "
                f"was of {forecaster.horizon_slots}"
            )
        return ForecastState(forecaster=forecaster, slot=int(slot_line))
