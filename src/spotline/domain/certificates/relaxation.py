"""A job's clairvoyant problem with a price on what it foresees: the kernels.

The penalty of a step is `W(next) - E[W(next)]`, W being what a value table says a slot is worth as
it opens. It is linear in W and has mean zero for whoever does not foresee, whatever W is; so the
mean over futures of the best penalised schedule is no less than what any online policy earns
(Brown, Sun and Smith, Operations Research 2010, proposition 2.1 with section 2.3's penalties).

Bundles that the kernels share:

Ground
    What a penalised problem is laid on: held sets, grid of progress, changes.
SlotWorths
    What a slot is worth by what was held, and the work space of computing it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import (
    BROKEN,
    GROW,
    KEEP,
    LAUNCH,
    RATE,
    SHRINK,
    Held,
    Standing,
    Terms,
    cost,
    terms_at,
)
from spotline.domain.kernels import FloatArray, IntArray, inlined, kernel
from spotline.domain.solvers.table_look import cell_of
from spotline.domain.solvers.table_stage import (
    Goal,
    TableArray,
    lay_gains,
    level_of,
    slot_offer,
    stage,
)
from spotline.domain.solvers.window_grid import Precision, Sets, lay_grid, pending_levels


@kernel
def open_life(
    program: IntArray,
    row: IntArray,
    held: tuple[IntArray, IntArray, IntArray, IntArray],
    pending_s: IntArray,
    by_count: IntArray,
    levels: tuple[IntArray, IntArray],
    chances: tuple[FloatArray, FloatArray],
    worth: tuple[IntArray, IntArray],
) -> TableArray:
    """What every slot of a life is worth as it opens: `table_stage.solve_life`, slot by slot.

    Parameters
    ----------
    row
        A cell in quanta, the cells, and of on-demand the price and the instances there are.
    held
        Held sets, as `Sets`.
    levels, chances
        Spot counts by run state and prices by slot and level; the chances of what follows.
    worth
        Worth of finishing by slot, and at the deadline by slots of on-demand work left.

    Returns
    -------
    TableArray
        Shape (slots, run states, price levels, sets, levels pending, cells); the first slot,
        which opens on no holding, stays 0.
    """
    terms = terms_at(program)
    sets = Sets(held[0], held[1], held[2], held[3])
    gains = lay_gains(terms, sets, pending_s, by_count, row[3], row[0], 0)
    slots, runs, prices = levels[1].shape[0], levels[0].shape[0], levels[1].shape[1]
    shape = (runs, prices, sets.spot.shape[0], pending_s.shape[0], row[1])
    opening = np.zeros((slots, *shape), dtype=np.float32)
    after = np.empty(shape, dtype=np.float32)
    full = by_count[RATE, by_count.shape[1] - 1] * terms.slot_s
    for j in range(row[1]):
        needed = -(-(j + 1) * row[0] // full)
        after[:, :, :, :, j] = worth[1][min(needed, worth[1].shape[0] - 1)]
    now = np.zeros(shape[2:])
    for t in range(slots - 1, 0, -1):
        finish = worth[0][t + 1] if t + 1 <= terms.end_slots else 0
        goal = Goal(finish, slots - t - 1, terms.hard)
        for r in range(runs):
            for p in range(prices):
                met = slot_offer(levels[1][t, p], levels[0][r], row[2], row[3], terms)
                stage(sets, gains, met, goal, after[r, p], now)
                opening[t, r, p] = now
        for r in range(runs):
            for p in range(prices):
                expect(opening[t], chances[0][r], chances[1][p], now)
                after[r, p] = now
    return opening


@kernel
def expect(opening: TableArray, run: FloatArray, price: FloatArray, into: FloatArray) -> None:
    """Write the mean of `opening`, by (run state, price level, ...), under these chances."""
    into[:] = 0.0
    for s in range(run.shape[0]):
        if run[s] > 0.0:
            for q in range(price.shape[0]):
                if price[q] > 0.0:
                    into += run[s] * price[q] * opening[s, q]


class Ground(NamedTuple):
    """Laid out once for all futures.

    Progress runs in `cells`; `gains[row, set]`, rounded up unless `exact`, and `changes` are those
    of `window_grid.Grid`. `at` is the table's set that stands for a set, `level` its level pending
    for one of ours; `j` and `part` place our cells among the table's (see `table_look.cell_of`).
    `terminal` is the worth of a cell at the deadline.
    """

    sets: Sets
    cells: int
    exact: bool
    gains: IntArray
    changes: IntArray
    largest: int
    at: IntArray
    level: IntArray
    j: IntArray
    part: FloatArray
    terminal: FloatArray


class SlotWorths(NamedTuple):
    """By set, level pending and cell of progress, but for the last three.

    `opens` is what a slot is worth as it opens, `after` what is to come after the slot before, with
    what lies behind the end of the work. `into` (3, cells) has the best that growing, launching and
    regrouping lead to, `shrunk` (sets, cells) what shrinking does, `charged` (the table's sets,
    cells) the penalty.
    """

    opens: FloatArray
    after: FloatArray
    into: FloatArray
    shrunk: FloatArray
    charged: FloatArray


@inlined
def lay_ground(
    terms: Terms,
    sets: Sets,
    by_count: IntArray,
    table: tuple[TableArray, IntArray, IntArray, int],
    late: IntArray,
    most_cells: int,
) -> Ground:
    """Lay the problem out on a grid where no gain is rounded; where that is too fine, upwards."""
    nearest, table_pending_s, table_cell = table[1], table[2], table[3]
    slots = terms.deadline_slots
    begin = Standing(0, 0, Held(0, 0), 0, 0, 0, 0)
    grid = lay_grid(terms, begin, sets, slots, Precision(most_cells, 1), by_count)
    pending = pending_levels(terms, 0)
    largest = 0
    for row in range(grid.gains.shape[0]):
        for c in range(sets.spot.shape[0]):
            largest = max(largest, grid.gains[row, c])
    at = np.empty(sets.spot.shape[0], dtype=np.int64)
    for c in range(at.shape[0]):
        at[c] = nearest[sets.spot[c], sets.on_demand[c]]
    level = np.empty(pending.shape[0], dtype=np.int64)
    for index in range(level.shape[0]):
        level[index] = level_of(table_pending_s, pending[index])
    j = np.empty(grid.cells, dtype=np.int64)
    share = np.empty(grid.cells)
    terminal = np.empty(grid.cells)
    full = by_count[RATE, by_count.shape[1] - 1] * terms.slot_s
    for k in range(grid.cells):
        left = terms.work_quanta - k * grid.cell
        j[k], share[k] = cell_of(left, table_cell, 1.0 / table_cell)
        terminal[k] = late[min(-(-left // full), late.shape[0] - 1)]
    return Ground(
        sets, grid.cells, grid.exact, grid.gains, grid.changes, largest, at, level, j, share,
        terminal,
    )  # fmt: skip


@kernel
def best_penalised(
    job: tuple[IntArray, IntArray, IntArray, IntArray],
    held: tuple[IntArray, IntArray, IntArray, IntArray],
    table: tuple[TableArray, IntArray, IntArray, int],
    market: tuple[IntArray, IntArray, IntArray, IntArray],
    chances: tuple[FloatArray, FloatArray],
    futures: IntArray,
    options: tuple[int, int],
) -> tuple[FloatArray, bool]:
    """Best value less cost less penalty of a job's life, knowing the future, by future.

    Parameters
    ----------
    job
        A program, counts and values as `ProgramLayout` has them; worth at the deadline by slots of
        on-demand work left.
    held
        Every set that may be held, as `Sets`.
    table
        What slots are worth as they open (`open_life`), the table's set by (spot, on-demand), its
        levels pending in seconds, and its cell in quanta.
    market
        Spot counts by run state; prices of spot by slot and price level; price and count of
        on-demand by slot.
    futures
        Run state and price level by slot, shape (2, futures, slots).
    options
        The most cells of a grid without rounding; whether foresight is charged for.

    Returns
    -------
    tuple
        Micro-USD, shape (futures,), and whether no gain was rounded (up).
    """
    terms, values = terms_at(job[0]), job[2]
    sets = Sets(held[0], held[1], held[2], held[3])
    ground = lay_ground(terms, sets, job[1], table, job[3], options[0])
    rows = _rows(ground, table[0].shape[3])
    opening = table[0]
    foreseen = np.zeros(opening.shape[3:])
    best = np.empty(futures.shape[1])
    for path in range(futures.shape[1]):
        runs, prices = futures[0, path], futures[1, path]
        for t in range(terms.deadline_slots - 1, -1, -1):
            lasts = t == terms.deadline_slots - 1
            if not lasts and options[1]:
                expect(opening[t + 1], chances[0][runs[t]], chances[1][prices[t]], foreseen)
                foreseen[:] = opening[t + 1, runs[t + 1], prices[t + 1]] - foreseen
            finish = values[t + 1] if t + 1 <= terms.end_slots else 0
            reach = min(ground.cells, t * ground.largest + 1)
            _lay_after(
                ground, rows, foreseen, finish, min(ground.cells, reach + ground.largest), lasts
            )
            spot, price = market[0][runs[t]], market[1][t, prices[t]]
            _play(ground, rows, (spot, price, market[2][t], market[3][t]), terms.slot_s, reach)
        best[path] = rows.opens[0, 0, 0]
    return best, ground.exact


@inlined
def _rows(ground: Ground, table_sets: int) -> SlotWorths:
    count, levels, cells = ground.at.shape[0], ground.level.shape[0], ground.cells
    return SlotWorths(
        np.zeros((count, levels, cells)),
        np.zeros((count, levels, cells + ground.largest)),
        np.zeros((3, cells)),
        np.zeros((count, cells)),
        np.zeros((table_sets, cells)),
    )


@inlined
def _lay_after(
    ground: Ground, rows: SlotWorths, foreseen: FloatArray, finish: int, reach: int, lasts: bool
) -> None:
    """Charge what the next slot is worth with the penalty; `reach` cells are read."""
    for level in range(ground.level.shape[0]):
        for a in range(rows.charged.shape[0]):
            _interpolate(
                foreseen[a, ground.level[level]], ground.j, ground.part, rows.charged[a, :reach]
            )
        for c in range(ground.at.shape[0]):
            after = rows.after[c, level]
            if lasts:
                after[:reach] = ground.terminal[:reach]
            else:
                after[:reach] = rows.opens[c, level, :reach] - rows.charged[ground.at[c], :reach]
            after[ground.cells :] = finish


@kernel
def _interpolate(row: FloatArray, j: IntArray, part: FloatArray, into: FloatArray) -> None:
    """Read a row of the table at our cells; below its first cell lies its first entry."""
    for k in range(into.shape[0]):
        low = row[max(0, j[k] - 1)]
        into[k] = part[k] * row[j[k]] + (1.0 - part[k]) * low


@inlined
def _play(
    ground: Ground, rows: SlotWorths, offer: tuple[int, int, int, int], slot_s: int, reach: int
) -> None:
    """One slot backwards: `SlotWorths.after` to `SlotWorths.opens`, in the first `reach` cells.

    `offer` is spot, its price, the price of on-demand, and how much of that there is.
    """
    sets, after, gains = ground.sets, rows.after, ground.gains
    count = sets.spot.shape[0]
    paid = np.full(count, -1.0)
    for c in range(count):
        if sets.spot[c] <= offer[0] and sets.on_demand[c] <= offer[3]:
            paid[c] = cost(offer[1], sets.spot[c], slot_s) + cost(
                offer[2], sets.on_demand[c], slot_s
            )
    for level in range(ground.level.shape[0]):
        changes = ground.changes[:, level]
        for kind in range(GROW, BROKEN + 1):
            into = rows.into[kind - GROW, :reach]
            into[:] = after[0, 0, :reach]
            for c in range(1, count):
                if paid[c] >= 0.0:
                    gained = gains[changes[kind, 0], c]
                    _raise(into, after[c, changes[kind, 1], gained : gained + reach], paid[c])
        rows.shrunk[0, :reach] = after[0, 0, :reach]
        rows.opens[0, level, :reach] = rows.into[LAUNCH - GROW, :reach]
        for c in range(1, count):
            if sets.spot[c] > offer[0]:
                rows.opens[c, level, :reach] = rows.into[BROKEN - GROW, :reach]
            else:
                _go_on(ground, rows, c, level, paid[c], reach)


@inlined
def _go_on(ground: Ground, rows: SlotWorths, c: int, level: int, paid: float, reach: int) -> None:
    """Whoever holds a set that is still there keeps it, shrinks or grows."""
    sets, after, changes = ground.sets, rows.after, ground.changes[:, level]
    now, shrunk = rows.opens[c, level, :reach], rows.shrunk[c, :reach]
    shrunk[:] = after[0, 0, :reach]
    if paid >= 0.0:
        gained = ground.gains[changes[SHRINK, 0], c]
        _raise(shrunk, after[c, changes[SHRINK, 1], gained : gained + reach], paid)
    for k in range(sets.cover_start[c], sets.cover_start[c + 1]):
        _raise(shrunk, rows.shrunk[sets.covers[k], :reach], 0.0)
    now[:] = shrunk
    _raise(now, rows.into[0, :reach], 0.0)
    if paid >= 0.0:
        gained = ground.gains[changes[KEEP, 0], c]
        _raise(now, after[c, changes[KEEP, 1], gained : gained + reach], paid)


@kernel
def _raise(into: FloatArray, source: FloatArray, paid: float) -> None:
    """Raise every element of `into` to that of `source` less a cost."""
    for k in range(into.shape[0]):
        into[k] = max(into[k], source[k] - paid)
