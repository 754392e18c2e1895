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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numba
import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.solvers.configurations import Configurations

IntArray = npt.NDArray[np.int64]

# More cells than this and the grid is coarsened; 20 slots of 12 instances at overheads of a
# twentieth of a slot need 1,600.
CELL_LIMIT = 4096
_NEVER = np.int64(-(2**62))


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

    def at(self, quanta: IntArray) -> IntArray:
        """Value of each progress in micro-USD, same shape."""
        over = (quanta - self.target_quanta).astype(np.float64) / 1e9
        slope = np.where(over < 0, self.below_micro_usd_per_giga, self.above_micro_usd_per_giga)
        return self.at_target_micro_usd + np.floor(over * slope).astype(np.int64)


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
    left = program.work_quanta - start.progress_quanta
    slots = len(market)
    if left <= 0 or slots == 0:
        return WindowPlan(holdings=(Holding(),) * slots, utility_micro_usd=0, exact=True)
    pending = _pending_levels(program, start.pending_overhead_s)
    seconds = _productive_seconds(program, pending)
    rates = [program.rate_quanta_per_s[h.instances] for h in configs.holdings]
    # A window sees no further than it can reach; the job may be much longer.
    reach = min(left, slots * max(rates) * max(seconds))
    cell, exact = _cell_quanta(rates, seconds, reach, cell_limit)
    up = 0 if rounding is Rounding.DOWN else cell - 1
    gain_cells = np.array([[(r * s + up) // cell for r in rates] for s in seconds], dtype=np.int64)
    done = -(-left // cell)
    cells = min(done, slots * int(gain_cells.max()) + 1)
    finish = np.zeros(slots, dtype=np.int64)
    for slot in range(slots):
        number = elapsed_slots + slot + 1
        if number <= program.end_slots:
            finish[slot] = program.value_micro_usd[number]
    grid = start.progress_quanta + np.arange(cells, dtype=np.int64) * cell
    match end_value:
        case None:
            terminal = np.zeros(cells, dtype=np.int64)
        case ProgressValue():
            terminal = end_value.at(grid)
        case _:
            rate = program.rate_quanta_per_s[program.max_instances] * program.slot_s
            needed = -((grid - program.work_quanta) // rate)
            terminal = end_value[np.minimum(needed, end_value.shape[0] - 1)]
    classes = np.array(
        [0, program.shrink_s, program.grow_s, program.launch_s, program.interrupted_s],
        dtype=np.int64,
    )
    forced = _forced_index(program, configs)
    best, choices = best_schedule(
        configs.spot,
        configs.on_demand,
        configs.cover_start,
        configs.covers,
        market.spot_price,
        market.on_demand_price,
        market.spot_available,
        market.on_demand_available,
        finish,
        terminal,
        done,
        gain_cells,
        _class_table(classes, pending, seconds, program.slot_s),
        program.slot_s,
        program.deadline_slots - elapsed_slots,
        forced,
        start.holding.spot,
        start.holding.on_demand,
    )
    return WindowPlan(
        holdings=tuple(configs.holdings[index] for index in choices),
        utility_micro_usd=int(best),
        exact=exact,
    )


def _pending_levels(program: JobProgram, first_s: int) -> list[int]:
    """Every overhead that can still be pending when a slot opens; the start's own comes first."""
    levels = [first_s]
    for overhead_s in (
        0,
        first_s,
        program.shrink_s,
        program.grow_s,
        program.launch_s,
        program.interrupted_s,
    ):
        left_s = max(0, overhead_s - program.slot_s) if overhead_s else 0
        while left_s not in levels:
            levels.append(left_s)
            left_s = max(0, left_s - program.slot_s)
    return levels


def _productive_seconds(program: JobProgram, pending: list[int]) -> list[int]:
    """Distinct productive seconds a slot can have, over every class of change and pending level."""
    overheads = {
        max(base, level)
        for base in (0, program.shrink_s, program.grow_s, program.launch_s, program.interrupted_s)
        for level in pending
    }
    return sorted({max(0, program.slot_s - overhead_s) for overhead_s in overheads})


def _class_table(
    classes: IntArray, pending: list[int], seconds: list[int], slot_s: int
) -> IntArray:
    """For each class of change and pending level: (row of the gains, next pending level)."""
    table = np.zeros((classes.shape[0], len(pending), 2), dtype=np.int64)
    for row, base in enumerate(classes.tolist()):
        for column, level in enumerate(pending):
            overhead_s = max(base, level)
            table[row, column, 0] = seconds.index(max(0, slot_s - overhead_s))
            table[row, column, 1] = pending.index(max(0, overhead_s - slot_s))
    return table


def _cell_quanta(
    rates: list[int], seconds: list[int], reach: int, cell_limit: int
) -> tuple[int, bool]:
    """The grid step in quanta, and whether every gain falls on it."""
    exact = math.gcd(*(rate * productive_s for rate in rates for productive_s in seconds))
    if exact == 0:
        return max(1, reach), True
    if reach <= exact * cell_limit:
        return exact, True
    return -(-reach // cell_limit), False


def _forced_index(program: JobProgram, configs: Configurations) -> int:
    """Index of the largest count on demand alone, -1 where it is not among the configurations."""
    forced = Holding(on_demand=program.max_instances)
    return configs.holdings.index(forced) if forced in configs.holdings else -1


@numba.njit(cache=True, nogil=True, error_model="numpy")
def best_schedule(  # type: ignore[no-untyped-def]  # compiled
    spot,
    on_demand,
    cover_start,
    covers,
    spot_price,
    on_demand_price,
    spot_available,
    on_demand_available,
    finish,
    terminal,
    done,
    gain_cells,
    class_table,
    slot_s,
    free_slots,
    forced,
    start_spot,
    start_on_demand,
):
    """Backward induction; returns the best value and the chosen index per slot.

    Only values are kept: what to do is found again on the way forward, for the one state met in
    each slot. Rows run along progress, so every step is a maximum of two shifted rows.
    """
    slots = spot_price.shape[0]
    cells = terminal.shape[0]
    count = spot.shape[0]
    levels = class_table.shape[1]
    largest = np.int64(0)
    for seconds in range(gain_cells.shape[0]):
        for c in range(count):
            largest = max(largest, gain_cells[seconds, c])
    settled = _zero_level(class_table)
    cost = np.empty((slots, count), dtype=np.int64)
    usable = np.empty((slots, count), dtype=np.bool_)
    for slot in range(slots):
        for c in range(count):
            cost[slot, c] = (spot_price[slot] * spot[c] * slot_s + 1800) // 3600 + (
                on_demand_price[slot] * on_demand[c] * slot_s + 1800
            ) // 3600
            usable[slot, c] = (
                spot[c] <= spot_available[slot]
                and on_demand[c] <= on_demand_available[slot]
                and (slot < free_slots or c == 0 or c == forced)
            )
    # What can be held when slot k opens, and everything that could be shrunk to from there.
    needed = np.zeros((slots, count), dtype=np.bool_)
    for slot in range(1, slots):
        for c in range(count - 1, 0, -1):
            if usable[slot - 1, c] and spot[c] <= spot_available[slot]:
                needed[slot, c] = True
            if needed[slot, c]:
                for k in range(cover_start[c], cover_start[c + 1]):
                    needed[slot, covers[k]] = True
    # The table of slot k holds values before it, of what can be held by then and as far as k slots
    # can reach, and beyond `done` what finishing earned. The terminal row is one for all held
    # sets: its stride is 0.
    reach = np.empty(slots + 1, dtype=np.int64)
    stride = np.empty(slots + 1, dtype=np.int64)
    offset = np.empty(slots + 1, dtype=np.int64)
    rows = np.ones(slots + 1, dtype=np.int64)
    row = np.zeros((slots + 1, count), dtype=np.int64)
    total = np.int64(0)
    for slot in range(slots + 1):
        reach[slot] = min(cells, slot * largest + 1)
        stride[slot] = reach[slot] + largest
        offset[slot] = total
        if 0 < slot < slots:
            for c in range(1, count):
                if usable[slot - 1, c]:
                    row[slot, c] = rows[slot]
                    rows[slot] += 1
            total += stride[slot] * rows[slot] * levels
    stride[slots] = 0
    table = np.empty(total + cells + largest, dtype=np.int64)
    _copy(table[total : total + cells], terminal)
    for cell in range(cells, cells + largest):
        table[total + cell] = finish[slots - 1]
    most = reach[slots - 1]
    grown = np.empty(most, dtype=np.int64)
    launched = np.empty(most, dtype=np.int64)
    broken = np.empty(most, dtype=np.int64)
    shrunk = np.empty((count, most), dtype=np.int64)
    for slot in range(slots - 1, 0, -1):
        width = reach[slot]
        for level in range(levels):
            later = offset[slot + 1]
            step = stride[slot + 1]
            many = rows[slot + 1]
            at = later + settled * many * step
            idle = table[at : at + width]
            _copy(shrunk[0, :width], idle)
            _copy(grown[:width], idle)
            # Kinds of change that cost the same share one maximum.
            same_launch = _same_kind(class_table, 3, 2, level)
            same_broken = _same_kind(class_table, 4, 2, level)
            if not same_launch:
                _copy(launched[:width], idle)
            if not same_broken:
                _copy(broken[:width], idle)
            for c in range(1, count):
                paid = cost[slot, c]
                if usable[slot, c]:
                    for kind in range(2, 5):
                        if (kind == 3 and same_launch) or (kind == 4 and same_broken):
                            continue
                        at = later + (class_table[kind, level, 1] * many + row[slot + 1, c]) * step
                        at += gain_cells[class_table[kind, level, 0], c]
                        source = table[at : at + width]
                        if kind == 2:
                            _raise(grown[:width], source, paid)
                        elif kind == 3:
                            _raise(launched[:width], source, paid)
                        else:
                            _raise(broken[:width], source, paid)
                if not needed[slot, c]:
                    continue
                into = shrunk[c, :width]
                first = cover_start[c]
                last = cover_start[c + 1] - 1
                at = later + (class_table[1, level, 1] * many + row[slot + 1, c]) * step
                at += gain_cells[class_table[1, level, 0], c]
                if usable[slot, c]:
                    _highest(
                        into,
                        shrunk[covers[first], :width],
                        shrunk[covers[last], :width],
                        table[at : at + width],
                        paid,
                    )
                else:
                    _copy(into, shrunk[covers[first], :width])
                    _raise(into, shrunk[covers[last], :width], 0)
                for k in range(first + 1, last):
                    _raise(into, shrunk[covers[k], :width], 0)
            for c in range(count):
                if c and not usable[slot - 1, c]:
                    continue
                at = offset[slot] + (level * rows[slot] + row[slot, c]) * stride[slot]
                now = table[at : at + width]
                if c == 0:
                    _copy(now, grown[:width] if same_launch else launched[:width])
                elif spot[c] > spot_available[slot]:
                    _copy(now, grown[:width] if same_broken else broken[:width])
                elif usable[slot, c]:
                    kept = later + (class_table[0, level, 1] * many + row[slot + 1, c]) * step
                    kept += gain_cells[class_table[0, level, 0], c]
                    _highest(
                        now,
                        grown[:width],
                        shrunk[c, :width],
                        table[kept : kept + width],
                        cost[slot, c],
                    )
                else:
                    _copy(now, grown[:width])
                    _raise(now, shrunk[c, :width], 0)
                if width == cells:
                    for cell in range(at + width, at + width + largest):
                        table[cell] = finish[slot - 1]
    plan = np.zeros(slots, dtype=np.int64)
    value = np.int64(0)
    at_cell = np.int64(0)
    # The first pending level is the start's own.
    at_level = np.int64(0)
    held_spot = start_spot
    held_on_demand = start_on_demand
    for slot in range(slots):
        best = np.int64(-(2**62))
        best_at = np.int64(0)
        best_level = settled
        best_cell = at_cell
        stays = False
        for c in range(count):
            if not usable[slot, c]:
                continue
            same = spot[c] == held_spot and on_demand[c] == held_on_demand
            next_level = settled
            next_cell = at_cell
            if c:
                if held_spot + held_on_demand == 0:
                    kind = 3
                elif held_spot > spot_available[slot]:
                    kind = 4
                elif same:
                    kind = 0
                elif spot[c] <= held_spot and on_demand[c] <= held_on_demand:
                    kind = 1
                else:
                    kind = 2
                next_level = class_table[kind, at_level, 1]
                next_cell = at_cell + gain_cells[class_table[kind, at_level, 0], c]
            at = next_level * rows[slot + 1] + row[slot + 1, c]
            at = offset[slot + 1] + at * stride[slot + 1]
            v = table[at + next_cell] - cost[slot, c]
            # Among equals staying wins, then more instances: progress made now is progress that
            # nobody can take.
            if v > best or (v == best and not stays):
                best = v
                best_at = c  # type: ignore[assignment]
                best_level = next_level
                best_cell = next_cell
                stays = same
        if slot == 0:
            value = best
        plan[slot] = best_at
        at_level = best_level
        at_cell = best_cell
        if at_cell >= done:
            break
        held_spot = spot[best_at]
        held_on_demand = on_demand[best_at]
    return value, plan


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _copy(into, source):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    for i in range(into.shape[0]):
        into[i] = source[i]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _raise(into, source, cost):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """Raise every element of `into` to that of `source` less a cost."""
    for i in range(into.shape[0]):
        into[i] = max(into[i], source[i] - cost)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _highest(into, one, other, source, cost):  # type: ignore[no-untyped-def]  # compiled
    """Write the highest of two rows and of a third less a cost."""
    for i in range(into.shape[0]):
        into[i] = max(max(one[i], other[i]), source[i] - cost)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _same_kind(class_table, one, other, level):  # type: ignore[no-untyped-def]  # compiled
    """Whether two kinds of change cost the same at a pending level."""
    return (
        class_table[one, level, 0] == class_table[other, level, 0]
        and class_table[one, level, 1] == class_table[other, level, 1]
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _zero_level(class_table):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """The pending level that stands for nothing pending: it leads to itself when held."""
    for level in range(class_table.shape[1]):
        if class_table[0, level, 1] == level:
            return level
    return np.int64(0)


def value_after_deadline(program: JobProgram, *, on_demand_price_micro_usd: int) -> IntArray:
    """Worth of a job that is unfinished at its deadline, by slots of on-demand work left.

    Entry k is `max(0, V(d + k) - k slots of the largest count on demand)`, micro-USD, shape
    (end_slots - deadline_slots + 2,); the last entry, 0, stands for everything beyond.
    """
    late = program.end_slots - program.deadline_slots
    cost = (on_demand_price_micro_usd * program.max_instances * program.slot_s + 1800) // 3600
    worth = [0] * (late + 2)
    for slots in range(1, late + 1):
        earned = program.value_micro_usd[program.deadline_slots + slots]
        worth[slots] = max(0, earned - slots * cost)
    return np.array(worth, dtype=np.int64)
