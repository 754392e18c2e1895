"""How sure a mean over jobs is: percentile bootstrap intervals.

Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. Jobs are taken as
independent draws; where two rules ran the same jobs, their differences are resampled, which keeps
what a job shares with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_JOBS = 8
"""Below so many no interval is given: with fewer, resamples hardly differ from each other."""

RESAMPLES = 10_000
_LEVEL = 0.95
_SEED = 48
# So many numbers are drawn at a time.
_DRAWN_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean per job and its 95 % interval; both bounds None where there are too few jobs."""

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def decides(self) -> bool:
        """Whether the interval leaves 0 on one side."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def as_json(self) -> dict[str, float | None]:
        """The three numbers by name."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of a number per job, and how sure it is; the same numbers give the same interval.

    Raises
    ------
    ValueError
        There are none.
    """
    if not values:
        raise ValueError("there must be at least one job to say anything of")
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    if len(found) < LEAST_JOBS:
        return Estimate(mean=mean)
    random = np.random.Generator(np.random.PCG64(_SEED))
    means = np.empty(RESAMPLES)
    at_once = max(1, min(RESAMPLES, _DRAWN_AT_ONCE // len(found)))
    for first in range(0, RESAMPLES, at_once):
        count = min(at_once, RESAMPLES - first)
        drawn = random.integers(0, len(found), size=(count, len(found)))
        means[first : first + count] = found[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    # Summed in another order the mean of equal numbers may leave them by a last digit.
    return Estimate(mean=mean, low=min(float(low), mean), high=max(float(high), mean))
