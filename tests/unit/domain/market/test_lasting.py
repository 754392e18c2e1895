"""How long spot stays by a law: chances that follow from each other, and from the law itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.market.lasting import Lasting, lasting_of
from spotline.domain.market.law import MarketLaw, StateSpace, learn_law, quantised_rows
from tests.depth import examples


def law_of(rows: list[list[float]], level_counts: tuple[int, ...]) -> MarketLaw:
    """A law of levels that know no age."""
    matrix = np.array(rows)
    return MarketLaw(
        space=StateSpace(
            level_starts=tuple(range(len(level_counts))),
            age_starts=(1,),
            price_centres_ppm=(300_000,),
        ),
        level_counts=level_counts,
        run_ppb=quantised_rows(matrix / matrix.sum(axis=1, keepdims=True)),
        price_ppb=quantised_rows(np.ones((1, 1))),
    )


weights = st.lists(st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3), min_size=3, max_size=3)


@settings(max_examples=examples(40), deadline=None)
@given(weights, st.integers(0, 2), st.integers(1, 8), st.integers(1, 5))
def test_that_spot_lasts_is_the_sum_over_all_ways_on_which_it_does(
    rows: list[list[float]], run_state: int, least: int, slots: int
) -> None:
    law = law_of(rows, (0, 4, 8))
    matrix, counts = law.run_matrix(), law.run_counts()
    lasts = Lasting(law).lasts(run_state, least, slots)

    expected = 0.0
    for way in product(range(3), repeat=slots):
        if all(counts[state] >= least for state in way):
            steps = zip((run_state, *way[:-1]), way, strict=True)
            expected += float(np.prod([matrix[before, after] for before, after in steps]))

    assert float(np.prod(lasts)) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert np.all((lasts >= 0.0) & (lasts <= 1.0 + 1e-12))


@settings(max_examples=examples(20), deadline=None)
@given(weights, st.integers(0, 2), st.integers(1, 6))
def test_chances_of_run_states_are_the_powers_of_the_law(
    rows: list[list[float]], run_state: int, slots: int
) -> None:
    law = law_of(rows, (0, 4, 8))
    chances = Lasting(law).chances(run_state, slots)

    for slot in range(slots):
        wanted = np.linalg.matrix_power(law.run_matrix(), slot)[run_state]
        assert chances[slot] == pytest.approx(wanted, abs=1e-9)


def test_more_than_there_ever_is_lasts_no_slot() -> None:
    law = law_of([[0.5, 0.5], [0.5, 0.5]], (0, 4))

    assert not Lasting(law).lasts(1, 5, 3).any()
    assert lasting_of(law) is lasting_of(law)


def test_where_ends_fall_spot_that_has_lasted_lasts_longer() -> None:
    counts = [0, 4] * 3 + [0] * 8 + [4] * 20
    space = StateSpace(level_starts=(0, 1), age_starts=(1, 3, 9), price_centres_ppm=(300_000,))
    law = learn_law(counts, [300_000] * len(counts), space, falling_ends=True)
    ends = 1.0 - law.run_matrix().reshape(2, 3, 2, 3).sum(axis=3)[1, :, 1]

    first = [float(Lasting(law).lasts(3 + age, 4, 1)[0]) for age in range(3)]
    all_of_them = [float(np.prod(Lasting(law).lasts(3 + age, 4, 12))) for age in range(3)]

    assert first == pytest.approx((1.0 - ends).tolist())
    assert first == sorted(first)
    assert all_of_them == sorted(all_of_them)
    assert all_of_them[2] > all_of_them[0]
