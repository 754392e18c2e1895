"""Jobs begun at many slots of recorded series, replayed under a whole pool of policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from spotline.bench.quality.families import SLOT_S, JobSize, Series
from spotline.domain.forecasting.law_book import EVERY_SLOTS, MOST_INSTANCES
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import MarketLaw, choose_space, learn_laws, run_states
from spotline.domain.market.law_drift import changed_at
from spotline.domain.market.learning_rules import ALL_RULES
from spotline.domain.policies.compiled import (
    ForecastSeries,
    MarketSeries,
    clairvoyant_many,
    replay_many,
)
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.solvers.table_store import table_of
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable
from spotline.domain.units import PPM, cost_micro_usd

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DEADLINES_SLOTS = (10, 20)
GAMMA = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What reconfiguring costs, and what a job is worth as a multiple of its on-demand cost."""

    name: str
    grow_ppm: int
    shrink_ppm: int
    value_ppm: int

    def named(self, family: str) -> str:
        """How the tables call a family in this regime."""
        return family if self is BASE else f"{family}/{self.name}"


BASE = Regime(name="base", grow_ppm=100_000, shrink_ppm=50_000, value_ppm=1_500_000)
HEAVY = Regime(name="heavy", grow_ppm=300_000, shrink_ppm=150_000, value_ppm=1_500_000)
LOW_MARGIN = Regime(name="low-margin", grow_ppm=100_000, shrink_ppm=50_000, value_ppm=1_150_000)
REGIMES = (BASE, HEAVY, LOW_MARGIN)


@lru_cache(maxsize=256)
def program_of(
    regime: Regime, size: JobSize, deadline_slots: int, on_demand_price: int, *, hard: bool
) -> JobProgram:
    """The job of a family: linear throughput, a value that falls to nothing at gamma * d.

    With `hard` it is worth nothing after the deadline, and all else is equal.
    """
    end = deadline_slots if hard else int(GAMMA * deadline_slots)
    work_s = round(size.work_slots * SLOT_S)
    value = cost_micro_usd(on_demand_price, 1, work_s) * regime.value_ppm // PPM
    late = [
        value * (end - slot) // (end - deadline_slots)
        for slot in range(deadline_slots + 1, end + 1)
    ]
    grow_s = SLOT_S * regime.grow_ppm // PPM
    return JobProgram(
        slot_s=SLOT_S,
        work_quanta=work_s,
        rate_quanta_per_s=tuple(range(size.max_instances + 1)),
        allowed_counts=tuple(range(1, size.max_instances + 1)),
        launch_s=grow_s,
        grow_s=grow_s,
        shrink_s=SLOT_S * regime.shrink_ppm // PPM,
        interrupted_s=grow_s,
        deadline_slots=deadline_slots,
        end_slots=end,
        hard=hard,
        value_micro_usd=(*[value] * (deadline_slots + 1), *late),
    )


# --- what is learned --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LawInForce:
    """A law and the slot from which on jobs are planned by it: learned from those before."""

    from_slot: int
    law: MarketLaw


Changes = tuple[tuple[int, int], ...]
"""When a change of law was seen, and the slot since which the new one holds: ascending."""


def changes_of(series: Series) -> Changes:
    """Watch a series for changes of its law as the forecaster service does."""
    changes: list[tuple[int, int]] = []
    since = 0
    for slot in range(EVERY_SLOTS, series.slots + 1, EVERY_SLOTS):
        counts, price_ppm = _past(series, since, slot)
        space = choose_space(counts, price_ppm, most_instances=MOST_INSTANCES, whole_gangs=True)
        changed = changed_at(space, counts, price_ppm)
        if changed:
            since += changed
            changes.append((slot, since))
    return tuple(changes)


def learn_law_before(
    series: Series,
    others: Sequence[Series],
    slot: int,
    changes: Mapping[str, Changes] = MappingProxyType({}),
) -> MarketLaw:
    """The law of a series learned from its slots before `slot`, and from those of the `others`.

    Of a series among `changes`, by name, what was before the last one seen by then is forgotten.
    """
    past = {}
    for one in (series, *others):
        seen = [since for at, since in changes.get(one.name, ()) if at <= slot]
        past[one.name] = _past(one, seen[-1] if seen else 0, slot)
    laws = learn_laws(past, most_instances=MOST_INSTANCES, learning=ALL_RULES)
    return laws[series.name]


def _past(series: Series, first: int, end: int) -> tuple[IntArray, IntArray]:
    market = series.market
    price_ppm = (
        market.spot_price_micro_usd[first:end, 0]
        * PPM
        // market.on_demand_price_micro_usd[first:end, 0]
    )
    return market.spot_available[first:end, 0], price_ppm


# --- replays ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replays:
    """Jobs under every policy of a pool, in the order of their series.

    Attributes
    ----------
    series, start
        Index of the series and first slot of every job, shape (jobs,).
    utility
        Micro-USD, shape (jobs, policies).
    on_time
        Shape (jobs, policies).
    optimum
        What none exceeds, micro-USD, shape (jobs,); zeros where it was not asked for.
    """

    series: IntArray
    start: IntArray
    utility: IntArray
    on_time: BoolArray
    optimum: IntArray


def joined(parts: Sequence[Replays]) -> Replays:
    """All jobs of `parts`, in their order."""
    return Replays(
        series=np.concatenate([one.series for one in parts]),
        start=np.concatenate([one.start for one in parts]),
        utility=np.concatenate([one.utility for one in parts]),
        on_time=np.concatenate([one.on_time for one in parts]),
        optimum=np.concatenate([one.optimum for one in parts]),
    )


def market_series(series: Series, forecast: ForecastSeries | None) -> MarketSeries:
    """A series as replays read it; on-demand is never short where nobody counts it."""
    market = series.market
    counted = market.on_demand_provenance[:, 0] < 2
    return MarketSeries(
        spot_price=market.spot_price_micro_usd[:, 0],
        on_demand_price=market.on_demand_price_micro_usd[:, 0],
        spot_available=market.spot_available[:, 0],
        on_demand_available=np.where(counted, market.on_demand_available[:, 0], UNCOUNTED),
        forecast=forecast,
    )


def table_for(program: JobProgram, law: MarketLaw, series: MarketSeries) -> ValueTable:
    """The value table of a job on a series under a law."""
    return table_of(
        TableTerms(
            program=program,
            law=law,
            on_demand_price=int(series.on_demand_price[0]),
            on_demand_available=int(series.on_demand_available[0]),
            even_cells=True,
        )
    )


def replay_series(
    index: int,
    program: JobProgram,
    market: MarketSeries,
    policies: Sequence[Policy],
    laws: Sequence[LawInForce],
    starts: IntArray,
    *,
    optimum: bool = True,
) -> Replays:
    """Replay one series: every policy, for a job begun at each of `starts`.

    A job's value table is that of the law in force when it begins, and is there in its first slot.
    """
    fallback = policy_named(FALLBACK_POLICY_ID)
    shape = (len(starts), len(policies))
    utility = np.zeros(shape, dtype=np.int64)
    on_time = np.zeros(shape, dtype=np.bool_)
    plain = [column for column, one in enumerate(policies) if not one.uses_table]
    planned = [column for column, one in enumerate(policies) if one.uses_table]
    if plain and len(starts):
        table = replay_many(program, market, [policies[c] for c in plain], starts, fallback)
        utility[:, plain], on_time[:, plain] = table.utility_micro_usd, table.on_time
    ends = [one.from_slot for one in laws[1:]] + [len(market)]
    for one, end in zip(laws if planned else (), ends, strict=False):
        rows = np.flatnonzero((starts >= one.from_slot) & (starts < end))
        if not rows.size:
            continue
        placed = replace(market, run_state=run_states(one.law.space, market.spot_available))
        table = replay_many(
            program,
            placed,
            [policies[c] for c in planned],
            starts[rows],
            fallback,
            table_for(program, one.law, market),
        )
        where = np.ix_(rows, np.array(planned, dtype=np.int64))
        utility[where], on_time[where] = table.utility_micro_usd, table.on_time
    best = np.zeros(len(starts), dtype=np.int64)
    if optimum and len(starts):
        best = clairvoyant_many(program, market, starts).upper_utility_micro_usd
    return Replays(
        series=np.full(len(starts), index, dtype=np.int64),
        start=np.asarray(starts, dtype=np.int64),
        utility=utility,
        on_time=on_time,
        optimum=best,
    )


def spaced_starts(first: int, end: int, most: int) -> IntArray:
    """At most `most` slots of `first` <= slot < `end`, equally far apart."""
    if end <= first:
        return np.zeros(0, dtype=np.int64)
    step = max(1, -(-(end - first) // most))
    return np.arange(first, end, step, dtype=np.int64)


def by_name(pool: Sequence[Policy]) -> Mapping[str, int]:
    """Column of every policy."""
    return {policy.policy_id: column for column, policy in enumerate(pool)}
