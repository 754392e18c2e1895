"""The rehearsal's time: market time, by a line over wall time or moved by hand."""

from __future__ import annotations

import time
from typing import Protocol

from spotline.domain.market.market_clock import MarketClock
from spotline.domain.units import NS_PER_S


class RehearsalClock(Protocol):
    """Says what time it is, and how long to wait for a later one."""

    def now_ns(self) -> int:
        """Market time, nanoseconds since the epoch; never goes back."""
        ...

    def wait_s(self, market_ns: int) -> float | None:
        """Wall seconds until then, at least 0; None: time stands still until it is moved."""
        ...

    def described(self) -> dict[str, float]:
        """Its line over wall time, by the fields of `MarketClock`; speed 0 of one that stands."""
        ...


class RunningClock:
    """Follows wall time; where that is set back, it stands until it is caught up with."""

    def __init__(self, line: MarketClock) -> None:
        self.line = line
        self._last_ns = 0

    def now_ns(self) -> int:
        """Market time now."""
        self._last_ns = max(self._last_ns, self.line.market_at(time.time_ns()))
        return self._last_ns

    def wait_s(self, market_ns: int) -> float | None:
        """Wall seconds until then."""
        return max(0.0, (self.line.wall_at(market_ns) - time.time_ns()) / NS_PER_S)

    def described(self) -> dict[str, float]:
        """The line."""
        line = self.line
        return {
            "wall_ns": line.wall_ns,
            "market_ns": line.market_ns,
            "market_s_per_s": line.market_s_per_s,
        }


class StandingClock:
    """Stands until it is moved: what a test does is then all that happens."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Where it was moved to last."""
        return self._now_ns

    def wait_s(self, market_ns: int) -> float | None:
        """Nobody knows."""
        return 0.0 if market_ns <= self._now_ns else None

    def advance(self, by_ns: int) -> None:
        """Move it on; raises ValueError if that is back."""
        if by_ns < 0:
            raise ValueError(f"seconds must be >= 0, was {by_ns / NS_PER_S:g}")
        self._now_ns += by_ns

    def described(self) -> dict[str, float]:
        """Where it stands."""
        return {"wall_ns": time.time_ns(), "market_ns": self._now_ns, "market_s_per_s": 0.0}
