"""`spotline`: the policy of every job drawn from weights that earlier jobs have moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.bench.quality.episodes import IntArray, Replays
from spotline.domain.selection.prior import initial_weights
from spotline.domain.selection.rules import DEFAULT_RULE, LearningRule, rule_named
from spotline.domain.selection.saved import saved_from
from spotline.domain.units import MICRO_USD_PER_USD

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """What the default earns: the expectation over the draw of each job's policy.

    `utility` is micro-USD, shape (jobs,); `weights` are those the policy was drawn from, shape
    (jobs, policies).
    """

    utility: FloatArray
    weights: FloatArray


def served(
    replays: Replays, rehearsed: Replays, policy_ids: Sequence[str], *, known_after_slots: int
) -> Served:
    """Choose a policy for every job in the order of their arrival.

    Parameters
    ----------
    replays, rehearsed
        Jobs of one world; `rehearsed` lie before all others and are what the warm start is
        learned from, as `spotline simulate --save-weights` would.
    policy_ids
        Of the pool, in the order of the replays' columns.
    known_after_slots
        How long after its first slot a job's utilities are known: its deadline, because all that
        follows it is on-demand at a known price.
    """
    rule = _warm(rehearsed, policy_ids)
    order = np.lexsort((replays.series, replays.start))
    arrives = replays.start[order]
    utility = replays.utility[order] / MICRO_USD_PER_USD
    earned = np.zeros(len(order))
    weights = np.zeros(utility.shape)
    learned = 0
    for place, arrival in enumerate(arrives.tolist()):
        while learned < place and arrives[learned] + known_after_slots <= arrival:
            rule.update(utility[learned], drawn_from=weights[learned])
            learned += 1
        weights[place] = rule.weights()
        earned[place] = weights[place] @ utility[place]
    back = np.argsort(order, kind="stable")
    return Served(utility=earned[back] * MICRO_USD_PER_USD, weights=weights[back])


def _warm(rehearsed: Replays, policy_ids: Sequence[str]) -> LearningRule:
    policies = len(policy_ids)
    rule = rule_named(DEFAULT_RULE, policies, prior=initial_weights(policy_ids))
    for job in np.lexsort((rehearsed.series, rehearsed.start)):
        rule.update(rehearsed.utility[job] / MICRO_USD_PER_USD, served=False)
    if not rule.rounds:
        return rule
    saved = saved_from(rule, policy_ids, "the first half")
    return rule_named(DEFAULT_RULE, policies, prior=saved.prior(policy_ids), gap=saved.gap_worth)


def of_jobs(replays: Replays, jobs: IntArray) -> Replays:
    """Some of the jobs."""
    return Replays(
        series=replays.series[jobs],
        start=replays.start[jobs],
        utility=replays.utility[jobs],
        on_time=replays.on_time[jobs],
        optimum=replays.optimum[jobs],
    )
