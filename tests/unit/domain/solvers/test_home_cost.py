"""What a job is expected to take on spot and on demand at a home, against every course of the market."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.solvers.home_cost import PARTS, SpotParts, Stint, slots_of_each_kind
from tests.depth import examples


def spot_of(first: int, share: float = 1.0) -> SpotParts:
    """Spot in the second of two run states, the first slot of which does `first` parts."""
    return SpotParts(
        first=np.array([0, first], dtype=np.int64),
        next=np.array([0, round(PARTS * share)], dtype=np.int64),
        share=np.array([0.0, share]),
    )


def course(states: tuple[int, ...], stint: Stint, spot: SpotParts) -> tuple[float, float]:
    """Slots held and bought on one course of the market, slot by slot."""
    left, ran, held = stint.parts, False, 0.0
    for slot, state in enumerate(states):
        done = int((spot.next if ran else spot.first)[state])
        later = min(stint.parts, PARTS * (stint.slots - slot - 1))
        if left > later and left - done > later:
            return held, left / PARTS
        ran = spot.share[state] > 0
        if ran:
            held += spot.share[state] * min(1.0, left / max(1, done))
        left -= done
        if left <= 0:
            return held, 0.0
    return held, left / PARTS


@settings(max_examples=examples(40), deadline=None)
@given(
    st.floats(0.05, 0.95),
    st.floats(0.05, 0.95),
    st.integers(1, 7),
    st.integers(1, 20),
    st.integers(0, PARTS),
    st.integers(0, 1),
)
def test_expected_slots_are_the_mean_over_all_courses(
    stays_down: float, stays_up: float, slots: int, parts: int, first: int, run_state: int
) -> None:
    matrix = np.array([[stays_down, 1 - stays_down], [1 - stays_up, stays_up]])
    stint, spot = Stint(slots, parts), spot_of(first)
    expected = np.zeros(2)
    for later in product(range(2), repeat=slots - 1):
        states = (run_state, *later)
        steps = pairwise(states)
        chance = float(np.prod([matrix[before, after] for before, after in steps]))
        expected += chance * np.array(course(states, stint, spot))

    found = slots_of_each_kind(matrix, run_state, stint, spot)

    assert found == pytest.approx(tuple(expected), abs=1e-9)


def test_spot_that_is_always_there_does_all_and_none_nothing() -> None:
    stays = np.eye(2)

    assert slots_of_each_kind(stays, 1, Stint(6, 4 * PARTS), spot_of(PARTS)) == (4.0, 0.0)
    assert slots_of_each_kind(stays, 0, Stint(6, 4 * PARTS), spot_of(PARTS)) == (0.0, 4.0)


def test_time_to_spare_waits_for_spot() -> None:
    matrix = np.array([[0.7, 0.3], [0.2, 0.8]])
    bought = [
        slots_of_each_kind(matrix, 0, Stint(slots, 4 * PARTS), spot_of(PARTS - 1))[1]
        for slots in range(4, 16)
    ]

    assert bought == sorted(bought, reverse=True)
    assert bought[-1] < bought[0] / 3
