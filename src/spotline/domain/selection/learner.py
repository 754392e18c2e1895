"""What the selector has learned: a rule, the pool it weighs, and what that cost so far."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.selection.regret import RegretAccount, SelectionRegret
from spotline.domain.selection.rules import (
    FloatArray,
    LearningRule,
    normalised_utility,
    weights_ppb,
)
from spotline.domain.units import MICRO_USD_PER_USD


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How a job got its policy: the weights at its arrival, shape (policies,), and which."""

    weights: FloatArray
    policy_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFeedback:
    """What every policy earns on one job: ids, micro-USD, and the bounds fixed before it ran.

    Means of `sampled_paths` where counts were only believed (0: known); for `misfit_ppm` see
    `RegretAccount.note_sampled`.
    """

    policy_ids: tuple[str, ...]
    utility_micro_usd: tuple[int, ...]
    floor_micro_usd: int
    ceiling_micro_usd: int
    sampled_paths: int = 0
    misfit_ppm: int = 0


class Learner:
    """Moves a rule's weights over the pool `policy_ids`, and keeps account of the regret.

    Rules that need no bounds learn in dollars, so the regret they keep small is the sum of
    dollars. A bounded rule learns shares of each job's range: dollars too while all ranges are
    equally wide, and only then its bound is one in dollars.
    """

    def __init__(self, rule: LearningRule, policy_ids: Sequence[str]) -> None:
        self.rule = rule
        self.policy_ids = tuple(policy_ids)
        self._index = {name: index for index, name in enumerate(self.policy_ids)}
        self._account = RegretAccount(self.policy_ids)
        # Micro-USD of the rule's unit; -1 once jobs differed in it, or left their bounds.
        self._unit = 0 if rule.bounded else MICRO_USD_PER_USD

    def weights(self) -> FloatArray:
        """The rule's weights, shape (policies,)."""
        return self.rule.weights()

    def learn(self, feedback: PoolFeedback, draw: Draw | None) -> None:
        """Learn from one job, or from a rehearsal, which no `draw` depended on.

        Recorded feedback may be of a smaller pool than today's, or of a larger one. A policy it
        does not know is taken to earn what the present weights earn on those it does.
        """
        utility = self._aligned(feedback)
        scaled = self._scaled(utility, feedback)
        if draw is None or draw.policy_id not in self._index:
            self.rule.update(scaled, served=False)
            return
        self.rule.update(scaled, drawn_from=draw.weights)
        self._account.add(
            utility,
            drawn=self._index[draw.policy_id],
            weights_ppb=weights_ppb(draw.weights),
        )
        if feedback.sampled_paths:
            floor = min(feedback.floor_micro_usd, int(utility.min()))
            width = max(feedback.ceiling_micro_usd, int(utility.max())) - floor
            self._account.note_sampled(
                width, paths=feedback.sampled_paths, misfit_ppm=feedback.misfit_ppm
            )

    def regret(self) -> SelectionRegret | None:
        """The regret so far, None before the first job that was served has ended."""
        if not self._account.jobs:
            return None
        bound = self.rule.regret_bound(self._account.best)
        known = bound is not None and self._unit > 0
        return self._account.report(round(bound * self._unit) if known and bound else 0)

    def copy(self) -> Learner:
        """An independent learner in the same state."""
        other = copy.copy(self)
        other.rule = self.rule.copy()
        other._account = self._account.copy()
        return other

    def _scaled(self, utility: npt.NDArray[np.int64], feedback: PoolFeedback) -> FloatArray:
        if not self.rule.bounded:
            dollars: FloatArray = utility / MICRO_USD_PER_USD
            return dollars
        floor, ceiling = feedback.floor_micro_usd, feedback.ceiling_micro_usd
        clipped = int(utility.min()) < floor or int(utility.max()) > ceiling
        self._unit = ceiling - floor if self._unit in (0, ceiling - floor) and not clipped else -1
        return normalised_utility(utility, floor_micro_usd=floor, ceiling_micro_usd=ceiling)

    def _aligned(self, feedback: PoolFeedback) -> npt.NDArray[np.int64]:
        if feedback.policy_ids == self.policy_ids:
            return np.array(feedback.utility_micro_usd, dtype=np.int64)
        found = dict(zip(feedback.policy_ids, feedback.utility_micro_usd, strict=True))
        known = np.array([name in found for name in self.policy_ids])
        utility = np.array([found.get(name, 0) for name in self.policy_ids], dtype=np.int64)
        if not known.any() or known.all():
            return utility
        weights = np.where(known, self.rule.weights(), 0.0)
        total = weights.sum()
        mean = float(weights @ utility) / total if total > 0.0 else float(utility[known].mean())
        utility[~known] = round(mean)
        return utility
