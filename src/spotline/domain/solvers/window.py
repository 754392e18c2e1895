"""The window program: what to hold in every slot of a window so that value less cost is greatest.

One exact dynamic program over (progress, held set, pending overhead) serves the committed-horizon
planners (short window, predicted market, a value for the progress left at its end) and the
clairvoyant optimum (the job's whole life, realised market). Progress runs on a grid of the
greatest common divisor of all possible gains, so nothing is rounded; where that grid would be too
fine, gains are rounded down (`Rounding.DOWN`: a value that can be had) or up (`Rounding.UP`: a
bound no schedule exceeds), and the answer says that it is not exact.

A stage costs O(cells * configurations): a job that grows pays the same overhead wherever it came
from, so one maximum over all targets serves every source, and what a job can shrink to is found
along the covering relation of its held sets.

`window_grid` lays the grid out, `schedule` solves it; this is what the rest of Spotline calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import RATE, Held, Standing, Terms, lay_out, terms_at
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.kernels import IntArray, kernel, rule
from spotline.domain.solvers.configurations import Configurations
from spotline.domain.solvers.schedule import best_schedule
from spotline.domain.solvers.window_grid import Ahead, Precision, Sets, lay_grid
from spotline.domain.units import cost_micro_usd

# More cells than this and the grid is coarsened; 20 slots of 12 instances at overheads of a
# twentieth of a slot need 1,600.
CELL_LIMIT = 4096

# Rows of what progress is worth around a target: `ProgressValue` as kernels read it.
TARGET = 0
AT_TARGET = 1
BELOW = 2
ABOVE = 3


class Rounding(Enum):
    """What happens to gains that do not fall on the grid."""

    DOWN = "down"
    UP = "up"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowMarket:
    """Prices (micro-USD per instance-hour) and counts per slot of a window, shape (slots,)."""

    spot_price: IntArray
    on_demand_price: IntArray
    spot_available: IntArray
    on_demand_available: IntArray

    def __len__(self) -> int:
        return int(self.spot_price.shape[0])

    def between(self, first: int, end: int) -> WindowMarket:
        """The slots `first` <= k < `end`."""
        return WindowMarket(
            spot_price=self.spot_price[first:end],
            on_demand_price=self.on_demand_price[first:end],
            spot_available=self.spot_available[first:end],
            on_demand_available=self.on_demand_available[first:end],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """The best schedule of a window: holdings per slot, and value less cost in micro-USD.

    `exact` says that no gain was rounded. A slot after the job is done is idle.
    """

    holdings: tuple[Holding, ...]
    utility_micro_usd: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressValue:
    """What progress is worth at the end of a window, piecewise linear around a target.

    At `target_quanta` it is `at_target_micro_usd`; below, a quantum is worth `below`, above it
    `above` (micro-USD per 10**9 quanta): catching up costs more than getting ahead saves.
    """

    target_quanta: int
    at_target_micro_usd: int
    below_micro_usd_per_giga: int
    above_micro_usd_per_giga: int

    @property
    def row(self) -> IntArray:
        """The numbers as kernels read them: `TARGET`, `AT_TARGET`, `BELOW`, `ABOVE`."""
        return np.array(
            (
                self.target_quanta,
                self.at_target_micro_usd,
                self.below_micro_usd_per_giga,
                self.above_micro_usd_per_giga,
            ),
            dtype=np.int64,
        )

    def at(self, quanta: IntArray) -> IntArray:
        """Value of each progress in micro-USD, same shape."""
        row = self.row
        return np.array([worth_around(row, each) for each in quanta.tolist()], dtype=np.int64)


class WindowEnd(NamedTuple):
    """Worth where a window ends unfinished: `value` around a target, or by slots still needed."""

    value: IntArray
    around: bool


def solve_window(
    program: JobProgram,
    configs: Configurations,
    market: WindowMarket,
    start: JobProgress,
    *,
    elapsed_slots: int,
    end_value: ProgressValue | IntArray | None,
    rounding: Rounding = Rounding.DOWN,
    cell_limit: int = CELL_LIMIT,
) -> WindowPlan:
    """Find the schedule of greatest value less cost over a window.

    Parameters
    ----------
    program
        The job. Finishing in slot T (from 1, counted from the job's first) earns
        `program.value_micro_usd[T]`; after `deadline_slots` only the largest count on demand or
        nothing is held, as in the paper's termination rule.
    configs
        The held sets to choose from; `start.holding` may be any set, also one outside.
    market
        Price and availability of each slot of the window.
    start
        Where the job stands before the window. Spot beyond the first slot's availability counts
        as interrupted.
    elapsed_slots
        Slots of the job's life before the window.
    end_value
        Worth of the progress where the window ends unfinished: None is 0, an array holds the
        value per slot of on-demand work still needed (see `value_after_deadline`).

    Returns
    -------
    WindowPlan
        Holdings per slot. Among equals holding wins over changing, then more instances win.

    Notes
    -----
    After arXiv:2512.20967 (model, termination), reconstructed from the abstract and the model;
    ours differs in charging overhead for every change of the held set.
    """
    slots = len(market)
    if start.progress_quanta >= program.work_quanta or slots == 0:
        return WindowPlan(holdings=(Holding(),) * slots, utility_micro_usd=0, exact=True)
    layout = lay_out(program)
    row = np.array(
        (
            elapsed_slots,
            start.progress_quanta,
            start.holding.spot,
            start.holding.on_demand,
            start.pending_overhead_s,
            cell_limit,
            rounding is Rounding.UP,
        ),
        dtype=np.int64,
    )
    value = end_value.row if isinstance(end_value, ProgressValue) else end_value
    best, exact, choices = _solve(
        layout.row,
        row,
        (configs.spot, configs.on_demand, configs.cover_start, configs.covers),
        (
            market.spot_price,
            market.on_demand_price,
            market.spot_available,
            market.on_demand_available,
        ),
        layout.by_count,
        layout.values,
        np.zeros(1, dtype=np.int64) if value is None else value,
        isinstance(end_value, ProgressValue),
    )
    return WindowPlan(
        holdings=tuple(configs.holdings[index] for index in choices.tolist()),
        utility_micro_usd=best,
        exact=exact,
    )


@kernel
def _solve(
    program: IntArray,
    row: IntArray,
    sets: tuple[IntArray, IntArray, IntArray, IntArray],
    market: tuple[IntArray, IntArray, IntArray, IntArray],
    by_count: IntArray,
    values: IntArray,
    end_value: IntArray,
    around: bool,
) -> tuple[int, bool, IntArray]:
    standing = Standing(row[0], row[1], Held(row[2], row[3]), row[4], 0, 0, 0)
    return plan_window(
        terms_at(program),
        standing,
        Sets(sets[0], sets[1], sets[2], sets[3]),
        Ahead(market[0], market[1], market[2], market[3]),
        Precision(row[5], row[6]),
        by_count,
        values,
        WindowEnd(end_value, around),
    )


@kernel
def plan_window(
    terms: Terms,
    standing: Standing,
    sets: Sets,
    ahead: Ahead,
    precision: Precision,
    by_count: IntArray,
    values: IntArray,
    ending: WindowEnd,
) -> tuple[int, bool, IntArray]:
    """Solve a window: its utility, whether that is exact, and the set to hold per slot."""
    slots = ahead.spot.shape[0]
    grid = lay_grid(terms, standing, sets, slots, precision, by_count)
    finish = np.zeros(slots, dtype=np.int64)
    for slot in range(slots):
        number = standing.elapsed + slot + 1
        if number <= terms.end_slots:
            finish[slot] = values[number]
    most = by_count.shape[1] - 1
    full = by_count[RATE, most] * terms.slot_s
    terminal = np.empty(grid.cells, dtype=np.int64)
    for cell in range(grid.cells):
        progress = standing.progress + cell * grid.cell
        if ending.around:
            terminal[cell] = worth_around(ending.value, progress)
        else:
            needed = -((progress - terms.work_quanta) // full)
            terminal[cell] = ending.value[min(needed, ending.value.shape[0] - 1)]
    forced = -1
    for c in range(sets.spot.shape[0]):
        if sets.spot[c] == 0 and sets.on_demand[c] == most:
            forced = c
    best, chosen = best_schedule(terms, standing, sets, ahead, grid, finish, terminal, forced)
    return best, grid.exact, chosen


@rule
def worth_around(value: IntArray, progress: int) -> int:
    """What progress is worth around a target: `ProgressValue`, micro-USD."""
    over = np.float64(progress - value[TARGET]) / 1e9
    slope = np.float64(value[BELOW] if over < 0 else value[ABOVE])
    return int(value[AT_TARGET] + np.int64(np.floor(over * slope)))


def value_after_deadline(program: JobProgram, *, on_demand_price_micro_usd: int) -> IntArray:
    """Worth of a job that is unfinished at its deadline, by slots of on-demand work left.

    Entry k is `max(0, V(d + k) - k slots of the largest count on demand)`, micro-USD, shape
    (end_slots - deadline_slots + 2,); the last entry, 0, stands for everything beyond.
    """
    late = program.end_slots - program.deadline_slots
    cost = cost_micro_usd(on_demand_price_micro_usd, program.max_instances, program.slot_s)
    worth = [0] * (late + 2)
    for slots in range(1, late + 1):
        earned = program.value_micro_usd[program.deadline_slots + slots]
        worth[slots] = max(0, earned - slots * cost)
    return np.array(worth, dtype=np.int64)
