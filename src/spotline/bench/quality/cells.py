"""One family, regime and deadline: all policies on the same jobs, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.bench.quality.episodes import (
    IntArray,
    LawInForce,
    Regime,
    Replays,
    by_name,
    changes_of,
    joined,
    learn_law_before,
    market_series,
    program_of,
    replay_series,
    spaced_starts,
)
from spotline.bench.quality.families import Family, Series
from spotline.bench.quality.learning import Served, of_jobs, served
from spotline.bench.quality.statistics import (
    FloatArray,
    TimeLine,
    bootstrap_points,
    percent,
    time_lines,
)
from spotline.domain.policies.compiled import ForecastSeries, MarketSeries
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import POOL

SPOTLINE = "spotline"
CLAIRVOYANT = "clairvoyant"
BASELINES = ("on_demand_only", "msu", "uniform_progress")
SHOWN = (
    *BASELINES,
    "ahanp(0.6)",
    "ahap(5,1,0.5)",
    "ahap(5,5,0.5)",
    "sdp",
    "hybrid(1)",
    "hybrid(2)",
    "hybrid(5)",
    SPOTLINE,
    CLAIRVOYANT,
)
POLICY_IDS = tuple(policy.policy_id for policy in POOL)
COLUMN = by_name(POOL)

# A policy that is drawn more rarely is nobody's policy.
_NEGLIGIBLE_WEIGHT = 1e-6
# Blocks are longer than any life of a job (1.5 deadlines).
_BLOCK_PER_DEADLINE = 2
_BOOTSTRAP_SEED = 5

Forecasts = Mapping[tuple[str, str, int], ForecastSeries]
"""By (set, series, world)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """How many jobs a cell has of every series: reported, and rehearsed before."""

    reported: int
    rehearsed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One series of a family with all that its jobs are decided by.

    `frozen` is the law of the first half, `adapting` those learned anew from what was seen since,
    or since the law was last seen to change;
    `rehearsing` is the one that rehearsals in the second quarter know, learned from the first.
    """

    series: Series
    market: MarketSeries
    frozen: tuple[LawInForce, ...]
    adapting: tuple[LawInForce, ...]
    rehearsing: tuple[LawInForce, ...]

    def told(self, forecasts: Forecasts) -> Course:
        """The same series with other forecasts."""
        one = self.series
        forecast = forecasts[one.together, one.name, one.world]
        return replace(self, market=replace(self.market, forecast=forecast))


def courses_of(family: Family, forecasts: Forecasts, *, relearn_slots: int) -> tuple[Course, ...]:
    """Lay out a family; laws adapt every `relearn_slots` slots, and where a change is seen."""
    courses = []
    changes = {id(one): changes_of(one) for one in family.series}
    for one in family.series:
        others = [
            other
            for other in family.series
            if other is not one and (other.together, other.world) == (one.together, one.world)
        ]
        cuts = range(one.half, one.slots, relearn_slots)
        frozen, rehearsing = (
            LawInForce(from_slot=slot, law=learn_law_before(one, others, slot))
            for slot in (one.half, one.half // 2)
        )
        known = {other.name: changes[id(other)] for other in (one, *others)}
        courses.append(
            Course(
                series=one,
                market=market_series(one, forecasts[one.together, one.name, one.world]),
                frozen=(frozen,),
                adapting=tuple(
                    LawInForce(from_slot=slot, law=learn_law_before(one, others, slot, known))
                    for slot in cuts
                ),
                rehearsing=(rehearsing,),
            )
        )
    return tuple(courses)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """The jobs of one family, regime and deadline.

    `hard` are the same jobs with a hard deadline; `rehearsed` those of the warm start.
    """

    family: Family
    regime: Regime
    deadline_slots: int
    courses: tuple[Course, ...]
    policy_ids: tuple[str, ...]
    soft: Replays
    hard: Replays
    rehearsed: Replays
    served: Served

    def utility(self, policy: str) -> FloatArray:
        """Of every job, micro-USD, shape (jobs,)."""
        if policy == SPOTLINE:
            return self.served.utility
        if policy == CLAIRVOYANT:
            return self.soft.optimum.astype(np.float64)
        return self.soft.utility[:, self.policy_ids.index(policy)].astype(np.float64)

    def late(self, policy: str) -> IntArray:
        """Jobs that missed their hard deadline; for `spotline` under any policy it may draw."""
        if not self.hard.start.size:
            return np.zeros(0, dtype=np.int64)
        late = ~self.hard.on_time
        if policy == SPOTLINE:
            drawn = self.served.weights > _NEGLIGIBLE_WEIGHT
            return np.flatnonzero((late & drawn).any(axis=1))
        if policy == CLAIRVOYANT:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(late[:, self.policy_ids.index(policy)])

    @property
    def best_baseline(self) -> str:
        """Which of the baselines earns most here."""
        return max(BASELINES, key=lambda name: float(self.utility(name).sum()))

    @property
    def lines(self) -> tuple[TimeLine, ...]:
        """The jobs by the series that share their time."""
        keys = [(one.series.together, one.series.slots) for one in self.courses]
        return time_lines(keys, self.soft.series, self.soft.start)

    def points(self, policy: str, other: str) -> tuple[float, float, float]:
        """Paired difference of two policies in points of the clairvoyant, with its interval."""
        return bootstrap_points(
            self.utility(policy) - self.utility(other),
            self.utility(CLAIRVOYANT),
            self.lines,
            block_slots=_BLOCK_PER_DEADLINE * self.deadline_slots,
            seed=_BOOTSTRAP_SEED,
        )

    def row(self, policy: str) -> dict[str, object]:
        """The figures of one policy."""
        own, best = self.utility(policy), self.utility(CLAIRVOYANT)
        dear, baseline = self.utility("on_demand_only"), self.utility(self.best_baseline)
        return {
            "percent_of_clairvoyant": percent(own, best),
            "vs_best_baseline_points": list(self.points(policy, self.best_baseline)),
            "spread_captured_percent": percent(own - dear, best - dear),
            "gap_to_clairvoyant_closed_percent": percent(own - baseline, best - baseline),
            "misses": int(self.late(policy).size),
            "runs": int(own.size),
            "best_baseline": self.best_baseline,
        }


def run_cell(
    family: Family,
    courses: Sequence[Course],
    regime: Regime,
    deadline_slots: int,
    density: Density,
    *,
    adapt: bool,
    strict: bool = True,
) -> Cell:
    """Replay the pool on all jobs of a cell and let the selector choose.

    With `adapt` laws are learned anew from what was seen; otherwise they are those of the first
    half. Without `strict` the jobs are not run with hard deadlines too.
    """
    pool: Sequence[Policy] = POOL
    soft, hard, rehearsed = [], [], []
    for index, one in enumerate(courses):
        price = one.series.on_demand_price
        program = program_of(regime, family.size, deadline_slots, price, hard=False)
        in_time = program_of(regime, family.size, deadline_slots, price, hard=True)
        half, slots = one.series.half, one.series.slots
        starts = spaced_starts(half, slots - program.end_slots + 1, density.reported)
        early = spaced_starts(half // 2, half - deadline_slots + 1, density.rehearsed)
        laws = one.adapting if adapt else one.frozen
        soft.append(replay_series(index, program, one.market, pool, laws, starts))
        hard.append(
            replay_series(
                index,
                in_time,
                one.market,
                pool,
                laws,
                starts[: len(starts) * strict],
                optimum=False,
            )
        )
        rehearsed.append(
            replay_series(index, program, one.market, pool, one.rehearsing, early, optimum=False)
        )
    jobs, before = joined(soft), joined(rehearsed)
    return Cell(
        family=family,
        regime=regime,
        deadline_slots=deadline_slots,
        courses=tuple(courses),
        policy_ids=POLICY_IDS,
        soft=jobs,
        hard=joined(hard),
        rehearsed=before,
        served=serve(courses, POLICY_IDS, jobs, before, deadline_slots),
    )


def serve(
    courses: Sequence[Course],
    policy_ids: Sequence[str],
    jobs: Replays,
    rehearsed: Replays,
    deadline_slots: int,
) -> Served:
    """Let a selector of its own choose in every world."""
    worlds = np.array([one.series.world for one in courses])
    utility = np.zeros(len(jobs.start))
    weights = np.zeros(jobs.utility.shape)
    for world in sorted(set(worlds.tolist())):
        here = np.flatnonzero(worlds[jobs.series] == world)
        before = np.flatnonzero(worlds[rehearsed.series] == world)
        one = served(
            of_jobs(jobs, here),
            of_jobs(rehearsed, before),
            policy_ids,
            known_after_slots=deadline_slots,
        )
        utility[here], weights[here] = one.utility, one.weights
    return Served(utility=utility, weights=weights)


def under_laws(cell: Cell, *, adapt: bool) -> Cell:
    """The same jobs under the other laws: only what plans by laws is replayed again."""
    planners = tuple(policy for policy in POOL if policy.uses_table)
    columns = [COLUMN[policy.policy_id] for policy in planners]

    def replayed(jobs: Replays, *, hard: bool) -> Replays:
        parts = []
        for index, one in enumerate(cell.courses):
            program = program_of(
                cell.regime,
                cell.family.size,
                cell.deadline_slots,
                one.series.on_demand_price,
                hard=hard,
            )
            starts = jobs.start[jobs.series == index]
            laws = one.adapting if adapt else one.frozen
            parts.append(
                replay_series(index, program, one.market, planners, laws, starts, optimum=False)
            )
        planned = joined(parts)
        utility, on_time = jobs.utility.copy(), jobs.on_time.copy()
        utility[:, columns], on_time[:, columns] = planned.utility, planned.on_time
        return replace(jobs, utility=utility, on_time=on_time)

    soft = replayed(cell.soft, hard=False)
    return replace(
        cell,
        soft=soft,
        hard=replayed(cell.hard, hard=True),
        served=serve(cell.courses, cell.policy_ids, soft, cell.rehearsed, cell.deadline_slots),
    )
