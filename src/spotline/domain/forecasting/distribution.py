"""Distributions over counts, as published: parts per million that sum exactly."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from spotline.domain.market.forecast import CountProbability
from spotline.domain.units import PPM


def quantised(masses: Iterable[tuple[int, float]]) -> tuple[CountProbability, ...]:
    """Round (count, mass >= 0) pairs to parts per million by largest remainder.

    Masses of equal counts add up and need not sum to 1. The result is ordered by count, ties of
    remainders go to the smaller count, and counts that round to nothing are left out.

    Raises
    ------
    ValueError
        The masses do not sum to a finite positive number.
    """
    merged: dict[int, float] = {}
    for count, mass in masses:
        merged[count] = merged.get(count, 0.0) + mass
    total = sum(merged.values())
    if not 0.0 < total < float("inf"):
        raise ValueError(f"masses must sum to a finite number > 0, was {total}")
    if len(merged) == 1:
        return certain(next(iter(merged)))
    counts = sorted(merged)
    exact = [merged[count] / total * PPM for count in counts]
    rounded = [int(value) for value in exact]
    short = PPM - sum(rounded)
    if short:
        # Sorting is stable and counts ascend: ties go to the smaller count.
        remainders = [whole - value for whole, value in zip(rounded, exact, strict=True)]
        for i in sorted(range(len(counts)), key=remainders.__getitem__)[:short]:
            rounded[i] += 1
    return tuple(
        CountProbability(instances=count, probability_ppm=ppm)
        for count, ppm in zip(counts, rounded, strict=True)
        if ppm > 0
    )


def certain(instances: int) -> tuple[CountProbability, ...]:
    """The distribution of a count that is taken for granted."""
    return (CountProbability(instances=instances, probability_ppm=PPM),)


def crps_milli(counts: Iterable[CountProbability], observed: int) -> int:
    """Ranked probability score of `observed`, in thousandths of an instance; 0 is perfect.

    The sum over c >= 1 of (P(count >= c) - [observed >= c])**2, exact until the final rounding. For
    a certain count it is the absolute error.
    """
    ordered = sorted((c.instances, c.probability_ppm) for c in counts)
    below_ppm = 0
    total = 0
    points = sorted({instances for instances, _ in ordered} | {observed})
    position = 0
    for here, following in pairwise(points):
        while position < len(ordered) and ordered[position][0] <= here:
            below_ppm += ordered[position][1]
            position += 1
        miss_ppm = below_ppm - (PPM if observed <= here else 0)
        total += (following - here) * miss_ppm * miss_ppm
    return (total * 1_000 + PPM * PPM // 2) // (PPM * PPM)


def transport_milli(first: Iterable[CountProbability], second: Iterable[CountProbability]) -> int:
    """Wasserstein-1 distance of two distributions, in thousandths of an instance."""
    difference: dict[int, int] = {}
    for c in first:
        difference[c.instances] = difference.get(c.instances, 0) + c.probability_ppm
    for c in second:
        difference[c.instances] = difference.get(c.instances, 0) - c.probability_ppm
    points = sorted(difference)
    total = 0
    running_ppm = 0
    for here, following in pairwise(points):
        running_ppm += difference[here]
        total += abs(running_ppm) * (following - here)
    return (total + 500) // 1_000
