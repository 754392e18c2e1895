"""How much of the best fixed policy's utility each way of choosing a policy earns.

Full information: a policy is drawn for every job, and some jobs later the utilities of all of them
for it are known. What is counted is the expectation over the draw, so nothing here is random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spotline.domain.selection.rules import AdaHedge, ExponentiatedGradient, FloatArray

DELAYS_JOBS = (0, 20)
ALTERNATING = "alternating"

IntArray = npt.NDArray[np.int64]


class Learns(Protocol):
    """What a way of choosing must do here; the rules of the domain do."""

    @property
    def bounded(self) -> bool:
        """Whether utilities must be scaled to [0, 1]; else they are in USD."""
        ...

    def weights(self) -> FloatArray:
        """Probabilities, shape (policies,)."""
        ...

    def update(
        self, utility: FloatArray, *, drawn_from: FloatArray | None = None, served: bool = True
    ) -> None:
        """Learn from one job."""
        ...


class FollowTheLeader:
    """All weight on what earned most so far, shared equally among equals."""

    bounded = False

    def __init__(self, policies: int) -> None:
        self._total = np.zeros(policies)

    def weights(self) -> FloatArray:
        """Probabilities, shape (policies,)."""
        leads: FloatArray = (self._total >= self._total.max()).astype(np.float64)
        leads /= leads.sum()
        return leads

    def update(
        self, utility: FloatArray, *, drawn_from: FloatArray | None = None, served: bool = True
    ) -> None:
        """Learn from one job."""
        self._total = self._total + utility


class Uniform:
    """Learns nothing."""

    bounded = False

    def __init__(self, policies: int) -> None:
        self._weights = np.full(policies, 1.0 / policies)

    def weights(self) -> FloatArray:
        """Probabilities, shape (policies,)."""
        return self._weights

    def update(
        self, utility: FloatArray, *, drawn_from: FloatArray | None = None, served: bool = True
    ) -> None:
        """Learn nothing."""


WAYS: Mapping[str, Callable[[int, int], Learns]] = {
    "adahedge": lambda policies, jobs: AdaHedge(policies),
    "adahedge-decay-0.99": lambda policies, jobs: AdaHedge(policies, decay=0.99),
    "exponentiated-gradient": lambda policies, jobs: ExponentiatedGradient(
        policies, horizon_jobs=jobs
    ),
    "exponentiated-gradient-anytime": lambda policies, jobs: ExponentiatedGradient(policies),
    "follow-the-leader": lambda policies, jobs: FollowTheLeader(policies),
    "uniform": lambda policies, jobs: Uniform(policies),
}
"""Ways of choosing by name, made for so many policies and jobs."""


def expected_utilities(
    utility: FloatArray,
    way: Learns,
    *,
    floor: float = 0.0,
    ceiling: float = 1.0,
    arrival: Sequence[int] | IntArray | None = None,
    known: Sequence[int] | IntArray | None = None,
) -> FloatArray:
    """Expected utility of every job under weights that learn from those known at its arrival.

    Parameters
    ----------
    utility
        Of every policy on every job, USD, shape (jobs, policies).
    floor, ceiling
        USD; fixed beforehand, they scale to 0 and 1 for a way that needs it.
    arrival, known
        Slot in which each job arrives, and slot from whose beginning on its utilities are known,
        shape (jobs,). By default jobs arrive one by one and are known before the next.

    Returns
    -------
    ndarray
        USD, shape (jobs,), in the order of `utility`.

    Raises
    ------
    ValueError
        A job is known in the slot in which it arrives or before, or a shape does not fit.
    """
    jobs = len(utility)
    arrives = np.arange(jobs) if arrival is None else np.asarray(arrival)
    knows = arrives + 1 if known is None else np.asarray(known)
    if arrives.shape != (jobs,) or knows.shape != (jobs,):
        raise ValueError(f"arrival and known must have shape ({jobs},)")
    if (knows <= arrives).any():
        raise ValueError("a job's utilities are known in a later slot than that of its arrival")
    scaled = np.clip((utility - floor) / (ceiling - floor), 0.0, 1.0) if way.bounded else utility
    earned = np.zeros(jobs)
    drawn_from: list[FloatArray | None] = [None] * jobs
    waiting = list(np.argsort(knows, kind="stable")[::-1])
    for job in np.argsort(arrives, kind="stable"):
        while waiting and knows[waiting[-1]] <= arrives[job]:
            over = waiting.pop()
            way.update(scaled[over], drawn_from=drawn_from[over])
        drawn_from[job] = weights = way.weights()
        earned[job] = weights @ utility[job]
    return earned


def alternating_adversary(jobs: int) -> FloatArray:
    """Two policies that take turns, so that whoever leads loses next; shape (jobs, 2), in [0, 1]."""
    utility = np.zeros((jobs, 2))
    utility[0] = (0.0, 0.5)
    utility[1::2, 0] = 1.0
    utility[2::2, 1] = 1.0
    return utility


def selector_table(
    utilities_usd: FloatArray,
    *,
    floor_usd: float,
    ceiling_usd: float,
    delays: Sequence[int] = DELAYS_JOBS,
) -> dict[str, dict[str, float | None]]:
    """Compare the ways of choosing a policy on the same jobs, in the order of their arrival.

    Parameters
    ----------
    utilities_usd
        Of every policy on every job, shape (jobs, policies).
    floor_usd, ceiling_usd
        Bounds of any job's utility, fixed beforehand: minus the worst cost, and the value.
    delays
        How many further jobs arrive before a job's utilities are known; 0: none.

    Returns
    -------
    dict
        By way, `WAY/delay-20` where feedback is 20 jobs late, and `WAY/alternating` for the
        adversary against which following the leader earns nothing (as many jobs, feedback at
        once). `percent_of_best_fixed` is that of the best fixed policy's utility, None where this
        is not > 0; `regret_jobs` is the regret in mean utilities of that policy.

    Raises
    ------
    ValueError
        There are no jobs, or the ceiling is not above the floor.
    """
    utility = np.asarray(utilities_usd, dtype=np.float64)
    if utility.ndim != 2 or not utility.size:
        raise ValueError(f"utilities must have shape (jobs, policies), was {utility.shape}")
    if not ceiling_usd > floor_usd:
        raise ValueError(f"ceiling_usd must be > floor_usd ({floor_usd}), was {ceiling_usd}")
    jobs = len(utility)
    adversary = alternating_adversary(jobs)
    table: dict[str, dict[str, float | None]] = {}
    for name, make in WAYS.items():
        for delay in delays:
            earned = expected_utilities(
                utility,
                make(utility.shape[1], jobs),
                floor=floor_usd,
                ceiling=ceiling_usd,
                known=np.arange(jobs) + 1 + delay,
            )
            table[f"{name}/delay-{delay}" if delay else name] = _against_best(utility, earned)
        earned = expected_utilities(adversary, make(2, jobs))
        table[f"{name}/{ALTERNATING}"] = _against_best(adversary, earned)
    return table


def _against_best(utility: FloatArray, earned: FloatArray) -> dict[str, float | None]:
    best = float(utility.sum(axis=0).max())
    total = float(earned.sum())
    if best <= 0.0:
        return {"percent_of_best_fixed": None, "regret_jobs": None}
    return {
        "percent_of_best_fixed": 100.0 * total / best,
        "regret_jobs": (best - total) * len(utility) / best,
    }
