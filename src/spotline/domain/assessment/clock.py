"""Clocks set forward or back, in bills whose times name no zone.

Such times are local, and on two days a year an hour is missing or comes twice. Which zone it is
nobody says, but the bill shows it: machines that ran on have a gap of exactly an hour, or use twice
an hour, in the night of a Sunday on which clocks of the European Union (last of March and October) or
of the United States (second of March, first of November) change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spotline.domain.assessment.lines import UsedWindow
from spotline.domain.units import S_PER_HOUR

_SUNDAY = 6
_NIGHT = range(4)
_FORWARD = ((3, range(8, 15)), (3, range(25, 32)))
_BACK = ((10, range(25, 32)), (11, range(1, 8)))


def may_go_forward(at_s: int) -> bool:
    """Whether an hour that begins then is missing somewhere."""
    return _one_of(at_s, _FORWARD)


def may_go_back(at_s: int) -> bool:
    """Whether an hour that begins then comes twice somewhere."""
    return _one_of(at_s, _BACK)


def _one_of(at_s: int, days: Sequence[tuple[int, range]]) -> bool:
    at = datetime.fromtimestamp(at_s, tz=UTC)
    if at.weekday() != _SUNDAY or at.hour not in _NIGHT:
        return False
    return any(at.month == month and at.day in span for month, span in days)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """An hour of a bill without zones at which a clock was set; `back`: it comes twice."""

    hour_s: int
    back: bool

    def straightened(self, windows: Sequence[UsedWindow]) -> Iterator[UsedWindow]:
        """Windows on a clock that runs through: later ones are moved by the hour."""
        for window in windows:
            if not self.back:
                yield self._forward(window)
            elif window.begin_s == self.hour_s and window.used_s > window.end_s - window.begin_s:
                # Both hours in one window: it is twice as long.
                yield replace(window, end_s=window.end_s + S_PER_HOUR)
            else:
                yield _moved(window, S_PER_HOUR if window.begin_s > self.hour_s else 0)

    def _forward(self, window: UsedWindow) -> UsedWindow:
        if window.begin_s < self.hour_s < window.end_s:
            return replace(window, end_s=window.end_s - S_PER_HOUR)
        return _moved(window, -S_PER_HOUR if window.begin_s > self.hour_s else 0)


def _moved(window: UsedWindow, by_s: int) -> UsedWindow:
    if not by_s:
        return window
    return replace(window, begin_s=window.begin_s + by_s, end_s=window.end_s + by_s)


def changes_in(windows: Sequence[UsedWindow]) -> Iterator[ClockChange]:
    """The clock changes that one resource's windows show, in order."""
    before: UsedWindow | None = None
    for window in windows:
        length_s = window.end_s - window.begin_s
        second_s = window.begin_s + S_PER_HOUR
        if length_s == 2 * S_PER_HOUR and window.used_s == S_PER_HOUR and may_go_forward(second_s):
            # An hour that begins before the change and ends after it looks like two.
            yield ClockChange(hour_s=second_s, back=False)
        hour = length_s == S_PER_HOUR
        if hour and window.used_s > S_PER_HOUR and may_go_back(window.begin_s):
            yield ClockChange(hour_s=window.begin_s, back=True)
        gap = 0 if before is None else window.begin_s - before.end_s
        if before is not None and gap == S_PER_HOUR and may_go_forward(before.end_s):
            yield ClockChange(hour_s=before.end_s, back=False)
        before = window
