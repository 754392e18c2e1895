"""Rates by instance count as the throughput that a job states: a line or a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spotline.domain.jobs.job import Throughput

# A line through H(n) replaces the table where no count is off by more.
LINE_TOLERANCE = 0.02
# Digits of published rates: more claim a precision that no prediction has, and rates of few digits
# keep the exact programs of the scheduler small.
_RATE_DIGITS = 4


def throughput_of(key: str, rates: Mapping[int, float]) -> Throughput:
    """Lay rates (tokens per hour, by count) out as a line where one fits, else as a table.

    In a table, counts without a rate have 0: the job may not run on them.
    """
    counts = sorted(rates)
    line = _line(counts, [rates[count] for count in counts])
    if line is not None:
        return Throughput(offering=key, alpha=line[0], beta=line[1])
    table = [0.0] * counts[-1]
    for count in counts:
        table[count - 1] = rounded(rates[count])
    return Throughput(offering=key, table=tuple(table))


def _line(counts: Sequence[int], rates: Sequence[float]) -> tuple[float, float] | None:
    if len(counts) == 1:
        return rounded(rates[0] / counts[0]), 0.0
    mean_count = math.fsum(counts) / len(counts)
    mean_rate = math.fsum(rates) / len(rates)
    spread = math.fsum((count - mean_count) ** 2 for count in counts)
    alpha = rounded(
        math.fsum(
            (count - mean_count) * (rate - mean_rate)
            for count, rate in zip(counts, rates, strict=True)
        )
        / spread
    )
    beta = rounded(mean_rate - alpha * mean_count)
    off = max(
        abs(alpha * count + beta - rate) / rate for count, rate in zip(counts, rates, strict=True)
    )
    return (alpha, beta) if off <= LINE_TOLERANCE else None


def rounded(rate: float) -> float:
    """The number to the digits that predictions are published with."""
    return float(f"{rate:.{_RATE_DIGITS}g}")
