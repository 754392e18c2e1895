"""Which policy to trust: full-information online learning over a pool.

When a job ends, every policy of the pool is replayed on what that job saw; the utilities move the
weights. Feedback is delayed (a job's utility is known only when it is over) and jobs overlap. So a
rule is told with each feedback the weights that the job's policy was drawn with: what delay and
order of arrival cost is then in its accounts, and in the bound they give.

Every rule here is w(m) proportional to prior(m) * exp(rate * sum of u(m)) with a rate that never
rises. Let m_t be the mix loss of feedback t under the weights just before it, and w the weights its
job was drawn with. Then, for any delays and any order of arrival,

    regret against m = sum of (w . loss_t - m_t) + sum of m_t - total loss of m
                    <= sum of (w . loss_t - m_t) + ln(1 / prior(m)) / rate,

because mix losses under falling rates add up to no more than the total loss of m plus the last
term (de Rooij, van Erven, Gruenwald, Koolen, JMLR 2014, section 2). `regret_bound` is that right
hand side.
"""

from __future__ import annotations

import copy
import math
from typing import Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
PPB = 1_000_000_000


class _ExponentialWeights:
    """Weights over a pool of policies of any size, moved by one job's utilities at a time.

    `name` is what events call a rule, `rounds` counts the jobs learned from. Rules differ in their
    rate.

    Losses are kept relative to the least, so that only differences between policies matter.
    """

    name = ""
    bounded = False

    def __init__(self, policies: int, *, prior: FloatArray | None = None) -> None:
        if policies < 1:
            raise ValueError(f"a pool must have >= 1 policies, had {policies}")
        self.rounds = 0
        self._log_prior = _log_prior(policies, prior)
        # A pool of one has nothing to learn; ln 2 keeps its rate a number.
        self._complexity = math.log(max(2, policies))
        self._loss = np.zeros(policies)
        self._served_gap = 0.0
        # The rate that the last feedback was mixed at: the next may be lower already.
        self._last_rate = math.inf
        # Of what taught without serving anybody: losses, and their mix losses.
        self._apart_loss = np.zeros(policies)
        self._apart_mixed = 0.0

    @property
    def gap(self) -> float:
        """What sets the rate, in the unit of the utilities; 0 where jobs alone set it."""
        return 0.0

    def weights(self) -> FloatArray:
        """Probabilities, shape (policies,)."""
        weights: FloatArray = np.exp(self._log_weights())
        weights /= weights.sum()
        return weights

    def update(
        self, utility: FloatArray, *, drawn_from: FloatArray | None = None, served: bool = True
    ) -> None:
        """Learn from one job.

        Parameters
        ----------
        utility
            What every policy would have earned, shape (policies,); USD, or in [0, 1] where the
            rule is `bounded`.
        drawn_from
            The weights when the job's policy was drawn, shape (policies,); None: the present ones.
        served
            False for a rehearsal: it teaches, but no job's utility depended on it.

        Raises
        ------
        ValueError
            Wrong shape, or a utility that is not finite or outside [0, 1] where that is asked for.
        """
        self._check(utility)
        loss = utility.max() - utility
        present = self.weights()
        mixed = self._mix_loss(loss)
        self._last_rate = self._rate()
        drawn = present if drawn_from is None or not served else drawn_from
        if drawn.shape != present.shape:
            raise ValueError(f"drawn_from must have shape {present.shape}, was {drawn.shape}")
        mixing = max(0.0, float(present @ loss) - mixed)
        delay = float((drawn - present) @ loss)
        if served:
            self._served_gap += mixing + delay
        else:
            self._apart_loss = self._apart_loss + loss
            self._apart_mixed += mixed
        self._pay(mixing, delay)
        total = self._aged(self._loss) + loss
        self._loss = total - total.min()
        self.rounds += 1

    def regret_bound(self, policy: int) -> float | None:
        """What the expected regret of the served jobs against `policy` cannot exceed.

        In the unit of the utilities; None where the rule guarantees nothing.
        """
        distance = -float(self._log_prior[policy])
        apart = float(self._apart_loss[policy]) - self._apart_mixed
        # Under an infinite rate the mix loss is that of the best policy: no distance is paid.
        return self._served_gap + apart + (distance / self._last_rate if distance else 0.0)

    def copy(self) -> Self:
        """An independent rule in the same state."""
        # Arrays are replaced, never written into.
        return copy.copy(self)

    def _rate(self) -> float:
        raise NotImplementedError

    def _pay(self, mixing: float, delay: float) -> None:
        """Note what one feedback cost: by mixing policies, and by having been drawn earlier."""

    def _aged(self, loss: FloatArray) -> FloatArray:
        return loss

    def _check(self, utility: FloatArray) -> None:
        if utility.shape != self._loss.shape:
            raise ValueError(f"utility must have shape {self._loss.shape}, was {utility.shape}")
        if not np.isfinite(utility).all():
            raise ValueError("every utility must be finite")

    def _log_weights(self) -> FloatArray:
        rate = self._rate()
        if math.isinf(rate):
            leads = self._loss <= self._loss[np.isfinite(self._log_prior)].min()
            logits: FloatArray = np.where(leads, self._log_prior, -np.inf)
        else:
            logits = self._log_prior - rate * self._loss
        return logits - _log_sum_exp(logits)

    def _mix_loss(self, loss: FloatArray) -> float:
        rate = self._rate()
        if math.isinf(rate):
            return self._potential(self._loss + loss) - self._potential(self._loss)
        return -_log_sum_exp(self._log_weights() - rate * loss) / rate

    def _potential(self, loss: FloatArray) -> float:
        rate = self._rate()
        if math.isinf(rate):
            return float(loss[np.isfinite(self._log_prior)].min())
        return -_log_sum_exp(self._log_prior - rate * loss) / rate


class ExponentiatedGradient(_ExponentialWeights):
    """w(m) proportional to exp(eta * sum of u(m)), as in arXiv:2512.20967.

    Utilities are scaled to [0, 1] by bounds fixed before the job. With the number K of jobs known,
    eta = sqrt(8 ln M / K) and the regret is at most sqrt(K ln M / 2). Without,
    eta_t = sqrt(8 ln M / t) for the t-th job, and at most 3/2 of that (Cesa-Bianchi and Lugosi,
    2006, sections 2.2 and 2.3; the constant follows from summing 1 / sqrt(t)). Both hold for
    feedback that comes before the next draw. After K jobs the rate falls as if unknown.

    Parameters
    ----------
    horizon_jobs
        K; 0 where it is not known.
    prior
        Initial weights, shape (policies,); equal ones by default.
    """

    name = "exponentiated_gradient"
    bounded = True

    def __init__(
        self, policies: int, *, horizon_jobs: int = 0, prior: FloatArray | None = None
    ) -> None:
        super().__init__(policies, prior=prior)
        if horizon_jobs < 0:
            raise ValueError(f"horizon_jobs must be >= 0, was {horizon_jobs}")
        self._horizon = horizon_jobs

    def _rate(self) -> float:
        return math.sqrt(8.0 * self._complexity / max(self._horizon, self.rounds + 1))

    def _check(self, utility: FloatArray) -> None:
        super()._check(utility)
        if not ((utility >= 0.0) & (utility <= 1.0)).all():
            raise ValueError("every utility must lie in [0, 1]")


class AdaHedge(_ExponentialWeights):
    """Exponential weights whose rate falls with the regret paid so far.

    de Rooij, van Erven, Gruenwald, Koolen (JMLR 2014): eta = ln M / Delta, Delta the cumulative
    mixability gap. It needs neither the horizon nor the range of the utilities and concentrates at
    once where policies really differ; worst-case regret about S sqrt(T ln M) + S (16/3 ln M + 2)
    with S the widest spread of utilities within a job.

    Ours differs where feedback is late: `DELAY_SHARE` of what the delay cost counts in Delta, so
    that a market against which late feedback is harmful slows the rule down. Without delay it is
    the published rule.

    Parameters
    ----------
    decay
        In (0, 1]: what the past is worth after each job. Below 1 it follows drift, and guarantees
        nothing.
    prior
        Initial weights, shape (policies,); equal ones by default.
    gap
        Delta to begin with, in the unit of the utilities, >= 0: the larger, the longer the prior
        lasts. With none the first jobs alone set the rate, and soon overrule it.
    """

    name = "adahedge"

    DELAY_SHARE = 0.25
    """All of it balances the bound; on traces it concentrates too slowly after a late start."""

    def __init__(
        self,
        policies: int,
        *,
        decay: float = 1.0,
        prior: FloatArray | None = None,
        gap: float = 0.0,
    ) -> None:
        super().__init__(policies, prior=prior)
        if not 0.0 < decay <= 1.0:
            raise ValueError(f"decay must be in (0, 1], was {decay}")
        if not 0.0 <= gap < math.inf:
            raise ValueError(f"gap must be finite and >= 0, was {gap}")
        self._decay = decay
        self._gap = self._mixing = gap
        self._delay = 0.0

    @property
    def gap(self) -> float:
        """Delta, in the unit of the utilities."""
        return self._gap

    def regret_bound(self, policy: int) -> float | None:
        """As for every rule, but None with decay."""
        return super().regret_bound(policy) if self._decay == 1.0 else None

    def _rate(self) -> float:
        return self._complexity / self._gap if self._gap > 0.0 else math.inf

    def _pay(self, mixing: float, delay: float) -> None:
        self._mixing = self._decay * self._mixing + mixing
        self._delay = self._decay * self._delay + delay
        # Late weights may have been better by luck: the rate must not rise for that.
        paid = self._mixing + self.DELAY_SHARE * self._delay
        self._gap = max(self._decay * self._gap, paid)

    def _aged(self, loss: FloatArray) -> FloatArray:
        return self._decay * loss


def _log_prior(policies: int, prior: FloatArray | None) -> FloatArray:
    if prior is None:
        return np.full(policies, -math.log(policies))
    if prior.shape != (policies,) or not (np.isfinite(prior).all() and (prior >= 0.0).all()):
        raise ValueError(f"prior must be {policies} finite weights >= 0")
    if prior.sum() <= 0.0:
        raise ValueError("prior must give some policy a weight > 0")
    with np.errstate(divide="ignore"):
        logarithms: FloatArray = np.log(prior / prior.sum())
    return logarithms


def _log_sum_exp(logits: FloatArray) -> float:
    most = float(logits.max())
    return most + math.log(float(np.exp(logits - most).sum()))


LearningRule = AdaHedge | ExponentiatedGradient
RULES: dict[str, type[LearningRule]] = {
    rule.name: rule for rule in (AdaHedge, ExponentiatedGradient)
}
DEFAULT_RULE = AdaHedge.name


def rule_named(
    name: str,
    policies: int,
    *,
    decay: float = 1.0,
    horizon_jobs: int = 0,
    prior: FloatArray | None = None,
    gap: float = 0.0,
) -> LearningRule:
    """Make a rule for a pool of `policies`; the options are those of the rules.

    Raises
    ------
    ValueError
        No rule has this name, an option is out of its range, or it is not one of this rule.
    """
    if name == AdaHedge.name:
        if horizon_jobs:
            raise ValueError(f"{name} knows no horizon_jobs; it is {ExponentiatedGradient.name}'s")
        return AdaHedge(policies, decay=decay, prior=prior, gap=gap)
    if name == ExponentiatedGradient.name:
        if decay != 1.0:
            raise ValueError(f"{name} knows no decay; it is {AdaHedge.name}'s")
        return ExponentiatedGradient(policies, horizon_jobs=horizon_jobs, prior=prior)
    raise ValueError(f"unknown rule {name!r}; expected one of {', '.join(sorted(RULES))}")


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

    What lies outside is clipped. Where the bounds differ from job to job, what is learned maximises
    the sum of these shares, not dollars.
    """
    width = max(1, ceiling_micro_usd - floor_micro_usd)
    scaled = (utility_micro_usd - floor_micro_usd) / width
    clipped: FloatArray = np.clip(scaled, 0.0, 1.0)
    return clipped
