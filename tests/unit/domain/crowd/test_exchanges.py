"""Exchanges, against the same rule written with arrays of numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.crowd.exchanges import MOST_EXCHANGES, improve
from spotline.domain.kernels import IntArray
from tests.depth import examples


def exchange(
    takes: IntArray, values: IntArray, owner: IntArray, left: IntArray, chosen: IntArray
) -> tuple[int, ...]:
    now = chosen[owner]
    gain, more = values - values[now], takes - takes[now]
    wanted = np.flatnonzero(gain > 0)
    for row in wanted[np.argsort(-gain[wanted], kind="stable")][:MOST_EXCHANGES]:
        together = (more + more[row] <= left).all(axis=1) & (owner != owner[row])
        together &= gain + gain[row] > 0
        if together.any():
            return int(row), int(np.argmax(np.where(together, gain, np.iinfo(np.int64).min)))
    return ()


def improved(
    takes: IntArray,
    values: IntArray,
    owner: IntArray,
    limits: IntArray,
    chosen: IntArray,
    rounds: int,
) -> IntArray:
    chosen = chosen.copy()
    for _ in range(rounds):
        left = limits - takes[chosen].sum(axis=0)
        now = chosen[owner]
        gain = values - values[now]
        fits = (takes - takes[now] <= left).all(axis=1) & (gain > 0)
        if fits.any():
            pair: tuple[int, ...] = (int(np.argmax(np.where(fits, gain, 0))),)
        else:
            pair = exchange(takes, values, owner, left, chosen)
        if not pair:
            break
        for row in pair:
            chosen[owner[row]] = row
    return chosen


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 3))
def test_the_compiled_exchanges_are_those_written_with_arrays(
    seed: int, jobs: int, resources: int
) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    options = rng.integers(1, 6, jobs)
    owner = np.repeat(np.arange(jobs), options)
    resting = np.concatenate(([0], options.cumsum()[:-1]))
    takes = rng.integers(0, 5, (owner.size, resources))
    takes[resting] = 0
    # Few different values, so that there are ties.
    values = rng.integers(-3, 9, owner.size)
    limits = rng.integers(0, 2 * jobs + 2, resources)
    rounds = int(rng.integers(0, 40))

    chosen = resting.copy()
    improve(takes, values, owner, limits, chosen, rounds)

    assert chosen.tolist() == improved(takes, values, owner, limits, resting, rounds).tolist()
    assert (takes[chosen].sum(axis=0) <= limits).all()
    assert values[chosen].sum() >= values[resting].sum()
