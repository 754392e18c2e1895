"""Wall time, for the feeds."""

from __future__ import annotations

import asyncio
import time


class SystemWall:
    """Implements `FeedWall` by the clock of the machine."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        """Wait in the event loop."""
        await asyncio.sleep(seconds)
