"""Prices over time as steps: each holds from its time until the next, the last without end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.units import NS_PER_S, S_PER_HOUR

# Markets begin before 2200, and int64 nanoseconds end in 2262: later than that is no time.
MOST_HOURS = 500_000

_MOST_S = MOST_HOURS * S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSteps:
    """Prices of one thing; seconds count from the opening of the first slot.

    Attributes
    ----------
    after_s
        From when on, ascending, shape (N,); the first is at most 0.
    usd
        Shape (N,).
    """

    after_s: npt.NDArray[np.float64]
    usd: npt.NDArray[np.float64]

    @classmethod
    def spaced(cls, prices: Sequence[float], every_hours: float = 1.0) -> PriceSteps:
        """Prices that are equally far apart, the first from the opening on.

        Raises
        ------
        ValueError
            The last is more than `MOST_HOURS` after the opening.
        """
        hours = (len(prices) - 1) * every_hours
        if hours > MOST_HOURS:
            raise ValueError(
                f"expected prices of at most {MOST_HOURS:,} hours, found {hours:,.0f} hours"
            )
        return cls(
            after_s=np.arange(len(prices), dtype=np.float64) * (every_hours * S_PER_HOUR),
            usd=np.array(prices, dtype=np.float64),
        )

    @classmethod
    def dated(
        cls, ts_ns: npt.NDArray[np.int64], usd: npt.NDArray[np.float64], *, begins_ns: int
    ) -> PriceSteps:
        """Prices of a calendar, the opening being at `begins_ns`; what is over by then goes.

        Raises
        ------
        ValueError
            The first price is later than the opening, or the last one earlier, or more than
            `MOST_HOURS` later.
        """
        after_s = (ts_ns - begins_ns) / NS_PER_S
        if after_s[0] > 0:
            raise ValueError(
                _outside("a price at begins or before it, found the first", after_s[0])
            )
        if after_s[-1] < 0:
            raise ValueError(_outside("prices from begins on, found the last", after_s[-1]))
        if after_s[-1] > _MOST_S:
            raise ValueError(_outside(f"at most {MOST_HOURS:,} hours, found the last", after_s[-1]))
        present = int(np.searchsorted(after_s, 0.0, side="right")) - 1
        return cls(after_s=after_s[present:], usd=usd[present:])

    def at(self, at_s: float) -> float:
        """The price at a time not before the opening."""
        return float(self.usd[int(np.searchsorted(self.after_s, at_s, side="right")) - 1])

    def hourly(self) -> tuple[float, ...]:
        """The prices of hours 0, 1, ... until the last holds; of several in an hour the mean."""
        hours = math.ceil(max(0.0, float(self.after_s[-1])) / S_PER_HOUR) + 1
        return tuple(self._of_hour(hour) for hour in range(hours))

    def _of_hour(self, hour: int) -> float:
        start_s, end_s = hour * S_PER_HOUR, (hour + 1) * S_PER_HOUR
        first = int(np.searchsorted(self.after_s, start_s, side="right")) - 1
        beyond = int(np.searchsorted(self.after_s, end_s, side="left"))
        if beyond - first == 1:
            return float(self.usd[first])
        edges = np.clip(np.append(self.after_s[first:beyond], end_s), start_s, end_s)
        return math.fsum(np.diff(edges) * self.usd[first:beyond]) / S_PER_HOUR


def _outside(expected: str, after_s: float) -> str:
    hours = abs(after_s) / S_PER_HOUR
    return f"expected {expected} {hours:,.1f} hours {'after' if after_s > 0 else 'before'} it"
