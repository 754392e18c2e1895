"""Counts that may come by a law."""

from __future__ import annotations

import numpy as np

from spotline.domain.market.counts_ahead import counts_ahead, spread_chances
from spotline.domain.market.law import MarketLaw, choose_space, last_run_state, learn_law

COUNTS = ([0] * 3 + [16] * 9) * 20


def law_of() -> MarketLaw:
    prices = [300_000] * len(COUNTS)
    return learn_law(COUNTS, prices, choose_space(COUNTS, prices, most_instances=16))


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def test_the_present_slot_is_as_it_is_and_a_level_keeps_its_count() -> None:
    law = law_of()
    state = last_run_state(law.space, COUNTS)
    counts = counts_ahead(law, state, 15, spread_chances(generator(), 64, 12))

    assert counts.shape == (64, 12)
    assert (counts[:, 0] == 15).all()
    assert set(counts.ravel().tolist()) == {0, 15, 16}
    for path in counts.tolist():
        # 15 is of the level of 16: that is met again after an outage only.
        before_outage = path[: path.index(0)] if 0 in path else path
        assert set(before_outage) == {15}


def test_far_ahead_counts_are_met_as_often_as_by_the_law() -> None:
    law = law_of()
    state = last_run_state(law.space, COUNTS)
    counts = counts_ahead(law, state, 16, spread_chances(generator(), 4_000, 60))
    chances = law.run_chances()
    there = float(chances[law.run_counts() > 0].sum())

    assert abs(float((counts[:, -1] > 0).mean()) - there) < 0.03


def test_spread_chances_fall_into_equal_parts_of_each_slot() -> None:
    chances = spread_chances(generator(), 16, 9)

    assert chances.shape == (16, 9)
    for slot in range(9):
        assert sorted((chances[:, slot] * 16).astype(int).tolist()) == list(range(16))
    # Slots are in orders of their own: no future is the lucky one throughout.
    assert len({tuple((chances[:, slot] * 16).astype(int)) for slot in range(9)}) > 1
