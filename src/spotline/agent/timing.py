"""The machine's time, pauses between tries, and market time as an agent knows it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from spotline.adapters.grpc.agent.messages import MarketMoment
from spotline.agent.ports import AgentClock
from spotline.domain.units import NS_PER_S


class MachineClock:
    """The machine's own clocks."""

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def elapsed_s(self) -> float:
        """Seconds since the machine started."""
        return time.clock_gettime(_CLOCK)

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)


# A suspended machine bills on, so its lease goes on, too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RetryPauses:
    """Pauses that double from `first_s` to `most_s`, each drawn from its upper half.

    Parameters
    ----------
    uniform
        Draws from [0, 1): many agents that lost one control plane must not come back at once.
    """

    def __init__(
        self, uniform: Callable[[], float], *, first_s: float = 0.2, most_s: float = 5.0
    ) -> None:
        self._uniform = uniform
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next_s(self) -> float:
        """How long to pause now, seconds."""
        pause_s = self._next_s * (0.5 + self._uniform() / 2)
        self._next_s = min(self._next_s * 2, self._most_s)
        return pause_s

    def reset(self) -> None:
        """Begin again with the shortest."""
        self._next_s = self._first_s


class MarketTime:
    """Converts between market time and the machine's.

    The control plane says when a slot opened. The first answer that says so comes at most a
    heartbeat later, and from there market time is counted on: deadlines come out late by at most
    that.

    Parameters
    ----------
    market_s_per_s
        Market seconds in a second of wall time, > 0.
    """

    def __init__(self, clock: AgentClock, market_s_per_s: float) -> None:
        self._clock = clock
        self.market_s_per_s = market_s_per_s
        self._known: MarketMoment | None = None
        self._known_at_s = 0.0

    def observe(self, moment: MarketMoment | None) -> None:
        """Take in market time as an answer said it."""
        if moment is not None and moment != self._known:
            self._known = moment
            self._known_at_s = self._clock.wall_s()

    def wall_s(self, market_ns: int) -> float:
        """The moment of market time `market_ns`, seconds since the epoch by this machine.

        Before market time is known, it is now.
        """
        if self._known is None:
            return self._clock.wall_s()
        ahead_s = (market_ns - self._known.market_ns) / NS_PER_S / self.market_s_per_s
        return self._known_at_s + ahead_s

    def market_s(self, wall_seconds: float) -> int:
        """Market seconds that pass in some wall seconds, rounded up."""
        # What was measured with a stop-watch is not rounded up for the last digit of a float.
        return max(0, math.ceil(wall_seconds * self.market_s_per_s - 1e-6))
