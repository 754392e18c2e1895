"""The share of slots with spot: an upper bound that holds where slots depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.limits import judgement
from spotline.domain.limits.judgement import SpotShare
from spotline.domain.market import law
from spotline.domain.units import PPM
from tests.depth import examples

NOMINAL = 0.95
RUNS = 600
COUNTS = st.lists(st.integers(0, 8), min_size=1, max_size=60)


def chains(slots: int, gone: float, there: float, runs: int, seed: int) -> np.ndarray:
    """Series of 0 and 1 whose bursts last so long on average, from where they are in the long run."""
    rng = np.random.default_rng(seed)
    series = np.zeros((runs, slots), dtype=np.int64)
    series[:, 0] = rng.random(runs) < there / (gone + there)
    for slot in range(1, slots):
        drawn = rng.random(runs)
        stays, comes = drawn >= 1 / there, drawn < 1 / gone
        series[:, slot] = np.where(series[:, slot - 1] == 1, stays, comes)
    return series


def covered(slots: int, gone: float, there: float, seed: int) -> float:
    """The share of runs in which the bound is no lower than the true share."""
    true = there / (gone + there) * PPM
    series = chains(slots, gone, there, RUNS, seed)
    return sum(SpotShare(each)(1) >= true - 2 for each in series.tolist()) / RUNS


@settings(max_examples=examples(10), deadline=None)
@given(
    slots=st.sampled_from((48, 96, 192)),
    gone=st.floats(1.5, 24.0),
    there=st.floats(1.5, 24.0),
    seed=st.integers(0, 1000),
)
def test_the_bound_holds_as_often_as_it_says_where_bursts_are_a_fraction_of_what_was_seen(
    slots, gone, there, seed
):
    gone, there = min(gone, slots / 8), min(there, slots / 8)

    # Four standard errors of the share of so many runs.
    assert covered(slots, gone, there, seed) >= NOMINAL - 0.036


def test_slots_of_one_burst_tell_less_than_slots_that_are_independent():
    in_bursts = ([0] * 12 + [1] * 12) * 4
    by_turns = [0, 1] * 48

    assert SpotShare(in_bursts)(1) > SpotShare(by_turns)(1) + PPM // 10


def test_few_slots_are_no_evidence_and_a_day_is():
    assert SpotShare([])(4) == PPM
    assert SpotShare([4] * 98)(4) == PPM
    assert SpotShare([0])(1) > 900_000
    assert SpotShare([0, 0])(1) > 800_000
    assert SpotShare([0] * 48)(1) < 330_000
    assert SpotShare([0] * 192)(1) < 130_000


@given(COUNTS, st.integers(1, 8))
def test_a_share_lies_between_what_was_seen_and_all(counts, wanted):
    seen = sum(count >= wanted for count in counts) * PPM // len(counts)

    # The bound is rounded down by parts per million.
    assert seen - 3 <= SpotShare(counts)(wanted) <= PPM


@given(COUNTS)
def test_more_instances_are_there_no_more_often(counts):
    share = SpotShare(counts)
    seen = [sum(count >= wanted for count in counts) for wanted in range(1, 9)]

    for wanted in range(1, 8):
        if seen[wanted] == seen[wanted - 1]:
            assert share(wanted + 1) == share(wanted)


def test_bursts_are_assumed_to_be_as_the_law_assumes_them():
    assert law._LEVEL_WEIGHT == judgement._ASSUMED_WEIGHT
    assert pytest.approx(judgement._ASSUMED_STAY_PPM / PPM) == law._ASSUMED_STAY
