"""Rates by instance count as the throughput that a job states: a line or a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.domain.configuration.scaling import LINEAR_TOLERANCE_PERCENT, fit_line, missed_percent
from spotline.domain.jobs.job import Throughput

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
    alpha, beta = map(rounded, fit_line(counts, rates))
    fits = missed_percent(alpha, beta, counts, rates) <= LINEAR_TOLERANCE_PERCENT
    return (alpha, beta) if fits or len(counts) == 1 else None


def rounded(rate: float) -> float:
    """The number to the digits that predictions are published with."""
    return float(f"{rate:.{_RATE_DIGITS}g}")
