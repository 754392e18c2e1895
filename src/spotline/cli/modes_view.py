"""How outputs say that nothing in them was paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotline.application.market_view import ClockReading
    from spotline.domain.modes import Mode


def paper_line(mode: Mode) -> str:
    """What a listing of a run on paper begins with."""
    return f"mode {mode.value}: on paper; nothing here was launched or paid"


def mode_of(clock: ClockReading | None) -> str:
    """The mode that an answer states, by its name; one that states none is live."""
    return "live" if clock is None or clock.mode is None else clock.mode.value
