"""The grid that a window is planned on: held sets, gains in whole cells, overheads pending.

Progress runs in cells of the greatest common divisor of all gains, so nothing is rounded; where
that would be too fine, cells are larger and gains are rounded.

Bundles that the window program shares:

Sets
    Held sets and what lies inside them.
Ahead
    Prices and counts of the slots of a window.
Precision
    How fine the grid may be, and which way it rounds.
Grid
    Gains in cells by set and productive seconds, and what every class of change leads to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import CHANGES, RATE, Standing, Terms, kind_s
from spotline.domain.kernels import IntArray, inlined, kernel


class Sets(NamedTuple):
    """Held sets in ascending (instances, spot), idle first; see `Configurations`."""

    spot: IntArray
    on_demand: IntArray
    cover_start: IntArray
    covers: IntArray


class Ahead(NamedTuple):
    """Prices (micro-USD per instance-hour) and counts by slot, each of shape (slots,)."""

    spot_price: IntArray
    on_demand_price: IntArray
    spot: IntArray
    on_demand: IntArray


class Precision(NamedTuple):
    """At most `cells` cells without rounding; gains are rounded down, or up where `up` is 1."""

    cells: int
    up: int


class Grid(NamedTuple):
    """`cell` quanta a step, `cells` of them within reach, `done` of them to the end of the work.

    `gains[row, set]` is in cells. `changes[kind, level]` is the row of the gains and the next
    level of overhead pending, shape (5, levels, 2); level 0 is the start's own.
    """

    cell: int
    cells: int
    done: int
    exact: bool
    gains: IntArray
    changes: IntArray


@inlined
def lay_grid(
    terms: Terms,
    standing: Standing,
    sets: Sets,
    slots: int,
    precision: Precision,
    by_count: IntArray,
) -> Grid:
    """Lay the grid out for `slots` slots from `standing`, which is before the end of the work."""
    pending = pending_levels(terms, standing.pending_s)
    count = sets.spot.shape[0]
    rates = np.empty(count, dtype=np.int64)
    common_rate = 0
    fastest = 0
    for c in range(count):
        rates[c] = by_count[RATE, sets.spot[c] + sets.on_demand[c]]
        common_rate = gcd(common_rate, rates[c])
        fastest = max(fastest, rates[c])
    common_s = 0
    longest_s = 0
    for kind in range(CHANGES):
        for level in range(pending.shape[0]):
            productive_s = max(0, terms.slot_s - max(kind_s(terms, kind), pending[level]))
            common_s = gcd(common_s, productive_s)
            longest_s = max(longest_s, productive_s)
    left = terms.work_quanta - standing.progress
    # A window sees no further than it can reach; the job may be much longer.
    reach = min(left, slots * fastest * longest_s)
    cell = common_rate * common_s
    exact = True
    if cell == 0:
        cell = max(1, reach)
    elif reach > cell * precision.cells:
        cell = -(-reach // precision.cells)
        exact = False
    up = cell - 1 if precision.up else 0
    gains, changes = lay_gains(terms, pending, rates, cell, up)
    done = -(-left // cell)
    cells = min(done, slots * ((fastest * longest_s + up) // cell) + 1)
    return Grid(cell, cells, done, exact, gains, changes)


@kernel
def gcd(a: int, b: int) -> int:
    """The greatest common divisor; that of 0 and b is b."""
    while b:
        a, b = b, a % b
    return a


@inlined
def pending_levels(terms: Terms, first_s: int) -> IntArray:
    """Every overhead that can be pending when a slot opens; the start's own comes first."""
    bound = 2 + first_s // terms.slot_s
    for kind in range(CHANGES):
        bound += kind_s(terms, kind) // terms.slot_s + 1
    pending = np.empty(bound, dtype=np.int64)
    pending[0] = first_s
    levels = 1
    for kind in range(-1, CHANGES):
        overhead_s = first_s if kind < 0 else kind_s(terms, kind)
        level_s = max(0, overhead_s - terms.slot_s)
        while index_of(pending[:levels], level_s) < 0:
            pending[levels] = level_s
            levels += 1
            level_s = max(0, level_s - terms.slot_s)
    return pending[:levels]


@kernel
def index_of(numbers: IntArray, number: int) -> int:
    """Where `number` is among `numbers`, -1 where it is not."""
    for index in range(numbers.shape[0]):
        if numbers[index] == number:
            return index
    return -1


@kernel
def lay_gains(
    terms: Terms, pending: IntArray, rates: IntArray, cell: int, up: int
) -> tuple[IntArray, IntArray]:
    """`Grid.gains` and `Grid.changes`; rows that gain the same are one."""
    levels = pending.shape[0]
    changes = np.empty((CHANGES, levels, 2), dtype=np.int64)
    gains = np.empty((CHANGES * levels, rates.shape[0]), dtype=np.int64)
    row_s = np.empty(CHANGES * levels, dtype=np.int64)
    rows = 0
    for kind in range(CHANGES):
        for level in range(levels):
            overhead_s = max(kind_s(terms, kind), pending[level])
            productive_s = max(0, terms.slot_s - overhead_s)
            row = index_of(row_s[:rows], productive_s)
            if row < 0:
                row = rows
                row_s[row] = productive_s
                for c in range(rates.shape[0]):
                    gains[row, c] = (rates[c] * productive_s + up) // cell
                rows += 1
            changes[kind, level, 0] = row
            changes[kind, level, 1] = index_of(pending, max(0, overhead_s - terms.slot_s))
    return gains[:rows], changes
