"""Beliefs over zones: Bayes' rule, and refusals."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.beliefs.zone_beliefs import ZoneBeliefs, ZoneLaws
from spotline.domain.market.run_law import RunLaw
from tests.depth import examples


def law(down, up):
    return RunLaw(age_starts=(1, 3), ends=np.array([down, up]))


LAWS = (law((0.5, 0.1), (0.2, 0.05)), law((0.3, 0.3), (0.4, 0.6)))


def laws_of(*weights):
    return ZoneLaws(laws=LAWS, weights=np.array(weights))


def joint(laws, zone, seen):
    """Chance of what was seen, by summing over all paths of law and state."""
    buckets, total = laws.buckets, 0.0
    for index in range(len(laws.laws)):
        matrix = laws.transitions[index]
        states = range(2 * buckets)
        for path in itertools.product(states, repeat=len(seen)):
            if any(
                up is not None and up != (s >= buckets) for s, up in zip(path, seen, strict=True)
            ):
                continue
            chance = laws.prior[zone, index, path[0]]
            for before, after in itertools.pairwise(path):
                chance *= matrix[before, after]
            total += chance
    return total


@settings(max_examples=examples(20), deadline=None)
@given(
    seen=st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=4),
    weight=st.floats(0.05, 0.95),
)
def test_the_chance_to_be_up_is_that_of_all_paths_that_fit(seen, weight):
    laws = laws_of((weight, 1.0 - weight), (0.5, 0.5))
    beliefs = ZoneBeliefs.before(laws)
    for up in seen:
        if up is not None:
            beliefs.observe(0, up=up)
        beliefs.advance()
    expected = joint(laws, 0, [*seen, True]) / joint(laws, 0, [*seen, None])
    assert beliefs.up_chances()[0] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(beliefs.mass.sum(axis=(1, 2)), 1.0)
    # The other zone was not looked at: it is as it always is.
    assert beliefs.up_chances()[1] == pytest.approx(laws.prior[1, :, 2:].sum())


def test_a_copy_is_its_own():
    beliefs = ZoneBeliefs.before(laws_of((0.5, 0.5)))
    beliefs.copy().observe(0, up=True)
    assert beliefs.up_chances()[0] < 1.0


@pytest.mark.parametrize(
    ("laws", "weights", "expected"),
    [
        (LAWS, [[1.0]], "must have shape"),
        (LAWS, [[0.7, 0.7]], "sum to 1"),
        (
            (LAWS[0], RunLaw(age_starts=(1, 2), ends=LAWS[0].ends)),
            [[0.5, 0.5]],
            "share their age buckets",
        ),
    ],
)
def test_weights_that_are_no_prior_are_refused(laws, weights, expected):
    with pytest.raises(ValueError, match=expected):
        ZoneLaws(laws=laws, weights=np.array(weights))
