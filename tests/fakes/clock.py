"""A clock that goes on only where a test turns it."""

from __future__ import annotations

import asyncio
import heapq


class TurnedClock:
    """Implements `FeedClock`: who sleeps is woken when the clock is turned that far."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._sleeping: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0

    def now_s(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._count += 1
        heapq.heappush(self._sleeping, (self._now_s + seconds, self._count, woken))
        await woken.wait()

    @property
    def sleepers(self) -> int:
        """How many wait for time to go on."""
        return len(self._sleeping)

    def turn(self, seconds: float) -> None:
        """Let so much time pass."""
        self._now_s += seconds
        while self._sleeping and self._sleeping[0][0] <= self._now_s + 1e-9:
            heapq.heappop(self._sleeping)[2].set()
