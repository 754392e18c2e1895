"""Spot counts that may come by the law of an offering: futures of one offering after the present slot."""

from __future__ import annotations

import numpy as np

from spotline.domain.market.law import FloatArray, IntArray, MarketLaw


def counts_ahead(law: MarketLaw, run_state: int, count: int, chances: FloatArray) -> IntArray:
    """Counts of the present slot, which is `count` in all futures, and those after it.

    Parameters
    ----------
    run_state
        Where the offering is in its law now.
    chances
        What decides where each future goes, uniform in [0, 1), shape (futures, slots); that of the
        present slot is not read.

    Returns
    -------
    IntArray
        Instances, shape (futures, slots). While a level lasts its count stays the same.
    """
    reached = np.cumsum(law.run_matrix(), axis=1)
    of_state, ages = law.run_counts(), law.space.ages
    counts = np.full(chances.shape, count, dtype=np.int64)
    state = np.full(len(chances), run_state)
    last = len(reached) - 1
    for slot in range(1, chances.shape[1]):
        later = np.minimum((reached[state] <= chances[:, slot, None]).sum(axis=1), last)
        stays = later // ages == state // ages
        counts[:, slot] = np.where(stays, counts[:, slot - 1], of_state[later])
        state = later
    return counts


def spread_chances(rng: np.random.Generator, futures: int, slots: int) -> FloatArray:
    """Uniform numbers in [0, 1), shape (futures, slots), spread evenly over the futures of each slot.

    One falls into each of `futures` equal parts, in an order of chance: means over futures then
    vary less than those of independent numbers (McKay, Beckman and Conover, Technometrics 21(2), 1979).
    """
    part = rng.permuted(np.tile(np.arange(futures), (slots, 1)), axis=1).T
    spread: FloatArray = (part + rng.random((futures, slots))) / futures
    return spread
