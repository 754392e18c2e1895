"""What every forecaster offers: one model of one market, fed one slot at a time."""

from __future__ import annotations

from typing import Protocol, Self

from spotline.domain.events.market import SlotOpened
from spotline.domain.market.forecast import ForecastScore, OfferingForecast


class Forecaster(Protocol):
    """A market's forecaster. Deterministic: equal slots learnt give equal forecasts.

    Constructed with `horizon_slots`, the longest horizon it will be asked for. Every forecaster is
    held to `tests/contract/test_forecaster_contract.py`.

    Attributes
    ----------
    model_id
        Name and version of the model, recorded with each forecast.
    state_version
        Changes whenever dumped states of other versions cannot be loaded.
    horizon_slots
        Longest horizon of `forecast`, in slots.
    """

    model_id: str
    state_version: str
    horizon_slots: int

    def __init__(self, horizon_slots: int = ...) -> None:
        """Start without any knowledge."""
        ...

    def learn(self, slot_opened: SlotOpened) -> None:
        """Take in one slot. A slot that is not later than the last one changes nothing.

        Slots and offerings may be missing; a count of unknown provenance teaches nothing.
        """
        ...

    def forecast(self, horizon_slots: int) -> tuple[OfferingForecast, ...]:
        """Forecast every offering quoted in the last slot, ordered by offering id.

        Changes nothing. Where the present count is unknown, the distribution is the last known
        count (0 if there was none) with certainty.

        Raises
        ------
        ValueError
            `horizon_slots` lies outside 1..`self.horizon_slots`.
        """
        ...

    def scores(self) -> tuple[ForecastScore, ...]:
        """How earlier forecasts fared, ordered by offering id and step; matured steps only."""
        ...

    def dump(self) -> bytes:
        """Freeze the whole state; `load(dump())` continues identically."""
        ...

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Restore a dumped state.

        Raises
        ------
        ValueError
            `data` is not a state of this forecaster, or was written by other versions.
        """
        ...


def check_horizon(horizon_slots: int, longest_slots: int) -> None:
    """Refuse a horizon outside 1..`longest_slots` by `ValueError`."""
    if not 1 <= horizon_slots <= longest_slots:
        raise ValueError(f"horizon_slots must lie in 1..{longest_slots}, was {horizon_slots}")
