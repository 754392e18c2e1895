"""Value-to-go of a job on a market whose law is known: backward induction over its whole life.

The state is (slot, run state, price level, held set, overhead still pending, work left). Tables
hold what is expected AFTER a slot, so a decision is one look ahead: exact cost and progress of each
candidate in this slot, then the table. Work left is interpolated between cells, never rounded on:
a planner that may round finds schedules that live off the rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.accounting import RATE, Held, Standing, lay_out, terms_at
from spotline.domain.jobs.offer import ROW, Offer, offer_at, row_of, standing_at
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.kernels import FloatArray, IntArray, kernel
from spotline.domain.solvers.configurations import Configurations, configurations
from spotline.domain.solvers.surcharges import surcharges_of
from spotline.domain.solvers.table_look import look_ahead, look_up, open_table, value_with
from spotline.domain.solvers.table_stage import (
    LawArrays,
    TableArray,
    lay_gains,
    slot_offer,
    solve_life,
)
from spotline.domain.solvers.table_terms import CLASS_RATE, TableTerms, class_terms
from spotline.domain.solvers.window import value_after_deadline
from spotline.domain.solvers.window_grid import Sets
from spotline.domain.units import PPM

# Bounds on one table: entries (4 bytes each), and cells of work left.
MOST_ENTRIES = 4_000_000
MOST_CELLS = 240
LEAST_CELLS = 40
# How many times as many cells a table may have where that makes them even, and by what share more
# than that many entries, or a coarser cell: chosen on second quarters of the traces (ADR 0088).
_EVEN_TIMES = 2
_EVEN_SHARE = 8
# A class reaches up to half as far again in time and in work as its jobs do.
_CLASS_ENTRIES = MOST_ENTRIES * 3 // 2
_CLASS_CELLS = MOST_CELLS * 3 // 2
_MOST_COUNTS = 12
_LEAST_COUNTS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueTable:
    """Expected value less cost of the rest of a job's life, micro-USD.

    `after[t, run, price, set, pending, cell]` is what is to come when slot t (from 0) is over, the
    market was in `run` and `price` during it, `set` is held, `pending` is the level of overhead
    left and `cell` times `cell_quanta` of work (cell 0 stands for the last bit: a job that is done
    is no longer in the table). `nearest[spot, on_demand]` is the held set that stands for another.
    `arrays` is all of it as kernels read it, see `table_look.open_table`.

    In a shared table the job is worth what its class is: `own_worth` more makes it its own, and
    `after` is the end of the class's, from the job's deadline back.
    """

    terms: TableTerms
    after: TableArray
    cell_quanta: int
    sets: Configurations
    nearest: IntArray
    pending_s: IntArray
    arrays: tuple[npt.NDArray[Any], ...]
    own_worth: int = 0

    @property
    def size_bytes(self) -> int:
        """Size of the table proper."""
        return int(self.after.nbytes)


def build_table(terms: TableTerms) -> ValueTable:
    """Solve the table that `terms` name: a job's own, or its class's as the job sees it."""
    if not terms.shared:
        return solve(terms)
    return seen_by(terms, solve(class_terms(terms)))


def solve(terms: TableTerms) -> ValueTable:
    """Solve a job's whole life by backward induction.

    A job with a hard deadline is kept where on-demand alone still saves it, whatever spot does in
    the slot to come; one with a soft deadline may be late where that pays. After the deadline the
    work left runs on the largest on-demand count, as long as that pays.

    Notes
    -----
    Cost O(slots * run states * price levels * held sets * cells): among all sets that a job can
    grow to one maximum serves every source. Reconstructed from the idea of a learned value-to-go;
    model after arXiv:2512.20967, with overhead charged on every change of the held set.
    """
    plan = _planned(terms)
    program, law = terms.program, terms.law
    if program.hard:
        late = np.zeros(1, dtype=np.int64)
    else:
        late = value_after_deadline(program, on_demand_price_micro_usd=terms.on_demand_price)
    layout = lay_out(program)
    full = int(layout.by_count[RATE, -1]) * program.slot_s
    needed = -(-(np.arange(1, plan.cells + 1, dtype=np.int64) * plan.cell) // full)
    prices = np.array(law.space.price_centres_ppm, dtype=np.int64) * terms.on_demand_price // PPM
    sets = plan.sets
    after = _solve(
        layout.row,
        np.array(
            (plan.cell, terms.reserve_slots, terms.on_demand_price, terms.on_demand_available)
        ),
        (sets.spot, sets.on_demand, sets.cover_start, sets.covers),
        plan.pending,
        layout.by_count,
        (np.maximum(law.run_counts() - terms.taken, 0), surcharges_of(terms), prices),
        (law.run_matrix(), law.price_matrix()),
        (layout.values, late[np.minimum(needed, late.shape[0] - 1)]),
    )
    return _laid_out(terms, plan, after)


def solved(terms: TableTerms, after: TableArray) -> ValueTable:
    """The table of which `after` is known already, as it was kept by `solve`.

    Raises
    ------
    ValueError
        It has another shape than the table of these terms.
    """
    plan = _planned(terms)
    wanted = plan.shape(terms)
    if after.shape != wanted:
        raise ValueError(f"a table of these terms has the shape {wanted}, this one {after.shape}")
    return _laid_out(terms, plan, after)


def shape_of(terms: TableTerms) -> tuple[int, ...]:
    """The shape of `ValueTable.after`, without solving it."""
    return _planned(terms).shape(terms)


def seen_by(terms: TableTerms, table: ValueTable) -> ValueTable:
    """The table of a class as one of its jobs sees it; nothing is copied.

    It begins at the job's first slot, and its cells are counted in the job's quanta.
    """
    own, shared = terms.program, table.terms.program
    fastest = own.rate_quanta_per_s[own.max_instances]
    # Rounded up: all of the job's work stays within the table.
    cell = -(-table.cell_quanta * fastest // CLASS_RATE)
    after = table.after[shared.deadline_slots - own.deadline_slots :]
    layout = lay_out(own)
    worth = shared.value_micro_usd[0]
    # A look ahead asks what finishing in a slot of the table is worth: of its class.
    values = np.full(layout.values.shape, worth, dtype=np.int64)
    return ValueTable(
        terms=terms,
        after=after,
        cell_quanta=cell,
        sets=table.sets,
        nearest=table.nearest,
        pending_s=table.pending_s,
        arrays=(
            layout.row,
            _scalars(terms, cell),
            after,
            layout.by_count,
            values,
            *table.arrays[5:],
        ),
        own_worth=own.value_micro_usd[0] - worth,
    )


@kernel
def _solve(
    program: IntArray,
    row: IntArray,
    held: tuple[IntArray, IntArray, IntArray, IntArray],
    pending_s: IntArray,
    by_count: IntArray,
    levels: tuple[IntArray, IntArray, IntArray],
    chances: tuple[FloatArray, FloatArray],
    worth: tuple[IntArray, IntArray],
) -> TableArray:
    terms = terms_at(program)
    cell, reserve_slots, price, available = row[0], row[1], row[2], row[3]
    sets = Sets(held[0], held[1], held[2], held[3])
    gains = lay_gains(terms, sets, pending_s, by_count, available, cell, reserve_slots)
    law = LawArrays(levels[0], levels[1], levels[2], chances[0], chances[1])
    offer = slot_offer(0, 0, price, available, terms)
    return solve_life(terms, sets, gains, law, offer, worth[0], worth[1])


def best_value(table: ValueTable, standing: Standing, offer: Offer, work_left: int) -> float:
    """What the rest of a job's life is worth if the table decides this slot, micro-USD.

    `work_left` is in quanta. See `table_look.look_ahead`.
    """
    row = np.append(row_of(standing, offer), (work_left, 0, 0, 0))
    return _value(row, table.arrays) + table.own_worth


def holding_value(
    table: ValueTable, standing: Standing, offer: Offer, work_left: int, holding: Holding
) -> float:
    """What the rest of a job's life is worth if it holds this for the slot, micro-USD.

    All after the slot is decided by the table. `work_left` is in quanta; the holding has no more
    instances than the job's largest count. See `table_look.value_with`.
    """
    stated = (work_left, 1, holding.spot, holding.on_demand)
    return _value(np.append(row_of(standing, offer), stated), table.arrays) + table.own_worth


@kernel
def _value(row: IntArray, arrays: tuple[Any, ...]) -> float:
    table = open_table(arrays)
    standing, offer = standing_at(row), offer_at(row)
    position, to_come = look_up(table, standing, offer, row[ROW])
    held = Held(row[ROW + 2], row[ROW + 3])
    if not row[ROW + 1]:
        held = look_ahead(
            table.terms,
            standing,
            offer,
            position,
            to_come,
            table.by_count,
            table.nearest,
            table.pending_s,
        )
    return value_with(table, standing, offer, position, to_come, held)


# --- laying out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How a table is laid out, before it is solved; `fixed` is the end of `ValueTable.arrays`."""

    sets: Configurations
    pending: IntArray
    cell: int
    cells: int
    nearest: IntArray
    fixed: tuple[IntArray, ...]

    def shape(self, terms: TableTerms) -> tuple[int, ...]:
        """The shape of `ValueTable.after`."""
        space, slots = terms.law.space, max(1, terms.program.deadline_slots)
        held, levels = len(self.sets.holdings), len(self.pending)
        return (slots, space.run_states, space.price_states, held, levels, self.cells)


# A class is asked for in every slot of each of its jobs.
@lru_cache(maxsize=1024)
def _planned(terms: TableTerms) -> _Plan:
    program, space = terms.program, terms.law.space
    most_entries = _CLASS_ENTRIES if terms.shared else MOST_ENTRIES
    most_cells = _CLASS_CELLS if terms.shared else MOST_CELLS
    pending = pending_levels(program)
    per_set = max(1, program.deadline_slots) * space.run_states * space.price_states * len(pending)
    sets = held_sets(terms, most_entries // (per_set * 2 * LEAST_CELLS))
    cells = min(most_cells, max(LEAST_CELLS, most_entries // (per_set * len(sets.holdings))))
    cell = _cell_quanta(program, cells)
    if terms.even_cells:
        entries = (most_entries + most_entries // _EVEN_SHARE) // (per_set * len(sets.holdings))
        even = even_cell_quanta(program, cells, min(_EVEN_TIMES * most_cells, entries))
        cell = even or cell
    nearest = _nearest_sets(sets.spot.tobytes(), sets.on_demand.tobytes(), program.max_instances)
    return _Plan(
        sets=sets,
        pending=pending,
        cell=cell,
        cells=-(-program.work_quanta // cell),
        nearest=nearest,
        fixed=(
            nearest,
            pending,
            sets.spot,
            sets.on_demand,
            sets.cover_start,
            sets.covers,
            np.array(space.price_centres_ppm, dtype=np.int64),
            np.array(space.level_starts, dtype=np.int64),
            np.array(space.age_starts, dtype=np.int64),
        ),
    )


def _laid_out(terms: TableTerms, plan: _Plan, after: TableArray) -> ValueTable:
    """Lay a table out for `open_table`: a tuple passes faster to a kernel than a bundle."""
    layout = lay_out(terms.program)
    scalars = _scalars(terms, plan.cell)
    return ValueTable(
        terms=terms,
        after=after,
        cell_quanta=plan.cell,
        sets=plan.sets,
        nearest=plan.nearest,
        pending_s=plan.pending,
        arrays=(layout.row, scalars, after, layout.by_count, layout.values, *plan.fixed),
    )


def _scalars(terms: TableTerms, cell: int) -> IntArray:
    return np.array((cell, terms.taken, terms.reserve_slots), dtype=np.int64)


# What kernels are given where there is no table; they never look into it.
NO_TABLE: tuple[npt.NDArray[Any], ...] = (
    np.zeros(11, dtype=np.int64),
    np.zeros(3, dtype=np.int64),
    np.zeros((1, 1, 1, 1, 1, 1), dtype=np.float32),
    np.zeros((3, 1), dtype=np.int64),
    np.zeros(1, dtype=np.int64),
    np.zeros((1, 1), dtype=np.int64),
    *(np.zeros(1, dtype=np.int64) for _ in range(8)),
)


def pending_levels(program: JobProgram) -> IntArray:
    """Every overhead that can still be pending when a slot opens, ascending from 0."""
    levels = {0}
    broken_s = program.interrupted_s + program.lost_s
    for left_s in (program.shrink_s, program.grow_s, program.launch_s, broken_s):
        while left_s > program.slot_s:
            left_s -= program.slot_s
            levels.add(left_s)
    return np.array(sorted(levels), dtype=np.int64)


def _cell_quanta(program: JobProgram, cells: int) -> int:
    """A cell such that a full slot is a whole number of cells, where that is near enough."""
    least = -(-program.work_quanta // cells)
    full = program.rate_quanta_per_s[program.max_instances] * program.slot_s
    steps = full // least
    return -(-full // steps) if steps else least


def even_cell_quanta(program: JobProgram, cells: int, most_cells: int) -> int:
    """A cell that a slot of the largest count, and what its changes lose, are whole numbers of.

    Work is charged by the slot, so the value of a job jumps where one slot more is needed, and what
    lies between two cells is a mean over such a jump. With even cells the largest count never
    gets between them.

    Parameters
    ----------
    program
        The job; a cell is in its quanta.
    cells
        How many cells there would be otherwise: an even cell is at most an eighth coarser.
    most_cells
        The most there may be; 0 where a table is too large even so.

    Returns
    -------
    int
        The coarsest such cell; 0 where each is too coarse or makes too many cells.
    """
    if most_cells < 1:
        return 0
    rate = program.rate_quanta_per_s[program.max_instances]
    broken_s = program.interrupted_s + program.lost_s
    lost_s = (program.launch_s, program.grow_s, program.shrink_s, broken_s)
    common = rate * math.gcd(program.slot_s, *lost_s)
    least = -(-program.work_quanta // cells)
    coarsest = least + least // _EVEN_SHARE
    finest = -(-program.work_quanta // most_cells)
    for parts in range(-(-common // coarsest), common // finest + 1):
        if common % parts == 0:
            return common // parts
    return 0


def held_sets(terms: TableTerms, most: int) -> Configurations:
    """The held sets a table tells apart: spot first at every level of the law, and on-demand."""
    program = terms.program
    levels = sorted({max(0, c - terms.taken) for c in terms.law.level_counts} | {0})
    counts = list(program.allowed_counts)
    wanted = _MOST_COUNTS
    while True:
        kept = _thinned(counts, wanted)
        sets = {Holding()}
        for count in kept:
            for level in levels:
                spot = min(count, level)
                if count - spot <= terms.on_demand_available:
                    sets.add(Holding(spot=spot, on_demand=count - spot))
            if count <= terms.on_demand_available:
                sets.add(Holding(on_demand=count))
        if len(sets) <= most or wanted <= _LEAST_COUNTS:
            return configurations(sets)
        wanted -= 1


def _thinned(counts: list[int], most: int) -> list[int]:
    if len(counts) <= most:
        return counts
    at = np.linspace(0, len(counts) - 1, most).round().astype(int)
    return [counts[index] for index in sorted(set(at.tolist()))]


# Jobs of a kind tell the same sets apart, whatever else their tables are made of.
@lru_cache(maxsize=256)
def _nearest_sets(spot: bytes, on_demand: bytes, most: int) -> IntArray:
    return nearest_sets(
        np.frombuffer(spot, dtype=np.int64), np.frombuffer(on_demand, dtype=np.int64), most
    )


def nearest_sets(spot: IntArray, on_demand: IntArray, most: int) -> IntArray:
    """Index of the set nearest in instances, then in spot, for every (spot, on-demand)."""
    held = spot + on_demand
    nearest = np.zeros((most + 1, most + 1), dtype=np.int64)
    for s in range(most + 1):
        for o in range(most + 1 - s):
            if s + o:
                away = np.abs(held - s - o) * (2 * most + 1) + np.abs(spot - s)
                away[held == 0] = np.iinfo(np.int64).max
                nearest[s, o] = int(away.argmin())
    return nearest
