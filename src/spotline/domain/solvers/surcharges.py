"""What spot is taken to cost beyond its price in the slots to come, by how much of it there is.

A shadow price is a mean (`domain/crowd/shadow_prices.py`). When an offering has little spot more jobs
want each instance than when it has much; a table that takes the mean in every slot waits too little
for the latter. Bid prices may depend on what capacity is left (Talluri and van Ryzin, Management Science
44(11), 1998); that they fall in proportion to it here is ours, chosen on dev crowds (ADR 0091).
"""

from __future__ import annotations

import numpy as np

from spotline.domain.kernels import FloatArray, IntArray
from spotline.domain.solvers.table_terms import TableTerms


def surcharges_of(terms: TableTerms) -> IntArray:
    """What an instance of spot costs beyond its price, micro-USD per hour, shape (run states,)."""
    law, flat = terms.law, terms.spot_surcharge
    if not terms.surcharge_by_count:
        return np.full(law.space.run_states, flat, dtype=np.int64)
    return by_count(flat, law.run_counts(), law.run_chances(), dearest=terms.on_demand_price)


def by_count(mean: int, counts: IntArray, chances: FloatArray, *, dearest: int) -> IntArray:
    """A mean price spread over counts of spot, in inverse proportion to how many instances there are.

    All spot of a slot then costs the same whenever there is some, and an instance `mean` in the mean.
    That is what clears a demand that answers prices with an elasticity of 1.

    Parameters
    ----------
    mean
        What an instance costs in the mean over all that are met, micro-USD per hour.
    counts
        Spot instances by state of the market, shape (states,).
    chances
        How often each is met, shape (states,).
    dearest
        No price is above it.

    Returns
    -------
    IntArray
        Micro-USD per instance-hour by state, shape (states,); 0 where there is no spot.
    """
    there = counts > 0
    often = float(chances[there].sum())
    if not often:
        # By this law there is none; what is met all the same costs the mean.
        return np.where(there, min(mean, dearest), 0).astype(np.int64)
    spread = mean * float((chances * counts).sum()) / often / np.maximum(counts, 1)
    prices: IntArray = np.where(there, np.minimum(np.rint(spread), dearest), 0).astype(np.int64)
    return prices
