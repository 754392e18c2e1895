"""What learning cost so far: regret against the best fixed policy in hindsight."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.selection.rules import PPB
from spotline.domain.units import PPM

RISK = 0.05
"""The chance that a bound which was widened for sampled counts does not hold."""

MicroUsdArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRegret:
    """Regret over the `jobs` whose policy was drawn and whose feedback has come; micro-USD.

    All utilities are those of full replays on what each job was offered, so they differ only by
    policy. `regret_micro_usd` is that of the policies really drawn, `expected_regret_micro_usd`
    that of the weights they were drawn from; both are negative where switching beat every fixed
    policy. `regret_ppm` is the share of the best fixed policy's utility, 0 where that is not > 0.
    `bound_micro_usd` is what the expected regret cannot exceed, delays included; 0 where the rule
    guarantees nothing in dollars. Where counts were only believed, `widened_micro_usd` of it is for
    the sampling of their paths and for the belief (`RegretAccount.widening`).
    """

    jobs: int
    best_policy_id: str
    best_utility_micro_usd: int
    regret_micro_usd: int
    expected_regret_micro_usd: int
    regret_ppm: int
    bound_micro_usd: int
    widened_micro_usd: int = 0

    @property
    def regret_jobs(self) -> float:
        """Expected regret in mean utilities of the best fixed policy; 0 where that is not > 0."""
        if self.best_utility_micro_usd <= 0:
            return 0.0
        return self.expected_regret_micro_usd * self.jobs / self.best_utility_micro_usd


class RegretAccount:
    """Adds up, in whole micro-USD, what was earned and what every policy would have."""

    def __init__(self, policy_ids: Sequence[str]) -> None:
        self._policy_ids = tuple(policy_ids)
        self._by_policy = np.zeros(len(self._policy_ids), dtype=np.int64)
        self._drawn = 0
        self._expected = 0
        self._sampled_square = 0.0
        self._misfit = 0.0
        self.jobs = 0

    @property
    def best(self) -> int:
        """Index of the policy that would have earned most; the first of several."""
        return int(self._by_policy.argmax())

    def add(self, utility: MicroUsdArray, *, drawn: int, weights_ppb: Sequence[int]) -> None:
        """Add one job.

        Parameters
        ----------
        utility
            What every policy earns on it, micro-USD, shape (policies,).
        drawn
            Index of the policy it really had.
        weights_ppb
            The weights that was drawn from, parts per billion, one per policy.
        """
        self._by_policy = self._by_policy + utility
        self._drawn += int(utility[drawn])
        # Python integers: the products do not fit into 64 bits.
        weighted = sum(
            weight * one for weight, one in zip(weights_ppb, utility.tolist(), strict=True)
        )
        self._expected += weighted // PPB
        self.jobs += 1

    def note_sampled(self, width_micro_usd: int, *, paths: int, misfit_ppm: int) -> None:
        """Note that a job's utilities are means of `paths` sampled paths of counts.

        Parameters
        ----------
        width_micro_usd
            How far apart two utilities of it can be.
        misfit_ppm
            How far, at most, the paths' law is from the belief by all that was seen: total variation.
        """
        self._sampled_square += float(width_micro_usd) ** 2 / paths
        self._misfit += float(width_micro_usd) * misfit_ppm / PPM

    def widening(self) -> int:
        """How much more the expected regret may be than on the means of sampled paths, micro-USD.

        With a chance of at least 1 - `RISK`, for all M policies at once, for jobs of width W on K
        paths with a misfit of d:

            sqrt(2 ln(M / RISK) * sum of W^2 / K) + 2 * sum of W d

        The first is Azuma's and Hoeffding's inequality: paths of jobs are independent given what was
        seen, and regret is a difference of utilities, 2 W wide. 0 where counts were known.
        """
        spread = 2.0 * math.log(len(self._policy_ids) / RISK) * self._sampled_square
        return math.ceil(math.sqrt(spread) + 2.0 * self._misfit)

    def report(self, bound_micro_usd: int = 0) -> SelectionRegret | None:
        """The regret so far, None before the first job; a bound that is known (> 0) is widened."""
        if not self.jobs:
            return None
        widened = self.widening() if bound_micro_usd else 0
        best = int(self._by_policy[self.best])
        regret = best - self._drawn
        return SelectionRegret(
            jobs=self.jobs,
            best_policy_id=self._policy_ids[self.best],
            best_utility_micro_usd=best,
            regret_micro_usd=regret,
            expected_regret_micro_usd=best - self._expected,
            regret_ppm=regret * PPM // best if best > 0 else 0,
            bound_micro_usd=bound_micro_usd + widened,
            widened_micro_usd=widened,
        )

    def copy(self) -> RegretAccount:
        """An independent account in the same state."""
        # The array is replaced, never written into.
        return copy.copy(self)
