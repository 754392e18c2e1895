"""How much wider a bound on regret is where utilities are means over sampled paths of counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spotline.domain.selection.learner import Draw, Learner, PoolFeedback
from spotline.domain.selection.regret import RISK, RegretAccount
from spotline.domain.selection.rules import AdaHedge
from spotline.domain.units import PPM

POLICIES = ("a", "b", "c")
WIDTH = 1_000


def account(*jobs):
    found = RegretAccount(POLICIES)
    for utility, paths, misfit_ppm in jobs:
        found.add(np.array(utility), drawn=0, weights_ppb=(10**9, 0, 0))
        if paths:
            found.note_sampled(WIDTH, paths=paths, misfit_ppm=misfit_ppm)
    return found


def test_the_widening_is_what_its_formula_says():
    job = ((0, 5, 9), 4, 250_000)

    found = account(job, job).widening()

    spread = math.sqrt(2 * math.log(len(POLICIES) / RISK) * 2 * WIDTH**2 / 4)
    assert found == math.ceil(spread + 2 * 2 * WIDTH * 0.25)


def test_counts_that_were_known_widen_nothing():
    known = account(((0, 5, 9), 0, 0))

    assert known.widening() == 0
    assert known.report(700).bound_micro_usd == 700


def test_what_guarantees_nothing_is_not_widened_into_a_guarantee():
    report = account(((0, 5, 9), 4, PPM)).report(0)

    assert (report.bound_micro_usd, report.widened_micro_usd) == (0, 0)


@pytest.mark.parametrize("paths", [1, 8])
def test_true_regret_exceeds_the_sampled_one_by_more_as_rarely_as_is_said(paths):
    rng, jobs, beyond = np.random.default_rng(paths), 30, 0
    for _ in range(200):
        # Each path of a job is worth all or nothing: nothing spreads further.
        chances = rng.random((jobs, len(POLICIES)))
        sampled = account()
        for chance in chances:
            mean = WIDTH * rng.binomial(paths, chance) // paths
            sampled.add(mean, drawn=0, weights_ppb=(10**9, 0, 0))
            sampled.note_sampled(WIDTH, paths=paths, misfit_ppm=0)
        true = WIDTH * (chances.sum(axis=0).max() - chances[:, 0].sum())
        beyond += true - sampled.report().regret_micro_usd > sampled.widening()

    assert beyond <= RISK * 200


def test_a_learner_widens_by_the_range_that_a_job_s_utilities_can_have():
    learner = Learner(AdaHedge(len(POLICIES)), POLICIES)
    draw = Draw(weights=learner.weights(), policy_id="a")
    told = {"policy_ids": POLICIES, "floor_micro_usd": -40, "ceiling_micro_usd": 60}

    learner.learn(
        PoolFeedback(**told, utility_micro_usd=(10, 20, 90), sampled_paths=2, misfit_ppm=0), draw
    )

    # One earned more than its job's value: that is in the range, too.
    expected = math.ceil(math.sqrt(2 * math.log(len(POLICIES) / RISK) * 130**2 / 2))
    assert learner._account.widening() == expected
