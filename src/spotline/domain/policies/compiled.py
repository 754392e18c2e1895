"""Whole pools and whole markets replayed at once: `replay.replay_policy`, compiled.

What has no compiled form (see `has_kernel`) goes through `replay_policy`; the answers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.policies.ahanp import Ahanp
from spotline.domain.policies.ahap import PLANNING_CELLS, Ahap, line_value
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.baselines import (
    MaximalSpotUtilisation,
    OnDemandOnly,
    UniformProgress,
    smallest_constant_count,
)
from spotline.domain.policies.interface import Policy, WindowForecast
from spotline.domain.policies.replay import (
    JobResult,
    SlotRecord,
    clairvoyant_optimum,
    replay_policy,
)
from spotline.domain.policies.sdp import ValueToGo
from spotline.domain.solvers import episode
from spotline.domain.solvers.value_table import ValueTable, overheads_s
from spotline.domain.solvers.window import value_after_deadline

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_REASONS = {
    episode.REASON_POLICY: DecisionReason.POLICY,
    episode.REASON_SAFETY_NET: DecisionReason.SAFETY_NET,
    episode.REASON_BUDGET: DecisionReason.BUDGET,
    episode.REASON_AFTER_DEADLINE: DecisionReason.AFTER_DEADLINE,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastSeries:
    """The forecast issued in every slot of a series.

    `steps` is how far each reaches, shape (slots,), -1 where none was issued or trusted; prices
    are micro-USD per instance-hour, counts instances, both shape (slots, most steps) and without
    meaning beyond `steps`.
    """

    steps: IntArray
    spot_price: IntArray
    spot_available: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarketSeries:
    """What a job alone is offered of one offering: `SlotRecord`s as arrays of shape (slots,).

    `run_state` is where the market was in the law of the job's value table, None without one.
    `reserve_slots` and `rescue_instances` are 0 everywhere where they are None.
    """

    spot_price: IntArray
    on_demand_price: IntArray
    spot_available: IntArray
    on_demand_available: IntArray
    forecast: ForecastSeries | None = None
    run_state: IntArray | None = None
    reserve_slots: IntArray | None = None
    rescue_instances: IntArray | None = None

    def __len__(self) -> int:
        return int(self.spot_price.shape[0])

    def records(self, first: int, slots: int) -> tuple[SlotRecord, ...]:
        """The slots `first` and after, `slots` of them or fewer where the series ends."""
        return tuple(
            SlotRecord(
                spot_price=int(self.spot_price[slot]),
                on_demand_price=int(self.on_demand_price[slot]),
                spot_available=int(self.spot_available[slot]),
                on_demand_available=int(self.on_demand_available[slot]),
                forecast=self._forecast(slot),
                run_state=-1 if self.run_state is None else int(self.run_state[slot]),
                reserve_slots=0 if self.reserve_slots is None else int(self.reserve_slots[slot]),
                rescue_instances=0
                if self.rescue_instances is None
                else int(self.rescue_instances[slot]),
            )
            for slot in range(first, min(first + slots, len(self)))
        )

    def _forecast(self, slot: int) -> WindowForecast | None:
        if self.forecast is None or self.forecast.steps[slot] < 0:
            return None
        steps = int(self.forecast.steps[slot])
        return WindowForecast(
            spot_price=tuple(self.forecast.spot_price[slot, :steps].tolist()),
            spot_available=tuple(self.forecast.spot_available[slot, :steps].tolist()),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayTable:
    """How jobs fared by first slot and policy, all of shape (first slots, policies).

    `finished_slot` counts from 1, 0 where a job did not finish; `decisions` is how many slots
    were decided.
    """

    utility_micro_usd: IntArray
    cost_micro_usd: IntArray
    value_micro_usd: IntArray
    finished_slot: IntArray
    decisions: IntArray
    on_time: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClairvoyantTable:
    """The optimum by first slot: what can be had, and what none exceeds, shape (first slots,)."""

    utility_micro_usd: IntArray
    upper_utility_micro_usd: IntArray
    cost_micro_usd: IntArray
    on_time: BoolArray


def has_kernel(policy: Policy) -> bool:
    """Whether `policy` has a compiled form."""
    return type(policy) in (
        OnDemandOnly,
        MaximalSpotUtilisation,
        UniformProgress,
        Ahanp,
        Ahap,
        ValueToGo,
    )


def replay_pool(
    program: JobProgram,
    records: Sequence[SlotRecord],
    policies: Sequence[Policy],
    fallback: Policy,
    table: ValueTable | None = None,
    *,
    spot_firm: bool = True,
) -> tuple[JobResult, ...]:
    """Run every policy for one job over the recorded slots: `replay_policy` of each, in order."""
    records = records[: program.end_slots]
    compiled = _compilable(program, policies, fallback, table) if records else []
    results: list[JobResult | None] = [None] * len(policies)
    if compiled:
        batch = tuple(policies[index] for index in compiled)
        market, predicted = _market_of_records(records, _farthest(batch))
        first_slots = np.zeros(1, dtype=np.int64)
        totals, kept = _run(
            program,
            market,
            predicted,
            batch,
            fallback,
            first_slots,
            table,
            firm=spot_firm,
            keep=True,
        )
        for row, index in enumerate(compiled):
            results[index] = _result(program, totals[0, row].tolist(), kept[0, row])
    return tuple(
        replay_policy(program, records, policy, fallback, table, spot_firm=spot_firm)
        if result is None
        else result
        for policy, result in zip(policies, results, strict=True)
    )


def replay_many(
    program: JobProgram,
    series: MarketSeries,
    policies: Sequence[Policy],
    first_slots: Sequence[int] | IntArray,
    fallback: Policy,
    table: ValueTable | None = None,
    *,
    spot_firm: bool = True,
) -> ReplayTable:
    """Run every policy for the same job begun at each of `first_slots` of one series.

    A job that has not finished where the series ends is worth nothing, as in `replay_policy`.

    Raises
    ------
    ValueError
        A first slot lies outside the series.
    """
    starts = np.asarray(first_slots, dtype=np.int64)
    if starts.size and not 0 <= int(starts.min()) <= int(starts.max()) < len(series):
        raise ValueError(
            f"first slots must be >= 0 and < {len(series)}, were {starts.min()} to {starts.max()}"
        )
    outcomes = np.zeros((starts.size, len(policies), episode.TOTAL_COLUMNS), dtype=np.int64)
    compiled = _compilable(program, policies, fallback, table) if starts.size else []
    if compiled:
        batch = tuple(policies[index] for index in compiled)
        market, predicted = _market_of_series(series, _farthest(batch))
        totals, _ = _run(
            program, market, predicted, batch, fallback, starts, table, firm=spot_firm, keep=False
        )
        outcomes[:, compiled] = totals
    others = [index for index in range(len(policies)) if index not in set(compiled)]
    for row, first in enumerate(starts.tolist() if others else ()):
        records = series.records(first, program.end_slots)
        for index in others:
            one = replay_policy(
                program, records, policies[index], fallback, table, spot_firm=spot_firm
            )
            outcomes[row, index] = (
                one.utility_micro_usd,
                one.cost_micro_usd,
                one.value_micro_usd,
                one.finished_slot,
                len(one.holdings),
            )
    finished = outcomes[:, :, episode.TOTAL_FINISHED]
    return ReplayTable(
        utility_micro_usd=outcomes[:, :, episode.TOTAL_UTILITY],
        cost_micro_usd=outcomes[:, :, episode.TOTAL_COST],
        value_micro_usd=outcomes[:, :, episode.TOTAL_VALUE],
        finished_slot=finished,
        decisions=outcomes[:, :, episode.TOTAL_SLOTS],
        on_time=(finished > 0) & (finished <= program.deadline_slots),
    )


def clairvoyant_many(
    program: JobProgram, series: MarketSeries, first_slots: Sequence[int] | IntArray
) -> ClairvoyantTable:
    """The optimum of the same job begun at each of `first_slots` of one series."""
    starts = np.asarray(first_slots, dtype=np.int64)
    optima = [
        clairvoyant_optimum(program, series.records(first, program.end_slots))
        for first in starts.tolist()
    ]
    return ClairvoyantTable(
        utility_micro_usd=np.array([o.result.utility_micro_usd for o in optima], dtype=np.int64),
        upper_utility_micro_usd=np.array(
            [o.upper_utility_micro_usd for o in optima], dtype=np.int64
        ),
        cost_micro_usd=np.array([o.result.cost_micro_usd for o in optima], dtype=np.int64),
        on_time=np.array([o.result.on_time for o in optima], dtype=np.bool_),
    )


# --- laying things out ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """A program as the kernels read it."""

    job: IntArray
    by_count: IntArray
    counts: IntArray
    by_slot: IntArray


@lru_cache(maxsize=1024)
def _layout(program: JobProgram) -> _Layout:
    job = np.zeros(episode.JOB_SCALARS, dtype=np.int64)
    job[episode.JOB_SLOT_S] = program.slot_s
    job[episode.JOB_WORK] = program.work_quanta
    job[episode.JOB_DEADLINE] = program.deadline_slots
    job[episode.JOB_END] = program.end_slots
    job[episode.JOB_HARD] = program.hard
    job[episode.JOB_LAUNCH_S] = program.launch_s
    job[episode.JOB_GROW_S] = program.grow_s
    job[episode.JOB_SHRINK_S] = program.shrink_s
    job[episode.JOB_INTERRUPTED_S] = program.interrupted_s
    job[episode.JOB_BUDGET] = program.budget_micro_usd
    job[episode.JOB_STEADY] = smallest_constant_count(program)
    most = program.max_instances
    by_count = np.zeros((episode.COUNT_ROWS, most + 1), dtype=np.int64)
    for count in program.allowed_counts:
        rate = program.rate_quanta_per_s[count]
        by_count[episode.COUNT_RATE, count] = rate
        by_count[episode.COUNT_CAP_S, count] = program.work_quanta // rate + 2 if rate else 0
        by_count[episode.COUNT_LARGEST, count:] = count
    by_slot = _by_slot(
        program.slot_s,
        program.work_quanta,
        program.deadline_slots,
        program.end_slots,
        program.shrink_s,
        program.grow_s,
        program.value_micro_usd,
    )
    counts = np.array(program.allowed_counts, dtype=np.int64)
    return _Layout(job=job, by_count=by_count, counts=counts, by_slot=by_slot)


@lru_cache(maxsize=1024)
def _by_slot(
    slot_s: int,
    work_quanta: int,
    deadline: int,
    end_slots: int,
    shrink_s: int,
    grow_s: int,
    value_micro_usd: tuple[int, ...],
) -> IntArray:
    """The rows of a layout that counts and rates say nothing of, shape (rows, slots)."""
    slots = max(end_slots, deadline) + 1
    by_slot = np.zeros((episode.SLOT_ROWS, slots), dtype=np.int64)
    by_slot[episode.SLOT_VALUE, : end_slots + 1] = value_micro_usd
    # Exact in Python: work times seconds can exceed 64 bits.
    for slot in range(deadline + 1 if deadline else 0):
        by_slot[episode.SLOT_LINE, slot] = work_quanta * slot // deadline
        for row, change_s in (
            (episode.SLOT_AHEAD_SHRINK, shrink_s),
            (episode.SLOT_AHEAD_GROW, grow_s),
        ):
            passed_s = slot * slot_s + 2 * change_s
            by_slot[row, slot] = work_quanta * passed_s // (deadline * slot_s)
    return by_slot


@lru_cache(maxsize=4096)
def _worth(
    program: JobProgram, sigmas_ppm: tuple[int, ...], on_demand_price: int
) -> tuple[IntArray, IntArray]:
    """What progress is worth at a window's end: before the deadline by slot and sigma, and at it."""
    ends = max(1, program.deadline_slots)
    lines = np.zeros((ends, max(1, len(sigmas_ppm)), episode.LINE_COLUMNS), dtype=np.int64)
    for end in range(1, ends):
        for column, sigma_ppm in enumerate(sigmas_ppm):
            value = line_value(program, sigma_ppm, end, on_demand_price)
            lines[end, column] = (
                value.target_quanta,
                value.at_target_micro_usd,
                value.below_micro_usd_per_giga,
                value.above_micro_usd_per_giga,
            )
    late = value_after_deadline(program, on_demand_price_micro_usd=on_demand_price)
    return lines, late


def _compilable(
    program: JobProgram,
    policies: Sequence[Policy],
    fallback: Policy,
    table: ValueTable | None,
) -> list[int]:
    # A finished job is closed slot by slot, and a fallback that needs a forecast is no fallback.
    if program.work_quanta <= 0 or not has_kernel(fallback) or fallback.needs_forecast:
        return []
    # Of the fallback nobody keeps what it looked into.
    if isinstance(fallback, ValueToGo):
        return []
    solved = table is None or _solves(table, program)
    return [
        index
        for index, policy in enumerate(policies)
        if has_kernel(policy) and (solved or not isinstance(policy, ValueToGo))
    ]


def _solves(table: ValueTable, program: JobProgram) -> bool:
    """Whether a table is laid out for this program; money and work may differ."""
    own = table.terms.program
    return all(
        getattr(own, name) == getattr(program, name)
        for name in ("slot_s", "deadline_slots", "end_slots", "allowed_counts")
    )


def _farthest(policies: Sequence[Policy]) -> int:
    return max((_sees(policy) for policy in policies), default=0)


def _sees(policy: Policy) -> int:
    """How many forecast slots a policy looks at."""
    match policy:
        case Ahap():
            return policy.omega
        case ValueToGo():
            return policy.window
        case _:
            return 0


def _policy_row(policy: Policy, sigmas_ppm: Sequence[int]) -> list[int]:
    match policy:
        case MaximalSpotUtilisation():
            return [episode.MSU, 0, 0, 0, 0]
        case UniformProgress():
            return [episode.UNIFORM_PROGRESS, 0, 0, 0, 0]
        case Ahanp():
            return [episode.AHANP, policy.sigma_ppm, 0, 0, 0]
        case Ahap():
            sigma = policy.sigma_ppm
            index = sigmas_ppm.index(sigma)
            return [episode.AHAP, sigma, index, policy.omega, policy.commitment]
        case ValueToGo():
            return [episode.VALUE_TO_GO, 0, 0, policy.window, 0]
        case _:
            return [episode.ON_DEMAND_ONLY, 0, 0, 0, 0]


def _market_of_records(records: Sequence[SlotRecord], most_steps: int) -> tuple[IntArray, IntArray]:
    market = np.zeros((episode.MARKET_ROWS, len(records)), dtype=np.int64)
    market[: episode.MARKET_PRICE_INDEX] = np.array(
        [
            (r.spot_price, r.on_demand_price, r.spot_available, r.on_demand_available)
            for r in records
        ],
        dtype=np.int64,
    ).T
    market[episode.MARKET_RUN_STATE] = [r.run_state for r in records]
    market[episode.MARKET_RESERVE] = [r.reserve_slots for r in records]
    market[episode.MARKET_RESCUE] = [r.rescue_instances for r in records]
    predicted = np.zeros((2, len(records), most_steps), dtype=np.int64)
    for slot, record in enumerate(records):
        if record.forecast is None:
            market[episode.MARKET_STEPS, slot] = -1
            continue
        steps = min(most_steps, len(record.forecast.spot_price))
        market[episode.MARKET_STEPS, slot] = steps
        predicted[0, slot, :steps] = record.forecast.spot_price[:steps]
        predicted[1, slot, :steps] = record.forecast.spot_available[:steps]
    return market, predicted


def _market_of_series(series: MarketSeries, most_steps: int) -> tuple[IntArray, IntArray]:
    market = np.zeros((episode.MARKET_ROWS, len(series)), dtype=np.int64)
    market[episode.MARKET_SPOT_PRICE] = series.spot_price
    market[episode.MARKET_ON_DEMAND_PRICE] = series.on_demand_price
    market[episode.MARKET_SPOT_AVAILABLE] = series.spot_available
    market[episode.MARKET_ON_DEMAND_AVAILABLE] = series.on_demand_available
    market[episode.MARKET_STEPS] = -1
    market[episode.MARKET_RUN_STATE] = -1 if series.run_state is None else series.run_state
    if series.reserve_slots is not None:
        market[episode.MARKET_RESERVE] = series.reserve_slots
    if series.rescue_instances is not None:
        market[episode.MARKET_RESCUE] = series.rescue_instances
    predicted = np.zeros((2, len(series), most_steps), dtype=np.int64)
    if series.forecast is not None:
        market[episode.MARKET_STEPS] = np.minimum(series.forecast.steps, most_steps)
        seen = min(most_steps, series.forecast.spot_price.shape[1])
        predicted[0, :, :seen] = series.forecast.spot_price[:, :seen]
        predicted[1, :, :seen] = series.forecast.spot_available[:, :seen]
    return market, predicted


def _run(
    program: JobProgram,
    market: IntArray,
    predicted: IntArray,
    policies: Sequence[Policy],
    fallback: Policy,
    first_slots: IntArray,
    table: ValueTable | None,
    *,
    firm: bool,
    keep: bool,
) -> tuple[IntArray, IntArray]:
    layout = _layout(program)
    sigmas = tuple(sorted({p.sigma_ppm for p in policies if isinstance(p, Ahap)}))
    if sigmas:
        prices, index = np.unique(market[episode.MARKET_ON_DEMAND_PRICE], return_inverse=True)
        market[episode.MARKET_PRICE_INDEX] = index
        worths = [_worth(program, sigmas, price) for price in prices.tolist()]
        lines = np.stack([line for line, _ in worths])
        lates = np.stack([late for _, late in worths])
    else:
        lines = np.zeros((1, 1, 1, episode.LINE_COLUMNS), dtype=np.int64)
        lates = np.zeros((1, 1), dtype=np.int64)
    if table is None or not any(isinstance(policy, ValueToGo) for policy in policies):
        market[episode.MARKET_RUN_STATE] = -1
        value_table = _NO_TABLE
    else:
        value_table = _value_table(table)
    rows = np.array([_policy_row(p, sigmas) for p in policies], dtype=np.int64)
    shape = (first_slots.shape[0], len(policies))
    totals = np.zeros((*shape, episode.TOTAL_COLUMNS), dtype=np.int64)
    kept = np.zeros((*shape, program.end_slots, 3) if keep else (0, 0, 0, 0), dtype=np.int64)
    episode.replay_lives(
        layout.job,
        layout.by_count,
        layout.counts,
        layout.by_slot,
        market,
        predicted,
        lines,
        lates,
        PLANNING_CELLS,
        rows,
        np.array(_policy_row(fallback, ()), dtype=np.int64),
        firm,
        value_table,
        first_slots,
        totals,
        kept,
    )
    return totals, kept


def _value_table(table: ValueTable) -> tuple[npt.NDArray[Any], ...]:
    """A table as the kernels read it."""
    terms = table.terms
    own = terms.program
    space = terms.law.space
    scalars = np.zeros(episode.VALUE_SCALARS_LENGTH, dtype=np.int64)
    scalars[episode.SCALAR_CELL] = table.cell_quanta
    scalars[episode.SCALAR_SLOT_S] = own.slot_s
    scalars[episode.SCALAR_DEADLINE] = own.deadline_slots
    scalars[episode.SCALAR_HARD] = own.hard
    scalars[episode.SCALAR_MOST] = own.max_instances
    scalars[episode.SCALAR_TAKEN] = terms.taken
    scalars[episode.SCALAR_RESERVE] = terms.reserve_slots
    lists = (own.allowed_counts, own.rate_quanta_per_s, overheads_s(own))
    allowed, rates, overheads = (np.array(one, dtype=np.int64) for one in lists)
    values, centres, levels, ages = (
        np.array(one, dtype=np.int64)
        for one in (
            own.value_micro_usd,
            space.price_centres_ppm,
            space.level_starts,
            space.age_starts,
        )
    )
    sets = table.sets
    return (
        table.after,
        scalars,
        allowed,
        rates,
        overheads,
        table.nearest,
        table.pending_s,
        values,
        sets.spot,
        sets.on_demand,
        sets.cover_start,
        sets.covers,
        centres,
        levels,
        ages,
    )


# What the kernels are given where there is no table; they never look into it.
_NO_TABLE: tuple[npt.NDArray[Any], ...] = (
    np.zeros((1, 1, 1, 1, 1, 1), dtype=np.float32),
    np.zeros(episode.VALUE_SCALARS_LENGTH, dtype=np.int64),
    np.zeros(1, dtype=np.int64),
    np.zeros(1, dtype=np.int64),
    np.zeros(5, dtype=np.int64),
    np.zeros((1, 1), dtype=np.int64),
    *(np.zeros(1, dtype=np.int64) for _ in range(9)),
)


@lru_cache(maxsize=65_536)
def _holding(spot: int, on_demand: int) -> Holding:
    return Holding(spot=spot, on_demand=on_demand)


def _result(program: JobProgram, totals: list[int], kept: IntArray) -> JobResult:
    finished = totals[episode.TOTAL_FINISHED]
    slots = kept[: totals[episode.TOTAL_SLOTS]].tolist()
    return JobResult(
        utility_micro_usd=totals[episode.TOTAL_UTILITY],
        cost_micro_usd=totals[episode.TOTAL_COST],
        value_micro_usd=totals[episode.TOTAL_VALUE],
        finished_slot=finished,
        on_time=0 < finished <= program.deadline_slots,
        holdings=tuple(_holding(spot, on_demand) for spot, on_demand, _ in slots),
        reasons=tuple(_REASONS[reason] for _, _, reason in slots),
    )
