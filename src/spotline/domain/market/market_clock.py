"""How market time follows wall time."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketClock:
    """Market time as a line over wall time; both in nanoseconds since the epoch.

    At `wall_ns` it is `market_ns`, and `market_s_per_s` market seconds pass in one of wall time. By
    default the two are the same, as on every cloud of the world; a rehearsal's time runs faster.
    """

    wall_ns: int = 0
    market_ns: int = 0
    market_s_per_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("wall_ns", "market_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        speed = self.market_s_per_s
        if not (math.isfinite(speed) and speed > 0):
            raise ValueError(f"market_s_per_s must be finite and > 0, was {speed}")

    @property
    def is_wall_time(self) -> bool:
        """Whether market time is wall time."""
        return self.market_s_per_s == 1.0 and self.wall_ns == self.market_ns

    def market_at(self, wall_ns: int) -> int:
        """Market time at a moment of wall time."""
        passed_ns = wall_ns - self.wall_ns
        if self.market_s_per_s == 1.0:
            return self.market_ns + passed_ns
        return self.market_ns + round(passed_ns * self.market_s_per_s)

    def wall_at(self, market_ns: int) -> int:
        """Wall time at a moment of market time."""
        passed_ns = market_ns - self.market_ns
        if self.market_s_per_s == 1.0:
            return self.wall_ns + passed_ns
        return self.wall_ns + round(passed_ns / self.market_s_per_s)


WALL_TIME = MarketClock()
"""Market time is wall time."""
