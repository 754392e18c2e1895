"""Learning which policy to trust."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spotline.domain.selection.rules import (
    PPB,
    RULES,
    AdaHedge,
    ExponentiatedGradient,
    drawn_index,
    normalised_utility,
    weights_ppb,
)

UTILITIES = npst.arrays(
    np.float64,
    st.tuples(st.integers(1, 60), st.just(5)),
    elements=st.floats(0, 1, allow_nan=False),
)


def regret(rule, utilities: np.ndarray) -> float:
    earned = 0.0
    for utility in utilities:
        earned += float(rule.weights() @ utility)
        rule.update(utility)
    return float(utilities.sum(axis=0).max()) - earned


@pytest.mark.parametrize("name", sorted(RULES))
@given(utilities=UTILITIES)
def test_weights_stay_a_distribution(name: str, utilities: np.ndarray) -> None:
    rule = RULES[name](5)
    for utility in utilities:
        rule.update(utility)
        weights = rule.weights()
        assert math.isclose(weights.sum(), 1.0, abs_tol=1e-9)
        assert (weights >= 0).all()
        assert sum(weights_ppb(weights)) == PPB


@pytest.mark.parametrize("name", sorted(RULES))
@given(utilities=UTILITIES)
def test_the_order_of_policies_is_irrelevant(name: str, utilities: np.ndarray) -> None:
    rule, mirrored = RULES[name](5), RULES[name](5)
    for utility in utilities:
        rule.update(utility)
        mirrored.update(utility[::-1])

    assert np.allclose(rule.weights(), mirrored.weights()[::-1], atol=1e-9)


@given(utilities=UTILITIES)
def test_exponentiated_gradient_keeps_its_regret_bound(utilities: np.ndarray) -> None:
    rounds = len(utilities)
    # Anytime rate sqrt(8 ln M / t): Cesa-Bianchi and Lugosi (2006), theorem 2.3.
    bound = 2.0 * math.sqrt(rounds / 2.0 * math.log(5)) + math.sqrt(math.log(5) / 8.0)

    assert regret(ExponentiatedGradient(5), utilities) <= bound + 1e-9


@given(utilities=UTILITIES)
def test_adahedge_keeps_its_regret_bound(utilities: np.ndarray) -> None:
    spread = float((utilities.max(axis=1) - utilities.min(axis=1)).max())
    rounds = len(utilities)
    # de Rooij, van Erven, Gruenwald, Koolen (2014), theorem 8, for losses of range `spread`.
    bound = spread * math.sqrt(rounds * math.log(5)) + spread * (16.0 / 3.0 * math.log(5) + 2.0)

    assert regret(AdaHedge(5), utilities) <= bound + 1e-9


def test_adahedge_concentrates_on_a_clear_leader_at_once() -> None:
    rule = AdaHedge(3)
    rule.update(np.array([0.9, 0.8, 0.1]))

    assert rule.weights()[0] > 0.5


def test_exponentiated_gradient_follows_its_formula() -> None:
    rule = ExponentiatedGradient(2)
    rule.update(np.array([1.0, 0.0]))
    rule.update(np.array([1.0, 0.5]))
    rate = math.sqrt(8.0 * math.log(2) / 2)

    assert np.allclose(
        rule.weights(),
        np.exp(rate * np.array([2.0, 0.5])) / np.exp(rate * np.array([2.0, 0.5])).sum(),
    )


@pytest.mark.parametrize("name", sorted(RULES))
def test_utilities_outside_the_unit_interval_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        RULES[name](2).update(np.array([0.5, 1.5]))


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_draw_only_lands_on_positive_weights(weights: list[float], uniform: float) -> None:
    array = np.array(weights) + 1e-12
    ppb = weights_ppb(array / array.sum())

    assert ppb[drawn_index(ppb, uniform)] > 0


def test_utilities_scale_by_the_jobs_own_bounds() -> None:
    scaled = normalised_utility(
        np.array([-10, 0, 30], dtype=np.int64), floor_micro_usd=-10, ceiling_micro_usd=30
    )

    assert scaled.tolist() == [0.0, 0.25, 1.0]
