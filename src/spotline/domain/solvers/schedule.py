"""The best schedule of a window on a grid: backward induction, then the way forward.

Only values are kept: what to do is found again on the way forward, for the one state met in each
slot. Rows run along progress, so every step is a maximum of shifted rows.

`Table` is the bundle of what the induction keeps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import (
    BROKEN,
    CHANGES,
    GROW,
    KEEP,
    LAUNCH,
    SHRINK,
    Held,
    Standing,
    Terms,
    change_kind,
    cost,
)
from spotline.domain.kernels import BoolArray, IntArray, inlined, kernel
from spotline.domain.solvers.window_grid import Ahead, Grid, Sets


class Table(NamedTuple):
    """Values before each slot, of the sets that can be held by then and of all levels pending.

    `paid` and `usable` are by (slot, set); `needed` says what could be shrunk to. The values
    before slot k lie in `values` from `offset[k]`, a row of length `stride[k]` for each level and
    each of `rows[k]` held sets (`row[k, set]`); `reach[k]` cells of a row can be reached, and
    beyond the end of the work lies what finishing earned. The last slot's row is one for all held
    sets: its stride is 0. `settled` is the level at which nothing is pending.
    """

    paid: IntArray
    usable: BoolArray
    needed: BoolArray
    reach: IntArray
    stride: IntArray
    offset: IntArray
    rows: IntArray
    row: IntArray
    values: IntArray
    largest: int
    settled: int


@inlined
def best_schedule(
    terms: Terms,
    standing: Standing,
    sets: Sets,
    ahead: Ahead,
    grid: Grid,
    finish: IntArray,
    terminal: IntArray,
    forced: int,
) -> tuple[int, IntArray]:
    """Return the best value and the index of the set to hold per slot.

    `finish` is worth by slot, `terminal` the worth of progress at the window's end by cell. After
    the deadline only idle and `forced` are held.
    """
    paid, usable = lay_costs(terms, standing, sets, ahead, forced)
    needed = lay_needed(sets, ahead.spot, usable)
    table = lay_table(grid, paid, usable, needed, finish, terminal)
    fill(sets, ahead, grid, table, finish)
    return follow(standing, sets, ahead.spot, grid, table)


@inlined
def lay_costs(
    terms: Terms, standing: Standing, sets: Sets, ahead: Ahead, forced: int
) -> tuple[IntArray, BoolArray]:
    """What every set costs in every slot, and whether it can be held then."""
    slots, count = ahead.spot.shape[0], sets.spot.shape[0]
    free_slots = terms.deadline_slots - standing.elapsed
    paid = np.empty((slots, count), dtype=np.int64)
    usable = np.empty((slots, count), dtype=np.bool_)
    for slot in range(slots):
        for c in range(count):
            spot, on_demand = sets.spot[c], sets.on_demand[c]
            paid[slot, c] = cost(ahead.spot_price[slot], spot, terms.slot_s)
            paid[slot, c] += cost(ahead.on_demand_price[slot], on_demand, terms.slot_s)
            free = slot < free_slots or c == 0 or c == forced
            stocked = spot <= ahead.spot[slot] and on_demand <= ahead.on_demand[slot]
            usable[slot, c] = free and stocked
    return paid, usable


@inlined
def lay_needed(sets: Sets, spot_available: IntArray, usable: BoolArray) -> BoolArray:
    """What can be held when a slot opens, and everything that could be shrunk to from there."""
    slots, count = usable.shape
    needed = np.zeros((slots, count), dtype=np.bool_)
    for slot in range(1, slots):
        for c in range(count - 1, 0, -1):
            if usable[slot - 1, c] and sets.spot[c] <= spot_available[slot]:
                needed[slot, c] = True
            if needed[slot, c]:
                for k in range(sets.cover_start[c], sets.cover_start[c + 1]):
                    needed[slot, sets.covers[k]] = True
    return needed


@inlined
def lay_table(
    grid: Grid,
    paid: IntArray,
    usable: BoolArray,
    needed: BoolArray,
    finish: IntArray,
    terminal: IntArray,
) -> Table:
    """Lay the table out and fill what lies behind the window."""
    slots, count = usable.shape
    cells, levels = grid.cells, grid.changes.shape[1]
    largest = 0
    for index in range(grid.gains.shape[0]):
        for c in range(count):
            largest = max(largest, grid.gains[index, c])
    reach = np.empty(slots + 1, dtype=np.int64)
    stride = np.empty(slots + 1, dtype=np.int64)
    offset = np.empty(slots + 1, dtype=np.int64)
    rows = np.ones(slots + 1, dtype=np.int64)
    row = np.zeros((slots + 1, count), dtype=np.int64)
    total = 0
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
    values = np.empty(total + cells + largest, dtype=np.int64)
    copy_row(values[total : total + cells], terminal)
    for cell in range(cells, cells + largest):
        values[total + cell] = finish[slots - 1]
    settled = settled_level(grid.changes)
    return Table(
        paid, usable, needed, reach, stride, offset, rows, row, values, largest, settled
    )  # fmt: skip


@inlined
def fill(sets: Sets, ahead: Ahead, grid: Grid, table: Table, finish: IntArray) -> None:
    """Fill the table from the window's end to its second slot."""
    # Taken apart once: numba counts the arrays of a bundle wherever that is handed on.
    changes, gains = grid.changes, grid.gains
    spot, starts, covers = sets.spot, sets.cover_start, sets.covers
    paid, usable, needed, values = table.paid, table.usable, table.needed, table.values
    reach, row = table.reach, table.row
    leads = np.empty((CHANGES, spot.shape[0]), dtype=np.int64)
    into = np.empty((2, spot.shape[0]), dtype=np.int64)
    for slot in range(finish.shape[0] - 1, 0, -1):
        width = reach[slot]
        # Rows without gaps: loops over others are not vectorised.
        best = np.empty((3, width), dtype=np.int64)
        shrunk = np.empty((spot.shape[0], width), dtype=np.int64)
        offset, stride, rows = table.offset[slot], table.stride[slot], table.rows[slot]
        later = table.offset[slot + 1]
        later_stride, later_rows = table.stride[slot + 1], table.rows[slot + 1]
        for level in range(changes.shape[1]):
            for c in range(spot.shape[0]):
                for kind in range(CHANGES):
                    at = changes[kind, level, 1] * later_rows + row[slot + 1, c]
                    gained = gains[changes[kind, level, 0], c]
                    leads[kind, c] = later + at * later_stride + gained
                into[0, c] = offset + (level * rows + row[slot, c]) * stride
                into[1, c] = KEPT if usable[slot, c] else GROWN
                if spot[c] > ahead.spot[slot]:
                    into[1, c] = REGROUPED
                if c and not usable[slot - 1, c]:
                    into[0, c] = -1
            at = later + table.settled * later_rows * later_stride
            idle = values[at : at + width]
            raise_targets(best, idle, leads, paid[slot], usable[slot], values, changes, level)
            copy_row(shrunk[0], idle)
            shrink(shrunk, leads, paid[slot], usable[slot], needed[slot], values, covers, starts)
            write(into, leads, paid[slot], values, best, shrunk)
        if width == grid.cells:
            lay_finish(slot, grid, table, finish[slot - 1])


# Where the values of a held set come from.
GROWN, KEPT, REGROUPED = range(3)


@kernel
def raise_targets(
    best: IntArray,
    idle: IntArray,
    leads: IntArray,
    paid: IntArray,
    usable: BoolArray,
    values: IntArray,
    changes: IntArray,
    level: int,
) -> None:
    """Find the most that growing, launching and regrouping lead to: the rows of `best`.

    Whatever grows pays the same wherever it came from: one maximum over all targets serves every
    source. Kinds of change that cost the same as growing are copied from there.
    """
    width = idle.shape[0]
    for kind in range(GROW, BROKEN + 1):
        into = best[kind - GROW]
        if kind > GROW and same_kind(changes, kind, level):
            copy_row(into, best[0])
            continue
        copy_row(into, idle)
        for c in range(1, usable.shape[0]):
            if usable[c]:
                raise_row(into, values[leads[kind, c] : leads[kind, c] + width], paid[c])


@kernel
def shrink(
    shrunk: IntArray,
    leads: IntArray,
    paid: IntArray,
    usable: BoolArray,
    needed: BoolArray,
    values: IntArray,
    covers: IntArray,
    starts: IntArray,
) -> None:
    """Find the most that staying inside each set leads to: the rows of `shrunk`, idle is there."""
    width = shrunk.shape[1]
    for c in range(1, usable.shape[0]):
        if not needed[c]:
            continue
        into = shrunk[c]
        first = starts[c]
        last = starts[c + 1] - 1
        low, high = shrunk[covers[first]], shrunk[covers[last]]
        if usable[c]:
            at = leads[SHRINK, c]
            raise_highest(into, low, high, values[at : at + width], paid[c])
        else:
            copy_row(into, low)
            raise_row(into, high, 0)
        for k in range(first + 1, last):
            raise_row(into, shrunk[covers[k]], 0)


@kernel
def write(
    into: IntArray,
    leads: IntArray,
    paid: IntArray,
    values: IntArray,
    best: IntArray,
    shrunk: IntArray,
) -> None:
    """Write the values before a slot, of one level pending, for all that can be held by then."""
    width = shrunk.shape[1]
    for c in range(paid.shape[0]):
        at = into[0, c]
        if at < 0:
            continue
        now = values[at : at + width]
        if c == 0:
            copy_row(now, best[LAUNCH - GROW])
        elif into[1, c] == REGROUPED:
            copy_row(now, best[BROKEN - GROW])
        elif into[1, c] == KEPT:
            kept = leads[KEEP, c]
            raise_highest(now, best[0], shrunk[c], values[kept : kept + width], paid[c])
        else:
            copy_row(now, best[0])
            raise_row(now, shrunk[c], 0)


@inlined
def lay_finish(slot: int, grid: Grid, table: Table, worth: int) -> None:
    """Write what finishing in the slot before is worth, beyond the end of the work."""
    values, stride, reach = table.values, table.stride[slot], table.reach[slot]
    for row in range(grid.changes.shape[1] * table.rows[slot]):
        at = table.offset[slot] + row * stride + reach
        for cell in range(at, at + table.largest):
            values[cell] = worth


@inlined
def follow(
    standing: Standing, sets: Sets, spot_available: IntArray, grid: Grid, table: Table
) -> tuple[int, IntArray]:
    """Go forward from `standing`; returns the value of the best schedule, and the schedule."""
    changes, gains, spot, on_demand = grid.changes, grid.gains, sets.spot, sets.on_demand
    usable, paid, row, values = table.usable, table.paid, table.row, table.values
    rows, offset, stride = table.rows, table.offset, table.stride
    slots = spot_available.shape[0]
    plan = np.zeros(slots, dtype=np.int64)
    value = 0
    cell = 0
    level = 0
    held = standing.held
    for slot in range(slots):
        best = -(2**62)
        chosen, chosen_level, chosen_cell = 0, table.settled, cell
        stays = False
        for c in range(spot.shape[0]):
            if not usable[slot, c]:
                continue
            same = spot[c] == held.spot and on_demand[c] == held.on_demand
            next_level, next_cell = table.settled, cell
            if c:
                wanted = Held(spot[c], on_demand[c])
                kind = change_kind(held, wanted, held.spot > spot_available[slot])
                next_level = changes[kind, level, 1]
                next_cell = cell + gains[changes[kind, level, 0], c]
            at = next_level * rows[slot + 1] + row[slot + 1, c]
            at = offset[slot + 1] + at * stride[slot + 1]
            worth = values[at + next_cell] - paid[slot, c]
            # Among equals staying wins, then more instances: progress made now is progress that
            # nobody can take.
            if worth > best or (worth == best and not stays):
                best, chosen, stays = worth, c, same
                chosen_level, chosen_cell = next_level, next_cell
        if slot == 0:
            value = best
        plan[slot] = chosen
        level, cell = chosen_level, chosen_cell
        if cell >= grid.done:
            break
        held = Held(spot[chosen], on_demand[chosen])
    return value, plan


# --- rows -------------------------------------------------------------------------------------


@kernel
def copy_row(into: IntArray, source: IntArray) -> None:
    """Copy a row."""
    for i in range(into.shape[0]):
        into[i] = source[i]


@kernel
def raise_row(into: IntArray, source: IntArray, paid: int) -> None:
    """Raise every element of `into` to that of `source` less a cost."""
    for i in range(into.shape[0]):
        into[i] = max(into[i], source[i] - paid)


@kernel
def raise_highest(
    into: IntArray, low: IntArray, high: IntArray, source: IntArray, paid: int
) -> None:
    """Write the highest of two rows and of a third less a cost."""
    for i in range(into.shape[0]):
        into[i] = max(max(low[i], high[i]), source[i] - paid)


@inlined
def same_kind(changes: IntArray, kind: int, level: int) -> bool:
    """Whether a kind of change costs the same as growing, at a level pending."""
    return bool(
        changes[kind, level, 0] == changes[GROW, level, 0]
        and changes[kind, level, 1] == changes[GROW, level, 1]
    )


@inlined
def settled_level(changes: IntArray) -> int:
    """The level that stands for nothing pending: it leads to itself when held."""
    for level in range(changes.shape[1]):
        if changes[KEEP, level, 1] == level:
            return level
    return 0
