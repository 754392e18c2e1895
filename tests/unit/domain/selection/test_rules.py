"""Learning which policy to trust."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spotline.bench.quality.targets import adahedge_bound
from spotline.domain.selection.rules import (
    PPB,
    RULES,
    AdaHedge,
    ExponentiatedGradient,
    drawn_index,
    normalised_utility,
    rule_named,
    weights_ppb,
)

POLICIES = 5
UTILITIES = npst.arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.just(POLICIES)),
    elements=st.floats(0, 1, allow_nan=False),
)
# How many more jobs arrive before a job's feedback comes; the order of arrival is mixed by it.
DELAYS = st.lists(st.integers(0, 20), min_size=30, max_size=30)
SLACK = 1e-9


def served(rule, utilities, delays=None):
    """Expected utility of every job, its feedback late by `delays` jobs, and the regret."""
    jobs = len(utilities)
    due = [(job + (delays[job] if delays else 0), job) for job in range(jobs)]
    due.sort()
    drawn_from: dict[int, np.ndarray] = {}
    earned = []
    for job in range(jobs + 1 + max(delays or [0])):
        if job < jobs:
            drawn_from[job] = rule.weights()
            earned.append(float(drawn_from[job] @ utilities[job]))
        while due and due[0][0] <= job:
            over = due.pop(0)[1]
            rule.update(utilities[over], drawn_from=drawn_from[over])
    return np.array(earned), float(utilities.sum(axis=0).max()) - sum(earned)


def alternating(jobs: int) -> np.ndarray:
    """Whoever leads loses next."""
    utilities = np.zeros((jobs, 2))
    utilities[0, 1] = 0.5
    utilities[1::2, 0] = 1.0
    utilities[2::2, 1] = 1.0
    return utilities


# --- what holds for every rule ----------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RULES))
@given(utilities=UTILITIES)
def test_weights_stay_a_distribution(name: str, utilities: np.ndarray) -> None:
    rule = RULES[name](POLICIES)
    for utility in utilities:
        rule.update(utility)
        weights = rule.weights()
        assert math.isclose(weights.sum(), 1.0, abs_tol=1e-9)
        assert (weights >= 0).all()
        assert sum(weights_ppb(weights)) == PPB


@pytest.mark.parametrize("name", sorted(RULES))
@given(utilities=UTILITIES)
def test_the_order_of_policies_is_irrelevant(name: str, utilities: np.ndarray) -> None:
    rule, mirrored = RULES[name](POLICIES), RULES[name](POLICIES)
    # Equal to sixteen digits is not equal: a leader by rounding alone would depend on the order.
    rounded = utilities.round(6)
    for utility in rounded:
        rule.update(utility)
        mirrored.update(utility[::-1])

    assert np.allclose(rule.weights(), mirrored.weights()[::-1], atol=1e-6)


@pytest.mark.parametrize("name", sorted(RULES))
@given(
    utilities=npst.arrays(
        np.int64, st.tuples(st.integers(1, 30), st.just(POLICIES)), elements=st.integers(0, 8)
    ),
    shifts=st.lists(st.integers(0, 8), min_size=30, max_size=30),
)
def test_adding_a_constant_to_every_policy_changes_nothing(
    name: str, utilities: np.ndarray, shifts: list[int]
) -> None:
    rule, shifted = RULES[name](POLICIES), RULES[name](POLICIES)
    for utility, shift in zip(utilities / 16.0, shifts, strict=False):
        rule.update(utility)
        shifted.update(utility + shift / 16.0)

    assert np.allclose(rule.weights(), shifted.weights(), atol=1e-9)


@given(utilities=UTILITIES, scale=st.sampled_from([1e-3, 0.25, 7.0, 1e4]))
def test_adahedge_asks_for_no_scale(utilities: np.ndarray, scale: float) -> None:
    rule, scaled = AdaHedge(POLICIES), AdaHedge(POLICIES)
    for utility in utilities.round(6):
        rule.update(utility)
        scaled.update(scale * utility)

    assert np.allclose(rule.weights(), scaled.weights(), atol=1e-6)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_pool_of_one_has_all_the_weight(name: str) -> None:
    rule = RULES[name](1)
    rule.update(np.array([0.3]))
    rule.update(np.array([0.1]))

    assert rule.weights().tolist() == [1.0]
    assert rule.regret_bound(0) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_prior_is_the_first_weights(name: str) -> None:
    prior = np.array([0.7, 0.2, 0.1, 0.0])

    rule = RULES[name](4, prior=prior)

    assert np.allclose(rule.weights(), prior)


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize(
    "prior", [np.array([1.0]), np.array([0.0, 0.0]), np.array([1.0, -1.0]), np.array([1.0, np.nan])]
)
def test_a_prior_that_is_none_is_refused(name: str, prior: np.ndarray) -> None:
    with pytest.raises(ValueError, match="prior"):
        RULES[name](2, prior=prior)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_copy_learns_on_its_own(name: str) -> None:
    rule = RULES[name](2)
    rule.update(np.array([0.6, 0.5]))
    before = rule.weights()

    other = rule.copy()
    other.update(np.array([0.0, 1.0]))

    assert rule.rounds == 1
    assert (rule.weights() == before).all()
    assert (other.weights() != before).all()


@pytest.mark.parametrize("name", sorted(RULES))
@given(utilities=UTILITIES, delays=DELAYS)
def test_regret_never_exceeds_the_rules_own_account_however_late_feedback_is(
    name: str, utilities: np.ndarray, delays: list[int]
) -> None:
    prior = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    for rule in (RULES[name](POLICIES), RULES[name](POLICIES, prior=prior)):
        earned, _ = served(rule, utilities, delays[: len(utilities)])

        for policy in range(POLICIES):
            bound = rule.regret_bound(policy)
            assert bound is not None
            assert utilities[:, policy].sum() - earned.sum() <= bound + 1e-7


@pytest.mark.parametrize("name", sorted(RULES))
@given(rehearsed=UTILITIES, utilities=UTILITIES)
def test_rehearsals_teach_but_only_served_jobs_are_accounted_for(
    name: str, rehearsed: np.ndarray, utilities: np.ndarray
) -> None:
    rule = RULES[name](POLICIES)
    for utility in rehearsed:
        rule.update(utility, served=False)

    earned, _ = served(rule, utilities)

    for policy in range(POLICIES):
        bound = rule.regret_bound(policy)
        assert bound is not None
        assert utilities[:, policy].sum() - earned.sum() <= bound + 1e-7


# --- exponentiated gradient -------------------------------------------------------------------


@given(utilities=UTILITIES)
def test_exponentiated_gradient_keeps_its_bound_where_the_horizon_is_known(
    utilities: np.ndarray,
) -> None:
    rule = ExponentiatedGradient(POLICIES, horizon_jobs=len(utilities))
    bound = math.sqrt(len(utilities) * math.log(POLICIES) / 2)

    _, regret = served(rule, utilities)

    assert regret <= bound + SLACK
    assert rule.regret_bound(int(utilities.sum(axis=0).argmax())) <= bound + SLACK


@given(utilities=UTILITIES)
def test_exponentiated_gradient_keeps_its_anytime_bound(utilities: np.ndarray) -> None:
    bound = 1.5 * math.sqrt(len(utilities) * math.log(POLICIES) / 2)

    _, regret = served(ExponentiatedGradient(POLICIES), utilities)

    assert regret <= bound + SLACK


@pytest.mark.parametrize(("horizon", "jobs_in_rate"), [(0, 3), (100, 100), (2, 3)])
def test_exponentiated_gradient_follows_its_formula(horizon: int, jobs_in_rate: int) -> None:
    rule = ExponentiatedGradient(2, horizon_jobs=horizon)
    rule.update(np.array([1.0, 0.0]))
    rule.update(np.array([1.0, 0.5]))
    rate = math.sqrt(8.0 * math.log(2) / jobs_in_rate)

    odds = rule.weights()[0] / rule.weights()[1]

    assert odds == pytest.approx(math.exp(rate * (2.0 - 0.5)))


@pytest.mark.parametrize("utility", [[0.5, 1.5], [-0.1, 0.5], [0.5, math.nan]])
def test_exponentiated_gradient_refuses_utilities_outside_its_bounds(utility: list[float]) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]|finite"):
        ExponentiatedGradient(2).update(np.array(utility))


# --- AdaHedge ---------------------------------------------------------------------------------


@given(utilities=UTILITIES)
def test_adahedge_keeps_its_regret_bound(utilities: np.ndarray) -> None:
    spread = float((utilities.max(axis=1) - utilities.min(axis=1)).max())
    bound = adahedge_bound(len(utilities), POLICIES, spread)
    rule = AdaHedge(POLICIES)

    _, regret = served(rule, utilities)

    assert regret <= bound + SLACK
    own = rule.regret_bound(int(utilities.sum(axis=0).argmax()))
    assert own <= bound + 1e-7


def test_adahedge_concentrates_on_a_clear_leader_at_once() -> None:
    rule = AdaHedge(3)
    rule.update(np.array([0.9, 0.8, 0.1]))

    assert rule.weights()[0] > 0.5


def test_a_leader_far_ahead_that_fails_once_costs_no_more_than_that() -> None:
    rule = AdaHedge(2)
    for _ in range(5000):
        rule.update(np.array([1.0, 0.0]))

    # Its weight is one to all digits: the mix loss must not be the logarithm of zero.
    rule.update(np.array([0.0, 1.0]))

    assert np.isfinite(rule.weights()).all()
    assert rule.weights()[0] > 0.99


def test_following_the_leader_fails_where_the_rules_do_not() -> None:
    utilities = alternating(1000)
    leader = np.vstack([np.zeros(2), utilities.cumsum(axis=0)[:-1]]).argmax(axis=1)
    followed = utilities[np.arange(1000), leader].sum()

    adahedge, regret = served(AdaHedge(2), utilities)
    gradient, _ = served(ExponentiatedGradient(2, horizon_jobs=1000), utilities)

    assert followed == 0.0
    assert adahedge.mean() > 0.48
    assert gradient.mean() > 0.48
    assert regret <= adahedge_bound(1000, 2, 1.0)


def test_late_feedback_that_always_misleads_slows_adahedge_down() -> None:
    # Forty jobs each: feedback 20 jobs late says the opposite of what half of them need.
    turns = (np.arange(4000) // 40) % 2
    utilities = np.column_stack([turns, 1 - turns]).astype(float)
    late = [20] * len(utilities)

    rule = AdaHedge(2)
    earned, regret = served(rule, utilities, late)
    halves = 2000 - earned[:2000].sum() * 2, 2000 - earned[2000:].sum() * 2

    assert regret < 0.07 * len(utilities)
    # Sublinear: the second half costs less than the first.
    assert halves[1] < 0.8 * halves[0]
    assert regret <= rule.regret_bound(0) + 1e-7


def test_the_order_in_which_late_feedback_comes_does_not_matter_to_what_is_believed() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    utilities = rng.random((40, POLICIES))
    rule, other = ExponentiatedGradient(POLICIES), ExponentiatedGradient(POLICIES)
    for utility in utilities:
        rule.update(utility)
    for utility in utilities[::-1]:
        other.update(utility)

    assert np.allclose(rule.weights(), other.weights())


def test_decay_follows_drift_and_guarantees_nothing() -> None:
    jobs = 600
    utilities = np.zeros((jobs, 2))
    utilities[: jobs // 2, 0] = 1.0
    utilities[jobs // 2 :, 1] = 1.0
    forgetful = AdaHedge(2, decay=0.9)

    kept, _ = served(AdaHedge(2), utilities)
    moved, _ = served(forgetful, utilities)

    assert moved.sum() > kept.sum() + 100
    assert forgetful.regret_bound(0) is None


def test_a_prior_with_a_gap_behind_it_is_moved_less_by_the_first_job() -> None:
    prior = np.array([0.9, 0.1])
    first = np.array([0.4, 0.5])
    bare, backed = AdaHedge(2, prior=prior), AdaHedge(2, prior=prior, gap=5.0)

    bare.update(first)
    backed.update(first)

    assert bare.weights()[0] < 0.85
    assert backed.weights()[0] > 0.89


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"decay": 0.0}, "decay"),
        ({"decay": 1.5}, "decay"),
        ({"gap": -1.0}, "gap"),
        ({"gap": math.inf}, "gap"),
        ({"horizon_jobs": 9}, "horizon_jobs"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rule_named("adahedge", 3, **options)


def test_rules_are_made_by_name() -> None:
    gradient = rule_named("exponentiated_gradient", 3, horizon_jobs=10)

    assert isinstance(gradient, ExponentiatedGradient)
    with pytest.raises(ValueError, match="adahedge, exponentiated_gradient"):
        rule_named("squint", 3)
    with pytest.raises(ValueError, match="decay"):
        rule_named("exponentiated_gradient", 3, decay=0.9)
    with pytest.raises(ValueError, match="horizon_jobs"):
        ExponentiatedGradient(3, horizon_jobs=-1)
    with pytest.raises(ValueError, match="policies"):
        AdaHedge(0)


# --- drawing and scaling ----------------------------------------------------------------------


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_draw_only_lands_on_positive_weights(weights: list[float], uniform: float) -> None:
    array = np.array(weights) + 1e-12
    ppb = weights_ppb(array / array.sum())

    assert ppb[drawn_index(ppb, uniform)] > 0


def test_utilities_scale_by_their_bounds_and_are_clipped_to_them() -> None:
    scaled = normalised_utility(
        np.array([-20, -10, 0, 30, 31], dtype=np.int64), floor_micro_usd=-10, ceiling_micro_usd=30
    )

    assert scaled.tolist() == [0.0, 0.0, 0.25, 1.0, 1.0]
