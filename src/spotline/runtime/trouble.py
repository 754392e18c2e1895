"""What fails again and again: since when, how often, and what was said last."""

from __future__ import annotations

import time
from collections.abc import Callable

from spotline.application.health.flow import Failing


class Trouble:
    """Noted by the one that tries, read by whoever judges; any thread may read.

    Parameters
    ----------
    clock
        Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing: Failing | None = None

    @property
    def failing(self) -> Failing | None:
        """What fails now, None where the last try succeeded."""
        return self._failing

    def failed(self, problem: str) -> None:
        """Note a try that failed."""
        before, now_s = self._failing, self._clock()
        self._failing = Failing(
            since_s=now_s if before is None else before.since_s,
            last_s=now_s,
            times=1 if before is None else before.times + 1,
            problem=problem,
        )

    def ended(self) -> None:
        """Note a try that succeeded."""
        self._failing = None
