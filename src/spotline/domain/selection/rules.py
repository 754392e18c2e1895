"""Which policy to trust: full-information online learning over a pool.

When a job ends, every policy of the pool is replayed on what that job saw; the utilities move the
weights. Feedback is delayed (a job's utility is known only when it is over) and jobs overlap, so a
rule only ever sees sums: order within a delay does not matter to what it has learned.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
PPB = 1_000_000_000


class SelectionRule(Protocol):
    """Weights over a pool of `policies`, moved by one job's utilities at a time."""

    @property
    def name(self) -> str:
        """What events call the rule."""
        ...

    @property
    def rounds(self) -> int:
        """Jobs learned from."""
        ...

    def weights(self) -> FloatArray:
        """Probabilities, shape (policies,), summing to one."""
        ...

    def update(self, utility: FloatArray) -> None:
        """Learn from one job.

        Parameters
        ----------
        utility
            What every policy would have earned, scaled to [0, 1], shape (policies,).

        Raises
        ------
        ValueError
            Wrong shape, or a utility outside [0, 1].
        """
        ...

    def copy(self) -> SelectionRule:
        """An independent rule in the same state."""
        ...


def _checked(utility: FloatArray, policies: int) -> FloatArray:
    if utility.shape != (policies,):
        raise ValueError(f"utility must have shape ({policies},), was {utility.shape}")
    if not ((utility >= 0.0) & (utility <= 1.0)).all():
        raise ValueError("every utility must lie in [0, 1]")
    return utility


class ExponentiatedGradient:
    """w(m) proportional to exp(eta_t * sum of u(m)), as in arXiv:2512.20967.

    The horizon is not known in a service, so the rate is anytime: eta_t = sqrt(8 ln M / t) gives
    regret O(sqrt(T ln M)) for utilities in [0, 1] with fixed bounds (Cesa-Bianchi and Lugosi,
    2006, section 2.3).
    """

    name = "exponentiated_gradient"

    def __init__(self, policies: int) -> None:
        self.rounds = 0
        self._total = np.zeros(policies)

    def weights(self) -> FloatArray:
        """Probabilities, shape (policies,)."""
        rate = math.sqrt(8.0 * math.log(len(self._total)) / max(1, self.rounds))
        return _softmax(rate * self._total)

    def update(self, utility: FloatArray) -> None:
        """Learn from one job."""
        self._total = self._total + _checked(utility, len(self._total))
        self.rounds += 1

    def copy(self) -> ExponentiatedGradient:
        """An independent rule in the same state."""
        other = ExponentiatedGradient(len(self._total))
        other.rounds, other._total = self.rounds, self._total
        return other


class AdaHedge:
    """Exponential weights whose rate falls with the regret paid so far.

    de Rooij, van Erven, Gruenwald, Koolen (JMLR 2014): eta = ln M / Delta, Delta the cumulative
    mixability gap. It needs neither the horizon nor the range of the utilities and concentrates at
    once where policies really differ; worst-case regret about S sqrt(T ln M) + S (16/3 ln M + 2)
    with S the realised range.
    """

    name = "adahedge"

    def __init__(self, policies: int) -> None:
        self.rounds = 0
        self._loss = np.zeros(policies)
        self._gap = 0.0

    def weights(self) -> FloatArray:
        """Probabilities, shape (policies,)."""
        if self._gap <= 0.0:
            leaders: FloatArray = (self._loss == self._loss.min()).astype(np.float64)
            leaders /= leaders.sum()
            return leaders
        return _softmax(-self._rate() * self._loss)

    def update(self, utility: FloatArray) -> None:
        """Learn from one job."""
        loss = 1.0 - _checked(utility, len(self._loss))
        weights = self.weights()
        expected = float(weights @ loss)
        if self._gap <= 0.0:
            mixed = float(loss[weights > 0.0].min())
        else:
            rate = self._rate()
            least = float(loss.min())
            mixed = least - math.log(float(weights @ np.exp(-rate * (loss - least)))) / rate
        # Rounding may make the gap a hair negative.
        self._gap += max(0.0, expected - mixed)
        self._loss = self._loss + loss
        self.rounds += 1

    def copy(self) -> AdaHedge:
        """An independent rule in the same state."""
        other = AdaHedge(len(self._loss))
        other.rounds, other._loss, other._gap = self.rounds, self._loss, self._gap
        return other

    def _rate(self) -> float:
        return math.log(len(self._loss)) / self._gap


def _softmax(logits: FloatArray) -> FloatArray:
    exponentials = np.exp(logits - logits.max())
    normalised: FloatArray = exponentials / exponentials.sum()
    return normalised


RULES = {rule.name: rule for rule in (AdaHedge, ExponentiatedGradient)}
DEFAULT_RULE = AdaHedge.name


def weights_ppb(weights: FloatArray) -> tuple[int, ...]:
    """Quantise to parts per billion that sum to one billion (largest remainder, first index)."""
    scaled = weights * PPB
    floors = np.floor(scaled).astype(np.int64)
    short = PPB - int(floors.sum())
    order = np.argsort(-(scaled - floors), kind="stable")
    floors[order[:short]] += 1
    return tuple(int(weight) for weight in floors)


def drawn_index(weights: tuple[int, ...], uniform: float) -> int:
    """The index that a number in [0, 1) selects under weights in parts per billion."""
    threshold = int(uniform * PPB)
    total = 0
    for index, weight in enumerate(weights):
        total += weight
        if threshold < total:
            return index
    return len(weights) - 1


def normalised_utility(
    utility_micro_usd: npt.NDArray[np.int64], *, floor_micro_usd: int, ceiling_micro_usd: int
) -> FloatArray:
    """Scale utilities to [0, 1] by bounds fixed before the job ran, shape (policies,).

    The floor is minus the most a job can cost, the ceiling its value: regret is then counted in
    mean normalised utility per job, not in dollars.
    """
    width = max(1, ceiling_micro_usd - floor_micro_usd)
    scaled = (utility_micro_usd - floor_micro_usd) / width
    clipped: FloatArray = np.clip(scaled, 0.0, 1.0)
    return clipped
