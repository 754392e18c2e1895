"""How policies are counted: one denominator for all, paired intervals, one best rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spotline.bench.fleet.policies import RULES
from spotline.bench.quality.statistics import FloatArray, IntArray, bootstrap_points, time_lines
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.replay.summary import JobLife

# Blocks of start times that are resampled: longer than most jobs.
BLOCK_SLOTS = 24
# The first hours, of which a target speaks by itself.
FIRST_SLOTS = 48
# Two of the longer blocks would be all of them.
_FIRST_BLOCK_SLOTS = 12
_USD = 1e6
_BEST_OF = "on_demand_only"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lives:
    """How the jobs of a cell fared under one policy, in their order; money in USD."""

    utility: FloatArray
    cost: FloatArray
    late: FloatArray
    missed: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrowdCount:
    """What every policy is held against, summed over the seeds of a cell.

    `start` is each job's first slot, `timeline` the market whose slots those are: crowds of several
    seeds on one recorded market share them. `tenant` is whose the job is, `bound_usd` the joint
    clairvoyant bound of all.
    """

    start: IntArray
    timeline: IntArray
    tenant: tuple[str, ...]
    bound_usd: float


def lives_of(jobs: Sequence[Job], lives: Sequence[JobLife]) -> Lives:
    """Lay lives out as numbers."""
    return Lives(
        utility=np.array([life.utility_micro_usd for life in lives]) / _USD,
        cost=np.array([life.cost_micro_usd for life in lives]) / _USD,
        late=np.array([life.most_value_micro_usd - life.value_micro_usd for life in lives]) / _USD,
        missed=np.array(
            [
                job.deadline.kind is DeadlineKind.HARD and not life.on_time
                for job, life in zip(jobs, lives, strict=True)
            ],
            dtype=np.int64,
        ),
    )


def joined(parts: Sequence[Lives]) -> Lives:
    """The lives of several seeds, one after the other."""
    return Lives(
        utility=np.concatenate([part.utility for part in parts]),
        cost=np.concatenate([part.cost for part in parts]),
        late=np.concatenate([part.late for part in parts]),
        missed=np.concatenate([part.missed for part in parts]),
    )


def best_rule(lives: Mapping[str, Lives]) -> str:
    """The simple rule that earned most; ties go to the first of `RULES`."""
    present = [name for name in RULES if name in lives]
    if not present:
        raise ValueError(f"one of {', '.join(RULES)} must have run")
    return max(present, key=lambda name: float(lives[name].utility.sum()))


def count_cell(lives: Mapping[str, Lives], counted: CrowdCount) -> dict[str, dict[str, Any]]:
    """Every policy's row, by name.

    `percent_of_bound` is 100 * summed utility / joint bound, None where the bound is not > 0.
    `vs_best_rule_points` are points of the bound by which a policy is ahead of the best simple
    rule: ends and mean of a central 95 % interval over moving blocks of start times, the same jobs
    on both sides. `first_48_points` is the same of the jobs that begin in the first 48 slots, against
    the rule that was best for them, None where there are none. `gap_closed_percent` is the share of
    the way from the best rule to the bound, None where no way is left, and `gap_closed_interval` its
    ends and mean by those of the points, the way taken as it is. `jain_saving` is Jain's index of what each tenant saves against running
    on demand alone, value lost counted as paid: 1 where all save the same share.
    """
    best = best_rule(lives)
    return {name: _row(name, lives, best, counted) for name in lives}


def _row(name: str, lives: Mapping[str, Lives], best: str, counted: CrowdCount) -> dict[str, Any]:
    mine, rule = lives[name], lives[best]
    utility, bound = float(mine.utility.sum()), counted.bound_usd
    left = bound - float(rule.utility.sum())
    ahead = utility - float(rule.utility.sum())
    points = _points(mine.utility - rule.utility, counted)
    way = 100.0 * left / bound if bound > 0 else 0.0
    return {
        "utility_usd": utility,
        "cost_usd": float(mine.cost.sum()),
        "percent_of_bound": 100.0 * utility / bound if bound > 0 else None,
        "misses": int(mine.missed.sum()),
        "late_usd": float(mine.late.sum()),
        "vs_best_rule_points": points,
        "best_rule": best,
        "gap_closed_percent": 100.0 * ahead / left if left > 0 else None,
        "gap_closed_interval": None
        if points is None or way <= 0
        else [100.0 * end / way for end in points],
        "first_48_points": _first_points(name, lives, counted),
        "jain_saving": _jain(mine, lives.get(_BEST_OF), counted.tenant),
    }


def _first_points(name: str, lives: Mapping[str, Lives], counted: CrowdCount) -> list[float] | None:
    """Points of the jobs that begin in the first slots, against the rule that was best for them."""
    early = counted.start < FIRST_SLOTS
    if not early.any():
        return None
    first = {
        each: Lives(
            utility=found.utility[early],
            cost=found.cost[early],
            late=found.late[early],
            missed=found.missed[early],
        )
        for each, found in lives.items()
    }
    share = float(early.sum()) / early.size
    part = CrowdCount(
        start=counted.start[early],
        timeline=counted.timeline[early],
        tenant=tuple(
            whose for whose, is_early in zip(counted.tenant, early, strict=True) if is_early
        ),
        bound_usd=counted.bound_usd * share,
    )
    ahead = first[name].utility - first[best_rule(first)].utility
    return _points(ahead, part, block_slots=_FIRST_BLOCK_SLOTS)


def _points(
    difference: FloatArray, counted: CrowdCount, *, block_slots: int = BLOCK_SLOTS
) -> list[float] | None:
    if counted.bound_usd <= 0:
        return None
    if not difference.any():
        return [0.0, 0.0, 0.0]
    # The bound is one of all jobs: each stands for an equal part of it.
    share = np.full(difference.size, counted.bound_usd / difference.size)
    lines = time_lines(
        list(range(int(counted.timeline.max()) + 1)), counted.timeline, counted.start
    )
    # A crowd is a few blocks long.
    return list(
        bootstrap_points(difference, share, lines, block_slots=block_slots, seed=1, circular=True)
    )


def _jain(mine: Lives, on_demand: Lives | None, tenants: Sequence[str]) -> float | None:
    if on_demand is None:
        return None
    shares = []
    # Value lost counts like money spent: who is not served at all saves nothing by it.
    paid, without = mine.cost + mine.late, on_demand.cost + on_demand.late
    for tenant in sorted(set(tenants)):
        own = np.array([whose == tenant for whose in tenants])
        spent = float(without[own].sum())
        shares.append(max(0.0, 1.0 - float(paid[own].sum()) / spent) if spent > 0 else 0.0)
    square = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * square) if square > 0 else None
