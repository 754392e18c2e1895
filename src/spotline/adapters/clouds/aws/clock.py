"""The present in market time, derived from the wall clock; it never goes back."""

from __future__ import annotations

import time

from spotline.domain.market.market_clock import MarketClock


class WallMarketClock:
    """Implements `CloudClock`. A wall clock that is set back stands until it has caught up."""

    def __init__(self, clock: MarketClock) -> None:
        self._clock = clock
        self._latest_ns = 0

    def now_ns(self) -> int:
        """Nanoseconds of market time."""
        self._latest_ns = max(self._latest_ns, self._clock.market_at(time.time_ns()))
        return self._latest_ns
