"""What the selector has learned: regret in dollars, and what is kept for the next run."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.codec import decode
from spotline.contracts.mapping import digest
from spotline.domain.market.generate import generate
from spotline.domain.policies.registry import POOL
from spotline.domain.selection.learner import Draw, Learner, PoolFeedback
from spotline.domain.selection.regret import RegretAccount
from spotline.domain.selection.rules import AdaHedge, ExponentiatedGradient
from spotline.domain.selection.saved import (
    EQUAL_SHARE,
    WORTH_JOBS,
    SavedWeights,
    parse_saved,
    saved_from,
)
from spotline.replay.jobs import generated_jobs
from spotline.replay.simulate import SimulationOptions, simulate
from spotline.replay.summary import regret_as_json, regret_line

USD = 1_000_000
IDS = ("calm", "bold")


def feedback(calm_usd: float, bold_usd: float, *, ceiling_usd: int = 100) -> PoolFeedback:
    return PoolFeedback(
        policy_ids=IDS,
        utility_micro_usd=(round(calm_usd * USD), round(bold_usd * USD)),
        floor_micro_usd=-100 * USD,
        ceiling_micro_usd=ceiling_usd * USD,
    )


def drawn(policy_id: str, calm: float = 0.5) -> Draw:
    return Draw(weights=np.array([calm, 1.0 - calm]), policy_id=policy_id)


# --- regret -----------------------------------------------------------------------------------


def test_regret_is_counted_against_the_policy_that_was_best_in_hindsight() -> None:
    learner = Learner(AdaHedge(2), IDS)

    learner.learn(feedback(10, 30), drawn("calm"))
    learner.learn(feedback(50, 20), drawn("calm", 0.9))
    regret = learner.regret()

    assert regret is not None
    assert (regret.jobs, regret.best_policy_id) == (2, "calm")
    assert regret.best_utility_micro_usd == 60 * USD
    # Calm was drawn twice, so nothing was lost; its weights would have earned 20 and 47.
    assert regret.regret_micro_usd == 0
    assert regret.expected_regret_micro_usd == (60 - 20 - 47) * USD
    assert regret.regret_jobs == pytest.approx(-7 / 30)


def test_regret_is_a_share_of_what_the_best_fixed_policy_earns() -> None:
    learner = Learner(AdaHedge(2), IDS)

    learner.learn(feedback(75, 100), drawn("calm"))
    regret = learner.regret()

    assert regret is not None
    assert regret.regret_micro_usd == 25 * USD
    assert regret.regret_ppm == 250_000


def test_there_is_no_share_of_a_loss() -> None:
    learner = Learner(AdaHedge(2), IDS)

    learner.learn(feedback(-10, -20), drawn("bold"))
    regret = learner.regret()

    assert regret is not None
    assert (regret.regret_micro_usd, regret.regret_ppm, regret.regret_jobs) == (10 * USD, 0, 0.0)


def test_rehearsals_move_weights_but_cost_nothing() -> None:
    learner = Learner(AdaHedge(2), IDS)

    learner.learn(feedback(10, 30), None)

    assert learner.regret() is None
    assert learner.weights()[1] > 0.5


def test_a_draw_from_another_pool_is_learned_from_but_not_accounted_for() -> None:
    learner = Learner(AdaHedge(2), IDS)

    learner.learn(feedback(10, 30), drawn("retired"))

    assert learner.regret() is None
    assert learner.rule.rounds == 1


@given(
    jobs=st.lists(
        st.tuples(
            st.integers(-(10**9), 10**10), st.integers(-(10**9), 10**10), st.sampled_from(IDS)
        ),
        min_size=1,
        max_size=20,
    )
)
def test_the_expected_regret_in_dollars_stays_within_the_bound_that_is_published(jobs) -> None:
    learner = Learner(AdaHedge(2), IDS)
    for calm, bold, policy_id in jobs:
        draw = Draw(weights=learner.weights(), policy_id=policy_id)
        learner.learn(feedback(calm / USD, bold / USD), draw)

    regret = learner.regret()

    assert regret is not None
    # Weights are accounted for in parts per billion.
    rounding = 20 * len(jobs) + 10
    assert regret.expected_regret_micro_usd <= regret.bound_micro_usd + rounding


def test_exponentiated_gradient_is_bounded_in_dollars_only_while_jobs_are_alike() -> None:
    learner = Learner(ExponentiatedGradient(2), IDS)

    learner.learn(feedback(10, 30), drawn("calm"))
    alike = learner.regret()
    learner.learn(feedback(10, 30, ceiling_usd=70), drawn("calm"))
    mixed = learner.regret()

    assert alike is not None
    assert mixed is not None
    assert alike.bound_micro_usd > alike.expected_regret_micro_usd
    assert mixed.bound_micro_usd == 0


def test_exponentiated_gradient_has_no_bound_for_what_left_its_bounds() -> None:
    learner = Learner(ExponentiatedGradient(2), IDS)

    learner.learn(feedback(10, 300), drawn("calm"))
    regret = learner.regret()

    assert regret is not None
    assert regret.bound_micro_usd == 0


def test_weights_times_micro_usd_do_not_overflow() -> None:
    account = RegretAccount(IDS)

    account.add(np.array([2**60, 2**60]), drawn=0, weights_ppb=(400_000_000, 600_000_000))
    report = account.report()

    assert report is not None
    assert report.expected_regret_micro_usd == 0


def test_a_copy_keeps_its_own_account() -> None:
    learner = Learner(AdaHedge(2), IDS)
    learner.learn(feedback(10, 30), drawn("calm"))

    other = learner.copy()
    other.learn(feedback(90, 10), drawn("bold"))

    assert learner.regret().jobs == 1
    assert other.regret().jobs == 2
    assert learner.rule.rounds == 1


def test_regret_reads_as_one_line_and_as_json() -> None:
    learner = Learner(AdaHedge(2), IDS)
    learner.learn(feedback(75, 100), drawn("calm"))
    regret = learner.regret()

    assert "against bold" in regret_line(regret)
    assert "$25.00 (25.00 %)" in regret_line(regret)
    assert regret_as_json(regret)["regret_usd"] == 25.0
    assert regret_as_json(None) is None


# --- recorded feedback of another pool --------------------------------------------------------


def test_feedback_of_a_smaller_pool_leaves_newcomers_their_weight() -> None:
    learner = Learner(AdaHedge(3), ("calm", "bold", "new"))

    for _ in range(3):
        learner.learn(feedback(10, 30), None)
    calm, bold, new = learner.weights()

    assert calm < new < bold


def test_feedback_of_a_larger_pool_is_read_by_name() -> None:
    learner = Learner(AdaHedge(1), ("bold",))

    learner.learn(feedback(10, 30), Draw(weights=np.array([1.0]), policy_id="bold"))
    regret = learner.regret()

    assert regret is not None
    assert regret.best_utility_micro_usd == 30 * USD


def test_an_update_recorded_before_there_was_regret_still_decodes() -> None:
    payload = base64.b64decode(
        "CAMSBWpvYi03GhZleHBvbmVudGlhdGVkX2dyYWRpZW50IhYKA21zdRD/k+vcAxiA7ov+//////8BIhMKCmFoYW5w"
        "KDAuNSkQARjAlrECKP///////////wEwgIj90un/////ATiAtMTDIQ=="
    )

    event = decode("selection.weights", payload)

    assert event.regret is None
    assert event.round == 3


# --- what is kept for the next run ------------------------------------------------------------


def learned(jobs: int = 200) -> Learner:
    rng = np.random.Generator(np.random.PCG64(4))
    learner = Learner(AdaHedge(2), IDS)
    for _ in range(jobs):
        calm, bold = rng.normal((40.0, 41.0), 5.0)
        learner.learn(feedback(calm, bold), None)
    return learner


def test_saved_weights_come_back_as_they_were() -> None:
    saved = saved_from(learned().rule, IDS, "a trace")

    assert parse_saved(saved.to_json()) == saved
    assert saved.rounds == 200


def test_a_warm_start_begins_with_the_saved_weights_but_rules_nobody_out() -> None:
    saved = SavedWeights(rule="adahedge", rounds=200, gap=40.0, weights={"calm": 0.0, "bold": 1.0})

    prior = saved.prior(IDS)

    assert prior.tolist() == pytest.approx([EQUAL_SHARE / 2, 1 - EQUAL_SHARE / 2])
    assert saved.gap_worth == pytest.approx(40.0 * WORTH_JOBS / 200)


def test_a_policy_that_the_file_does_not_know_starts_with_the_mean_weight() -> None:
    saved = SavedWeights(rule="adahedge", rounds=9, gap=1.0, weights={"calm": 0.25, "bold": 0.75})

    calm, new, bold = saved.prior(("calm", "new", "bold"))

    assert calm < new < bold
    assert new == pytest.approx(1 / 3)


def test_policies_that_the_pool_does_not_know_are_refused_by_name() -> None:
    saved = SavedWeights(
        rule="adahedge", rounds=9, gap=1.0, weights={"calm": 0.2, "gone": 0.3, "lost": 0.5}
    )

    with pytest.raises(ValueError, match=r"2 policies.*: gone, lost; save"):
        saved.prior(IDS)


def test_nothing_learned_is_nothing_to_save() -> None:
    with pytest.raises(ValueError, match="no job has ended"):
        saved_from(AdaHedge(2), IDS, "")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format_version": 2}, "format_version"),
        ({"rule": "squint"}, "adahedge"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"gap_usd": -1}, "gap_usd"),
        ({"gap_usd": float("nan")}, "gap_usd"),
        ({"weights": {}}, "weights"),
        ({"weights": {"calm": "much"}}, "weights"),
        ({"weights": {"calm": -0.5}}, "weights"),
        ({"provenance": None}, "provenance"),
    ],
)
def test_a_file_that_is_none_is_refused_with_what_is_wrong(change, problem: str) -> None:
    text = json.loads(saved_from(learned(3).rule, IDS, "").to_json())

    with pytest.raises(ValueError, match=problem):
        parse_saved(json.dumps(text | change))


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="must be JSON"):
        parse_saved("calm: 1")


def test_a_selector_starts_with_the_weights_in_its_options() -> None:
    favoured = POOL[3].policy_id
    saved = SavedWeights(rule="adahedge", rounds=80, gap=9.0, weights={favoured: 1.0, "msu": 0.0})
    options = SelectorOptions(warm_start=saved.to_json())

    state = SelectHandler(options, digest=digest).initial()

    # What the file does not know has the mean of what it does; so the favoured has twice that.
    weights = dict(zip((p.policy_id for p in POOL), state.learner.weights(), strict=True))
    assert weights[favoured] / weights["ahanp(0.3)"] == pytest.approx(2.0, rel=0.05)
    assert weights["msu"] < weights["ahanp(0.3)"] / 10
    assert sum(weights.values()) == pytest.approx(1.0)


def test_a_cold_selector_gives_half_its_weight_to_the_learned_control() -> None:
    cold = SelectHandler(SelectorOptions(), digest=digest).initial().learner.weights()
    papers = SelectHandler(SelectorOptions(rule="exponentiated_gradient"), digest=digest)

    weights = dict(zip((p.policy_id for p in POOL), cold, strict=True))
    assert weights["sdp"] == pytest.approx(0.5, abs=0.01)
    assert weights["msu"] == pytest.approx(0.5 / len(POOL))
    assert papers.initial().learner.weights() == pytest.approx(1.0 / len(POOL))


def test_a_run_accounts_for_every_job_and_can_be_saved_for_the_next() -> None:
    market = generate("mixed", seed=3, slots=96, slot_s=1800, start_ns=1_767_571_200 * 10**9)
    jobs = generated_jobs(market, 4, 3)
    cold = SimulationOptions(selector=SelectorOptions(rehearsals=0))

    first = simulate(market, jobs, ["spotline"], forecaster="persistence", options=cold).learner
    saved = saved_from(first.rule, first.policy_ids, market.source)
    warm = SimulationOptions(selector=SelectorOptions(rehearsals=0, warm_start=saved.to_json()))
    second = simulate(market, jobs, ["spotline"], forecaster="persistence", options=warm).learner

    assert first.regret().jobs == second.regret().jobs == 4
    assert saved.rounds == 4
    assert first.regret().expected_regret_micro_usd <= first.regret().bound_micro_usd
    assert second.regret().expected_regret_micro_usd < first.regret().expected_regret_micro_usd


def test_weights_saved_by_another_rule_are_refused_at_start() -> None:
    saved = saved_from(learned(3).rule, IDS, "")
    options = SelectorOptions(rule="exponentiated_gradient", warm_start=saved.to_json())

    with pytest.raises(ValueError, match="saved by the rule adahedge"):
        SelectHandler(options, digest=digest)


def test_a_warm_start_loses_less_than_a_cold_one_on_the_same_kind_of_market() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    means = np.linspace(95.0, 101.0, 30)
    ids = tuple(f"p{index}" for index in range(30))

    def run(rule: AdaHedge, jobs: int) -> float:
        utilities = means + rng.normal(0.0, 3.0, (jobs, 30)) + rng.normal(0.0, 30.0, (jobs, 1))
        earned = 0.0
        for utility in utilities:
            earned += float(rule.weights() @ utility)
            rule.update(utility)
        return float(utilities.sum(axis=0).max()) - earned

    trained = AdaHedge(30)
    cold = run(trained, 300)
    saved = saved_from(trained, ids, "")
    warm = run(AdaHedge(30, prior=saved.prior(ids), gap=saved.gap_worth), 300)

    assert warm < 0.8 * cold
