"""Ratios of sums, and intervals of paired differences on overlapping jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

RESAMPLES = 2_000
CONFIDENCE = 0.95


def percent(part: FloatArray | IntArray, whole: FloatArray | IntArray) -> float:
    """100 * sum(part) / sum(whole), never a mean of ratios; NaN where the whole sums to <= 0."""
    total = float(np.sum(whole))
    return 100.0 * float(np.sum(part)) / total if total > 0.0 else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeLine:
    """Jobs of series that share their slots, which are therefore resampled together.

    Attributes
    ----------
    jobs
        Indices of the jobs, shape (jobs,).
    start
        First slot of each, shape (jobs,).
    """

    jobs: IntArray
    start: IntArray


def time_lines(keys: Sequence[object], series: IntArray, start: IntArray) -> tuple[TimeLine, ...]:
    """Group jobs by `keys[series]`: series with equal keys are seen at the same times."""
    lines = []
    for key in dict.fromkeys(keys):
        members = [index for index, one in enumerate(keys) if one == key]
        jobs = np.flatnonzero(np.isin(series, members))
        if jobs.size:
            lines.append(TimeLine(jobs=jobs, start=start[jobs]))
    return tuple(lines)


def bootstrap_points(
    difference: FloatArray,
    optimum: FloatArray,
    lines: Sequence[TimeLine],
    *,
    block_slots: int,
    seed: int,
    resamples: int = RESAMPLES,
    circular: bool = False,
) -> tuple[float, float, float]:
    """Interval and mean of 100 * sum(difference) / sum(optimum).

    Moving blocks over start times: jobs that overlap depend on each other, so blocks of
    `block_slots` slots, longer than a job, are drawn with replacement from each time line until it
    is as long as it was. Everything that began in a block comes with it, of all series of the line.

    Parameters
    ----------
    difference, optimum
        Of every job, in one unit, shape (jobs,).
    block_slots
        Length of a block.
    circular
        Whether a block may go on at the beginning of its line (Politis and Romano 1992): where a
        line is a few blocks long, its ends are otherwise drawn too seldom.

    Returns
    -------
    tuple
        Lower end, mean, upper end of the central 95 % interval, in points.
    """
    parts, wholes = resampled_sums(
        (difference, optimum),
        lines,
        block_slots=block_slots,
        seed=seed,
        resamples=resamples,
        circular=circular,
    )
    mean = percent(difference, optimum)
    points = 100.0 * parts / np.where(wholes > 0.0, wholes, np.nan)
    tail = 100.0 * (1.0 - CONFIDENCE) / 2.0
    low, high = np.nanpercentile(points, (tail, 100.0 - tail))
    return float(low), mean, float(high)


def resampled_sums(
    values: Sequence[FloatArray],
    lines: Sequence[TimeLine],
    *,
    block_slots: int,
    seed: int,
    resamples: int = RESAMPLES,
    circular: bool = False,
) -> FloatArray:
    """Sums of each of `values` over moving blocks as in `bootstrap_points`, the same for all of them.

    Returns
    -------
    FloatArray
        Shape (values, resamples).
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    sums = np.zeros((len(values), resamples))
    for line in lines:
        starts, place = np.unique(line.start, return_inverse=True)
        step = int(np.diff(starts).min()) if starts.size > 1 else 1
        block = min(starts.size, max(1, -(-block_slots // step)))
        drawn = -(-starts.size // block)
        places = starts.size if circular else starts.size - block + 1
        first = rng.integers(0, places, size=(resamples, drawn))
        taken = (first[:, :, None] + np.arange(block)).reshape(resamples, -1)[:, : starts.size]
        taken %= starts.size
        for row, each in enumerate(values):
            at_start = np.bincount(place, weights=each[line.jobs], minlength=starts.size)
            sums[row] += at_start[taken].sum(axis=1)
    return sums
