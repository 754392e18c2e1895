"""How long to try again, where a process may stand still between two tries."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 3


class Patience:
    """Seconds to go on trying; standing still for long takes a third of them at most.

    A suspended machine, a disk that does not answer, a loop that was held up: when that is over, all
    time limits are, and whatever was asked has had no chance to be answered. So at least three tries
    are made, whatever the clock says.

    Parameters
    ----------
    seconds
        How long in all, where nothing stands still.
    clock
        Seconds that never go back.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._try_s = seconds / _TRIES
        self._left_s = seconds
        self._counted_s = clock()

    def left_s(self) -> float:
        """Seconds that are left, 0 when it is over; count once for each try."""
        now_s = self._clock()
        self._left_s = max(self._left_s - min(now_s - self._counted_s, self._try_s), 0.0)
        self._counted_s = now_s
        return self._left_s

    def next_try_s(self) -> float:
        """How long the next wait may be so that all of it is counted."""
        return min(self._left_s, self._try_s)
