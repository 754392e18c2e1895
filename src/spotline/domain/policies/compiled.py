"""Whole pools and whole markets replayed at once: `replay.replay_policy`, compiled.

What has no compiled form (see `has_kernel`) goes through `replay_policy`; the answers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.accounting import LARGEST, lay_out
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.kernels import IntArray
from spotline.domain.policies import lives
from spotline.domain.policies.ahap import line_value
from spotline.domain.policies.decision import REASONS
from spotline.domain.policies.interface import Policy, WindowForecast
from spotline.domain.policies.line import line_of
from spotline.domain.policies.lives import Life
from spotline.domain.policies.params import Params
from spotline.domain.policies.replay import (
    JobResult,
    SlotRecord,
    clairvoyant_optimum,
    replay_policy,
)
from spotline.domain.solvers.value_table import NO_TABLE, ValueTable
from spotline.domain.solvers.window import value_after_deadline

BoolArray = npt.NDArray[np.bool_]


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
    return params_of(policy) is not None


def params_of(policy: Policy) -> Params | None:
    """Return what `lives.live` reads of a policy, None where it does not know it."""
    params = getattr(policy, "params", None)
    return params if isinstance(params, Params) and params.kind in lives.KINDS else None


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
        market = _market_of_records(records, _farthest(batch), firm=spot_firm)
        starts = _from_first(np.zeros(1, dtype=np.int64))
        fared, kept = _run(program, market, (*batch, fallback), table, starts, keep=True)
        for row, index in enumerate(compiled):
            results[index] = _result(program, Life(*fared[0, row].tolist()), kept[0, row])
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
    outcomes = np.zeros((starts.size, len(policies), len(Life._fields)), dtype=np.int64)
    compiled = _compilable(program, policies, fallback, table) if starts.size else []
    if compiled:
        batch = tuple(policies[index] for index in compiled)
        market = _market_of_series(series, _farthest(batch), firm=spot_firm)
        begun = _from_first(starts)
        fared, _ = _run(program, market, (*batch, fallback), table, begun, keep=False)
        outcomes[:, compiled] = fared
    others = [index for index in range(len(policies)) if index not in set(compiled)]
    for row, first in enumerate(starts.tolist() if others else ()):
        records = series.records(first, program.end_slots)
        for index in others:
            result = replay_policy(
                program, records, policies[index], fallback, table, spot_firm=spot_firm
            )
            outcomes[row, index] = Life(
                utility=result.utility_micro_usd,
                cost=result.cost_micro_usd,
                value=result.value_micro_usd,
                finished=result.finished_slot,
                slots=len(result.holdings),
            )
    return _table_of(program, outcomes)


def _table_of(program: JobProgram, lives_lived: IntArray) -> ReplayTable:
    """Fields of `Life`, the last axis, as a table."""
    utility, cost, value, finished, slots = np.moveaxis(lives_lived, -1, 0)
    return ReplayTable(
        utility_micro_usd=utility,
        cost_micro_usd=cost,
        value_micro_usd=value,
        finished_slot=finished,
        decisions=slots,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Where a life goes on: after so many slots of it, as the job then stands, this being spent."""

    elapsed_slots: int
    state: JobProgress
    spent_micro_usd: int


def replay_rest(
    program: JobProgram,
    begun: Sequence[Begun],
    futures: Sequence[Sequence[SlotRecord]],
    players: tuple[Policy, Policy],
    table: ValueTable | None = None,
    *,
    spot_firm: bool = True,
) -> ReplayTable:
    """Live the rest of a job's life from every start on every future, plans being made afresh.

    The answer is of shape (starts, futures), and of what was spent before, too.

    Parameters
    ----------
    begun
        All after equally many slots; their jobs are not done.
    futures
        The slots from there until the job's last at least, in each.
    players
        A policy and its fallback.

    Raises
    ------
    ValueError
        A policy has no compiled form for this program and table, or a future is too short.
    """
    elapsed = {start.elapsed_slots for start in begun}
    slots = program.end_slots - min(elapsed, default=program.end_slots)
    shape = (len(begun), len(futures))
    if slots <= 0 or not futures:
        return _table_of(program, np.zeros((*shape, len(Life._fields)), dtype=np.int64))
    if len(elapsed) > 1 or min(map(len, futures)) < slots:
        raise ValueError(f"begun must be after equally many slots, futures of {slots} at least")
    if not _compilable(program, players[:1], players[1], table):
        raise ValueError(f"{players[0].policy_id} has no compiled form here")
    laid = [record for future in futures for record in future[:slots]]
    market = _market_of_records(laid, _farthest(players[:1]), firm=spot_firm)
    firsts = range(0, len(laid), slots)
    starts = np.array([_row(first, start) for start in begun for first in firsts], dtype=np.int64)
    fared, _ = _run(program, market, players, table, starts, keep=False)
    return _table_of(program, fared[:, 0].reshape(*shape, -1))


# --- laying things out ------------------------------------------------------------------------


def _row(first: int, start: Begun) -> tuple[int, ...]:
    """A start, for `lives.replay_lives`, that goes on in this row of its market."""
    state, held = start.state, start.state.holding
    return (
        *(first, start.elapsed_slots, state.progress_quanta, held.spot, held.on_demand),
        *(state.pending_overhead_s, start.spent_micro_usd, state.unsaved_quanta),
    )


def _from_first(first_slots: IntArray) -> IntArray:
    """Starts of whole lives, for `lives.replay_lives`."""
    starts = np.zeros((first_slots.shape[0], lives.START_COLUMNS), dtype=np.int64)
    starts[:, lives.FIRST] = first_slots
    return starts


@dataclass(frozen=True, slots=True, eq=False)
class _Market:
    """A market as `lives.replay_lives` reads it, and the forecasts: (2, slots, steps)."""

    rows: IntArray
    predicted: IntArray


@lru_cache(maxsize=4096)
def _worth(
    program: JobProgram, sigmas_ppm: tuple[int, ...], on_demand_price: int
) -> tuple[IntArray, IntArray]:
    """What progress is worth at a window's end: before the deadline by slot and sigma, and at it."""
    ends = max(1, program.deadline_slots)
    lines = np.zeros((ends, max(1, len(sigmas_ppm)), 4), dtype=np.int64)
    for end in range(1, ends):
        for column, sigma_ppm in enumerate(sigmas_ppm):
            lines[end, column] = line_value(program, sigma_ppm, end, on_demand_price).row
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
    # What the fallback looked into is not kept.
    if fallback.uses_table:
        return []
    solved = table is None or _solves(table, program)
    known = _known(tuple(policies))
    return [
        index
        for index, policy in enumerate(policies)
        if known[index] and (solved or not policy.uses_table)
    ]


@lru_cache(maxsize=256)
def _known(policies: tuple[Policy, ...]) -> tuple[bool, ...]:
    return tuple(has_kernel(policy) for policy in policies)


def _solves(table: ValueTable, program: JobProgram) -> bool:
    """Whether a table is laid out for this program; money and work may differ."""
    own = table.terms.program
    return all(
        getattr(own, name) == getattr(program, name)
        for name in ("slot_s", "deadline_slots", "end_slots", "allowed_counts")
    )


@lru_cache(maxsize=256)
def _farthest(policies: tuple[Policy, ...]) -> int:
    return max((policy.forecast_slots for policy in policies), default=0)


def _market_of_records(records: Sequence[SlotRecord], most_steps: int, *, firm: bool) -> _Market:
    rows = np.array(
        [
            (
                r.spot_price,
                r.on_demand_price,
                r.spot_available,
                r.on_demand_available,
                r.reserve_slots,
                r.rescue_instances,
                firm,
                -1 if r.forecast is None else min(most_steps, len(r.forecast.spot_price)),
                r.run_state,
            )
            for r in records
        ],
        dtype=np.int64,
    )
    predicted = np.zeros((2, len(records), most_steps), dtype=np.int64)
    for slot, record in enumerate(records):
        if record.forecast is not None:
            steps = min(most_steps, len(record.forecast.spot_price))
            predicted[0, slot, :steps] = record.forecast.spot_price[:steps]
            predicted[1, slot, :steps] = record.forecast.spot_available[:steps]
    return _Market(rows=rows, predicted=predicted)


def _market_of_series(series: MarketSeries, most_steps: int, *, firm: bool) -> _Market:
    rows = np.zeros((len(series), lives.MARKET_COLUMNS), dtype=np.int64)
    rows[:, lives.SPOT_PRICE] = series.spot_price
    rows[:, lives.ON_DEMAND_PRICE] = series.on_demand_price
    rows[:, lives.SPOT] = series.spot_available
    rows[:, lives.ON_DEMAND] = series.on_demand_available
    rows[:, lives.FIRM] = firm
    rows[:, lives.STEPS] = -1
    rows[:, lives.RUN_STATE] = -1 if series.run_state is None else series.run_state
    if series.reserve_slots is not None:
        rows[:, lives.RESERVE_SLOTS] = series.reserve_slots
    if series.rescue_instances is not None:
        rows[:, lives.RESCUE] = series.rescue_instances
    predicted = np.zeros((2, len(series), most_steps), dtype=np.int64)
    if series.forecast is not None:
        rows[:, lives.STEPS] = np.minimum(series.forecast.steps, most_steps)
        seen = min(most_steps, series.forecast.spot_price.shape[1])
        predicted[0, :, :seen] = series.forecast.spot_price[:, :seen]
        predicted[1, :, :seen] = series.forecast.spot_available[:, :seen]
    return _Market(rows=rows, predicted=predicted)


def _run(
    program: JobProgram,
    market: _Market,
    players: Sequence[Policy],
    table: ValueTable | None,
    starts: IntArray,
    *,
    keep: bool,
) -> tuple[IntArray, IntArray]:
    """Run all players but the last, which is their fallback; `starts` as `lives.replay_lives`."""
    layout = lay_out(program)
    rows = market.rows
    most = program.max_instances
    rescue = layout.by_count[LARGEST, np.minimum(rows[:, lives.RESCUE], most)]
    rows[:, lives.RESCUE] = np.where(rescue > 0, rescue, most)
    looks = table is not None and any(player.uses_table for player in players)
    if not looks:
        rows[:, lives.RUN_STATE] = -1
    player_rows, sigmas = _rows_of(tuple(players))
    index, lines, lates = _worths(program, rows[:, lives.ON_DEMAND_PRICE], sigmas)
    return lives.replay_lives(
        (layout.row, layout.by_count, layout.values, line_of(program)),
        rows,
        player_rows,
        (market.predicted, index, lines, lates),
        table.arrays if table is not None and looks else NO_TABLE,
        starts,
        program.end_slots if keep else 0,
    )


@lru_cache(maxsize=256)
def _rows_of(players: tuple[Policy, ...]) -> tuple[IntArray, tuple[int, ...]]:
    """Rows of `Params`, and the sigmas that planners among the players have."""
    params = [params_of(player) for player in players]
    sigmas = sorted({each.sigma_ppm for each in params if each is not None and each.commitment})
    rows = [
        each._replace(sigma=sigmas.index(each.sigma_ppm)) if each.commitment else each
        for each in params
        if each is not None
    ]
    return np.array(rows, dtype=np.int64), tuple(sigmas)


def _worths(
    program: JobProgram, on_demand_price: IntArray, sigmas_ppm: tuple[int, ...]
) -> tuple[IntArray, IntArray, IntArray]:
    """`Planner.prices`, `Planner.lines` and `Planner.lates`."""
    if not sigmas_ppm:
        none = np.zeros((1, 1), dtype=np.int64)
        return np.zeros(1, dtype=np.int64), np.zeros((1, 1, 1, 4), dtype=np.int64), none
    prices, index = np.unique(on_demand_price, return_inverse=True)
    worths = [_worth(program, sigmas_ppm, price) for price in prices.tolist()]
    return index, np.stack([line for line, _ in worths]), np.stack([late for _, late in worths])


@lru_cache(maxsize=65_536)
def _holding(spot: int, on_demand: int) -> Holding:
    return Holding(spot=spot, on_demand=on_demand)


def _result(program: JobProgram, life: Life, kept: IntArray) -> JobResult:
    slots = kept[: life.slots].tolist()
    return JobResult(
        utility_micro_usd=life.utility,
        cost_micro_usd=life.cost,
        value_micro_usd=life.value,
        finished_slot=life.finished,
        on_time=0 < life.finished <= program.deadline_slots,
        holdings=tuple(_holding(spot, on_demand) for spot, on_demand, _ in slots),
        reasons=tuple(REASONS[reason] for _, _, reason in slots),
    )
