"""How outputs say that nothing in them was paid: JSON always has the mode, text where it is paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotline.domain.modes import Mode

if TYPE_CHECKING:
    from spotline.application.market_view import ClockReading


def paper_line(mode: Mode) -> str:
    """What the output of a run on paper begins with."""
    return f"mode {mode.value}: on paper; nothing here was launched or paid"


def mode_of(clock: ClockReading | None) -> Mode:
    """The mode that an answer states; one that states none is live."""
    return Mode.LIVE if clock is None or clock.mode is None else clock.mode


def paper_lines(clock: ClockReading | None) -> list[str]:
    """The line that an output begins with on paper, none where it is live."""
    mode = mode_of(clock)
    return [paper_line(mode)] if mode.on_paper else []


def paper_facts(mode: Mode | None) -> list[tuple[str, str]]:
    """The fact that a job is on paper, none where it is live."""
    if mode is None or not mode.on_paper:
        return []
    return [("mode", f"{mode.value}: on paper, nothing is launched or paid")]


def paper_mark(clock: ClockReading | None) -> str:
    """What stands behind a time of a run on paper, empty where it is live."""
    mode = mode_of(clock)
    return f" [{mode.value}, on paper]" if mode.on_paper else ""
