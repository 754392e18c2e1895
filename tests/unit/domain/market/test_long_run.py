"""Where a chain is in the long run, whatever it is made of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.long_run import long_run


@given(up=st.floats(1e-4, 1), down=st.floats(1e-4, 1))
def test_two_states_are_met_in_proportion_to_the_chances_of_the_other_one(up, down):
    found = long_run(np.array([[1 - up, up], [down, 1 - down]]))

    assert found == pytest.approx([down / (up + down), up / (up + down)], rel=1e-6)


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_a_slot_later_it_is_the_same(states, seed):
    rows = np.random.default_rng(seed).random((states, states)) + 0.01
    matrix = rows / rows.sum(axis=1, keepdims=True)

    found = long_run(matrix)

    assert found.sum() == pytest.approx(1)
    assert found @ matrix == pytest.approx(found)


def test_a_chain_that_goes_to_and_fro_is_as_often_in_each():
    assert long_run(np.array([[0.0, 1.0], [1.0, 0.0]])) == pytest.approx([0.5, 0.5])
