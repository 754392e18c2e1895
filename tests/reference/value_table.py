"""Value-to-go of a job on a market whose law is known: backward induction over its whole life.

The state is (slot, run state, price level, held set, overhead still pending, work left). Tables
hold what is expected AFTER a slot, so a decision is one look ahead: exact cost and progress of each
candidate in this slot, then the table. Work left is interpolated between cells, never rounded on:
a planner that may round finds schedules that live off the rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numba
import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.solvers.configurations import Configurations, configurations
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable
from spotline.domain.units import PPM, cost_micro_usd
from tests.reference.progress import advance
from tests.reference.window import value_after_deadline

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
TableArray = npt.NDArray[np.float32]

# Bounds on one table: entries (4 bytes each), and cells of work left.
MOST_ENTRIES = 4_000_000
MOST_CELLS = 240
LEAST_CELLS = 40
# Running jobs keep so many tables at a time: 5 MB each is usual, 16 MB the most. Were there more
# than are kept, every slot would build them all again.
MOST_TABLES = 96
# Beside those, for feedback, rehearsals and plans.
_SPARE_TABLES = 16
_MOST_COUNTS = 12
_LEAST_COUNTS = 3


def build_table(terms: TableTerms) -> ValueTable:
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
    program, law = terms.program, terms.law
    pending = _pending_levels(program)
    space = law.space
    per_set = max(1, program.deadline_slots) * space.run_states * space.price_states * len(pending)
    sets = _held_sets(terms, MOST_ENTRIES // (per_set * 2 * LEAST_CELLS))
    cells = min(MOST_CELLS, max(LEAST_CELLS, MOST_ENTRIES // (per_set * len(sets.holdings))))
    cell = _cell_quanta(program, cells)
    cells = -(-program.work_quanta // cell)
    if program.hard:
        late = np.zeros(1, dtype=np.int64)
    else:
        late = value_after_deadline(program, on_demand_price_micro_usd=terms.on_demand_price)
    counts = np.maximum(law.run_counts() - terms.taken, 0)
    prices = np.array(space.price_centres_ppm, dtype=np.int64) * terms.on_demand_price // PPM
    after = _solve(
        sets.spot,
        sets.on_demand,
        sets.cover_start,
        sets.covers,
        counts,
        np.maximum(prices, 1),
        terms.on_demand_price,
        terms.on_demand_available,
        law.run_matrix(),
        law.price_matrix(),
        np.array(program.rate_quanta_per_s, dtype=np.int64),
        planned_s(program),
        pending,
        np.array(program.value_micro_usd, dtype=np.int64),
        late,
        program.slot_s,
        program.deadline_slots,
        program.end_slots,
        program.hard,
        program.max_instances,
        cell,
        cells,
        terms.reserve_slots,
    )
    return ValueTable(
        terms=terms,
        after=after,
        cell_quanta=cell,
        sets=sets,
        nearest=_nearest(sets.spot, sets.on_demand, program.max_instances),
        pending_s=pending,
    )


@lru_cache(maxsize=MOST_TABLES + _SPARE_TABLES)
def table_of(terms: TableTerms) -> ValueTable:
    """Return the table of `terms`, built where it is not at hand."""
    return build_table(terms)


def look_ahead(
    table: ValueTable,
    *,
    elapsed_slots: int,
    run_state: int,
    price_ppm: int,
    held: Holding,
    interrupted: bool,
    pending_overhead_s: int,
    work_left_quanta: int,
    spot_price: int,
    on_demand_price: int,
    spot_available: int,
    on_demand_available: int,
    slot_left_s: int,
) -> Holding:
    """The holding of greatest value less cost for this slot and, by the table, all after it.

    Considered is every allowed count with as much spot as there is, with the spot that is held,
    and with none. Ties go to what is held, then to more instances: progress made now is progress
    that nobody can take.
    """
    program = table.terms.program
    low, share = _price_place(table.terms.law.space.price_centres_ppm, price_ppm)
    spot, on_demand = choose(
        table.after[elapsed_slots, run_state],
        low,
        share,
        _allowed(program),
        _rates(program),
        _overheads_of(program),
        table.nearest,
        table.pending_s,
        table.cell_quanta,
        program.value_micro_usd[elapsed_slots + 1],
        held.spot,
        held.on_demand,
        interrupted,
        pending_overhead_s,
        work_left_quanta,
        spot_price,
        on_demand_price,
        spot_available,
        on_demand_available,
        slot_left_s,
    )
    return Holding(spot=int(spot), on_demand=int(on_demand))


def look_through(
    table: ValueTable,
    forecast_spot_price: Sequence[int],
    forecast_spot_available: Sequence[int],
    *,
    elapsed_slots: int,
    run_state_after: int,
    price_ppm_after: int,
    held: Holding,
    interrupted: bool,
    pending_overhead_s: int,
    work_left_quanta: int,
    spot_price: int,
    on_demand_price: int,
    spot_available: int,
    on_demand_available: int,
    slot_left_s: int,
) -> Holding:
    """Look ahead through the forecast slots first, and by the table from there.

    `run_state_after` and `price_ppm_after` are where the market is in the last forecast slot.
    """
    program = table.terms.program
    slots = len(forecast_spot_price)
    low, share = _price_place(table.terms.law.space.price_centres_ppm, price_ppm_after)
    after = through(
        table.after[elapsed_slots + slots, run_state_after],
        low,
        share,
        np.array(forecast_spot_price, dtype=np.int64),
        np.array(forecast_spot_available, dtype=np.int64),
        table.sets.spot,
        table.sets.on_demand,
        table.sets.cover_start,
        table.sets.covers,
        on_demand_price,
        on_demand_available,
        _rates(program),
        planned_s(program),
        table.pending_s,
        _values(program),
        program.slot_s,
        program.deadline_slots,
        elapsed_slots,
        program.hard,
        program.max_instances,
        table.cell_quanta,
        table.terms.reserve_slots,
    )
    spot, on_demand = choose(
        after,
        0,
        0.0,
        _allowed(program),
        _rates(program),
        _overheads_of(program),
        table.nearest,
        table.pending_s,
        table.cell_quanta,
        program.value_micro_usd[elapsed_slots + 1],
        held.spot,
        held.on_demand,
        interrupted,
        pending_overhead_s,
        work_left_quanta,
        spot_price,
        on_demand_price,
        spot_available,
        on_demand_available,
        slot_left_s,
    )
    return Holding(spot=int(spot), on_demand=int(on_demand))


def best_value(
    table: ValueTable,
    *,
    elapsed_slots: int,
    run_state: int,
    price_ppm: int,
    held: Holding,
    interrupted: bool,
    pending_overhead_s: int,
    work_left_quanta: int,
    spot_price: int,
    on_demand_price: int,
    spot_available: int,
    on_demand_available: int,
    slot_left_s: int,
) -> float:
    """What the rest of a job's life is worth if `look_ahead` decides this slot, micro-USD.

    The slot is counted exactly, all after it by the table. Overhead longer than any that the table
    knows, as a migration's may be, is taken for as much more work.
    """
    program = table.terms.program
    choice = look_ahead(
        table,
        elapsed_slots=elapsed_slots,
        run_state=run_state,
        price_ppm=price_ppm,
        held=held,
        interrupted=interrupted,
        pending_overhead_s=pending_overhead_s,
        work_left_quanta=work_left_quanta,
        spot_price=spot_price,
        on_demand_price=on_demand_price,
        spot_available=spot_available,
        on_demand_available=on_demand_available,
        slot_left_s=slot_left_s,
    )
    before = JobProgress(holding=held, pending_overhead_s=pending_overhead_s)
    broken = interrupted or held.spot > spot_available
    after = advance(program, before, choice, held_s=slot_left_s, interrupted=broken)
    left = work_left_quanta - after.progress_quanta
    cost = cost_micro_usd(spot_price, choice.spot, slot_left_s) + cost_micro_usd(
        on_demand_price, choice.on_demand, slot_left_s
    )
    if left <= 0:
        return float(program.value_micro_usd[elapsed_slots + 1] - cost)
    levels = table.pending_s
    level = min(int(np.searchsorted(levels, after.pending_overhead_s)), len(levels) - 1)
    excess_s = max(0, after.pending_overhead_s - int(levels[level]))
    left = min(left + program.rate_quanta_per_s[choice.instances] * excess_s, program.work_quanta)
    chosen = int(table.nearest[choice.spot, choice.on_demand])
    low, share = _price_place(table.terms.law.space.price_centres_ppm, price_ppm)
    cells = table.after[elapsed_slots, run_state, :, chosen, level, :]
    value = _between_cells(cells[low], left, table.cell_quanta)
    if share > 0.0:
        dearer = _between_cells(cells[low + 1], left, table.cell_quanta)
        value = (1.0 - share) * value + share * dearer
    return value - cost


def _between_cells(cells: TableArray, left: int, cell: int) -> float:
    """Table entry at `left` > 0 quanta of work."""
    j = (left - 1) // cell
    part = (left - j * cell) / cell
    value = float(cells[j])
    return part * value + (1.0 - part) * float(cells[j - 1]) if j else value


# --- laying out -------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _allowed(program: JobProgram) -> IntArray:
    return np.array(program.allowed_counts, dtype=np.int64)


@lru_cache(maxsize=256)
def _rates(program: JobProgram) -> IntArray:
    return np.array(program.rate_quanta_per_s, dtype=np.int64)


@lru_cache(maxsize=256)
def _values(program: JobProgram) -> IntArray:
    return np.array(program.value_micro_usd, dtype=np.int64)


@lru_cache(maxsize=256)
def _overheads_of(program: JobProgram) -> IntArray:
    return overheads_s(program)


def overheads_s(program: JobProgram) -> IntArray:
    """Seconds of each class of change: keep, shrink, grow, launch, interrupted."""
    return np.array(
        [0, program.shrink_s, program.grow_s, program.launch_s, program.interrupted_s],
        dtype=np.int64,
    )


def planned_s(program: JobProgram) -> IntArray:
    """As `overheads_s`, of changes to come: lost work is work of as many seconds."""
    return overheads_s(program) + np.array([0, 0, 0, 0, program.lost_s])


def _pending_levels(program: JobProgram) -> IntArray:
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


def _held_sets(terms: TableTerms, most: int) -> Configurations:
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


def _nearest(spot: IntArray, on_demand: IntArray, most: int) -> IntArray:
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


def _price_place(centres_ppm: tuple[int, ...], price_ppm: int) -> tuple[int, float]:
    """Where a price lies between the centres: the lower one, and the share of the next."""
    if price_ppm <= centres_ppm[0]:
        return 0, 0.0
    if price_ppm >= centres_ppm[-1]:
        return len(centres_ppm) - 1, 0.0
    low = 0
    while centres_ppm[low + 1] <= price_ppm:
        low += 1
    return low, (price_ppm - centres_ppm[low]) / (centres_ppm[low + 1] - centres_ppm[low])


# --- compiled ---------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True)
def _cost(price, count, seconds):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    return (price * count * seconds + 1800) // 3600


@numba.njit(cache=True, nogil=True)
def _kind(before_spot, before_on_demand, spot, on_demand, interrupted):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """Class of a change to a set that is not idle."""
    if before_spot + before_on_demand == 0:
        return 3
    if interrupted:
        return 4
    if spot == before_spot and on_demand == before_on_demand:
        return 0
    if spot <= before_spot and on_demand <= before_on_demand:
        return 1
    return 2


@numba.njit(cache=True, nogil=True)
def _level(pending_s, left_s):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """The least level that is not below what is pending."""
    for level in range(pending_s.shape[0]):
        if pending_s[level] >= left_s:
            return level
    return pending_s.shape[0] - 1


@numba.njit(cache=True, nogil=True)
def _stage(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    after,
    value,
    spot,
    on_demand,
    cover_start,
    covers,
    spot_price,
    on_demand_price,
    spot_available,
    on_demand_available,
    gain_whole,
    gain_part,
    gain,
    next_level,
    same_kind,
    rescue_s,
    waits,
    pending_s,
    finish,
    slot_s,
    slots_left,
    hard,
    forced,
    rescue_rate,
    cell,
):
    """One slot backwards: from what is expected after it to what its beginning is worth.

    `after` and `value` have shape (sets, levels, cells); all cells are computed.
    """
    sets = spot.shape[0]
    levels = pending_s.shape[0]
    never = -1e18
    worth = np.empty((5, sets))
    cost = np.empty(sets)
    shrunk = np.empty(sets)
    usable = np.empty(sets, dtype=np.bool_)
    for c in range(sets):
        cost[c] = _cost(spot_price, spot[c], slot_s) + _cost(on_demand_price, on_demand[c], slot_s)
        usable[c] = spot[c] <= spot_available and on_demand[c] <= on_demand_available
    for level in range(levels):
        for j in range(after.shape[2]):
            left = (j + 1) * cell
            for kind in range(5):
                if same_kind[kind, level] != kind:
                    for c in range(sets):
                        worth[kind, c] = worth[same_kind[kind, level], c]
                    continue
                for c in range(sets):
                    if not usable[c]:
                        worth[kind, c] = never
                    elif c == 0:
                        worth[kind, c] = after[0, 0, j]
                        if hard:
                            needed = -(-left // rescue_rate) + rescue_s[0, 0]
                            if -(-needed // slot_s) + waits[0] > slots_left:
                                worth[kind, c] = never
                    elif gain[kind, level, c] >= left:
                        worth[kind, c] = finish - cost[c]
                    else:
                        to = next_level[kind, level]
                        # j counts from 0 for one cell of work left: x lies between two cells.
                        low = j - gain_whole[kind, level, c]
                        part = gain_part[kind, level, c]
                        if low <= 0:
                            v = float(after[c, to, 0])
                        elif part == 0.0:
                            v = float(after[c, to, low])
                        else:
                            v = (1.0 - part) * after[c, to, low] + part * after[c, to, low - 1]
                        worth[kind, c] = v - cost[c]
                        if hard and c != forced:
                            rest = left - gain[kind, level, c]
                            needed = -(-rest // rescue_rate) + rescue_s[c, to]
                            if -(-needed // slot_s) + waits[c] > slots_left:
                                worth[kind, c] = never
            grow = never
            launch = never
            broken = never
            for c in range(sets):
                grow = max(grow, worth[2, c])
                launch = max(launch, worth[3, c])
                broken = max(broken, worth[4, c])
            for c in range(sets):
                shrunk[c] = worth[1, c]
                for k in range(cover_start[c], cover_start[c + 1]):
                    shrunk[c] = max(shrunk[c], shrunk[covers[k]])
                if c == 0:
                    best = launch
                elif spot[c] > spot_available:
                    best = broken
                else:
                    best = max(worth[0, c], grow, shrunk[c])
                value[c, level, j] = best if best > never else 0.0


@numba.njit(cache=True, nogil=True)
def _gains(spot, on_demand, rates, overheads, pending_s, slot_s, rescue, cell, reserve):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """Per class of change, pending level and set: quanta gained, in cells, and what follows.

    The last two are the seconds lost, and the slots to wait, on the way to `rescue` on-demand.
    """
    sets = spot.shape[0]
    levels = pending_s.shape[0]
    gain = np.zeros((5, levels, sets), dtype=np.int64)
    whole = np.zeros((5, levels, sets), dtype=np.int64)
    part = np.zeros((5, levels, sets))
    next_level = np.zeros((5, levels), dtype=np.int64)
    same_kind = np.zeros((5, levels), dtype=np.int64)
    rescue_s = np.zeros((sets, levels), dtype=np.int64)
    waits = np.zeros(sets, dtype=np.int64)
    for level in range(levels):
        for kind in range(5):
            lost_s = max(overheads[kind], pending_s[level])
            next_level[kind, level] = _level(pending_s, max(0, lost_s - slot_s))
            same_kind[kind, level] = kind
            for other in range(kind):
                if max(overheads[other], pending_s[level]) == lost_s:
                    same_kind[kind, level] = other
                    break
            for c in range(sets):
                gain[kind, level, c] = rates[spot[c] + on_demand[c]] * max(0, slot_s - lost_s)
                whole[kind, level, c] = gain[kind, level, c] // cell
                part[kind, level, c] = (gain[kind, level, c] % cell) / cell
        for c in range(sets):
            kind = _kind(spot[c], on_demand[c], 0, rescue, spot[c] > 0)
            rescue_s[c, level] = max(pending_s[level], overheads[kind])
            if reserve > 0 and on_demand[c] < rescue:
                waits[c] = reserve
                # While a launch waits, whatever is held comes and goes.
                rescue_s[c, level] = max(pending_s[level], overheads.max())
    return gain, whole, part, next_level, same_kind, rescue_s, waits


@numba.njit(cache=True, nogil=True)
def _forced(spot, on_demand, on_demand_available):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """The largest on-demand set there is."""
    forced = 0
    for c in range(spot.shape[0]):
        if spot[c] == 0 and on_demand[c] <= on_demand_available:
            forced = c
    return forced


@numba.njit(cache=True, nogil=True)
def _solve(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    spot,
    on_demand,
    cover_start,
    covers,
    counts,
    prices,
    on_demand_price,
    on_demand_available,
    run_matrix,
    price_matrix,
    rates,
    overheads,
    pending_s,
    values,
    late,
    slot_s,
    deadline_slots,
    end_slots,
    hard,
    most,
    cell,
    cells,
    reserve,
):
    """Backward induction; returns `ValueTable.after`."""
    runs = counts.shape[0]
    levels_of_price = prices.shape[0]
    sets = spot.shape[0]
    levels = pending_s.shape[0]
    forced = _forced(spot, on_demand, on_demand_available)
    # Where there is never enough for the largest count, the net falls back on what there is.
    rescue = on_demand[forced] if forced else most
    gain, whole, part, next_level, same_kind, rescue_s, waits = _gains(
        spot, on_demand, rates, overheads, pending_s, slot_s, rescue, cell, reserve
    )
    slots = max(1, deadline_slots)
    after = np.zeros((slots, runs, levels_of_price, sets, levels, cells), dtype=np.float32)
    full = rates[most] * slot_s
    for j in range(cells):
        needed = -(-((j + 1) * cell) // full)
        worth = late[min(needed, late.shape[0] - 1)]
        after[slots - 1, :, :, :, :, j] = worth
    now = np.zeros((runs, levels_of_price, sets, levels, cells))
    mixed = np.zeros((runs, levels_of_price, sets, levels, cells))
    for t in range(slots - 1, 0, -1):
        finish = values[t + 1] if t + 1 <= end_slots else 0
        for r in range(runs):
            for p in range(levels_of_price):
                _stage(
                    after[t, r, p],
                    now[r, p],
                    spot,
                    on_demand,
                    cover_start,
                    covers,
                    prices[p],
                    on_demand_price,
                    counts[r],
                    on_demand_available,
                    whole,
                    part,
                    gain,
                    next_level,
                    same_kind,
                    rescue_s,
                    waits,
                    pending_s,
                    finish,
                    slot_s,
                    slots - t - 1,
                    hard,
                    forced,
                    rates[rescue],
                    cell,
                )
        for r in range(runs):
            for p in range(levels_of_price):
                mixed[r, p] = 0.0
                for q in range(levels_of_price):
                    if price_matrix[p, q] > 0.0:
                        mixed[r, p] += price_matrix[p, q] * now[r, q]
        for r in range(runs):
            for p in range(levels_of_price):
                now[r, p] = 0.0
                for s in range(runs):
                    if run_matrix[r, s] > 0.0:
                        now[r, p] += run_matrix[r, s] * mixed[s, p]
                after[t - 1, r, p] = now[r, p]
    return after


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _cell_of(left, cell, per_quantum):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """The cell that `left` > 0 fills at least in part, and the part; `per_quantum` is 1 / cell."""
    # Divided as floats, which is faster, and mended.
    j = np.int64(np.float64(left - 1) * per_quantum)
    if j * cell >= left:
        j -= 1
    elif (j + 1) * cell < left:
        j += 1
    return j, (left - j * cell) / cell


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _at(after, low, share, c, level, j, part):  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    """Table entry between two prices and two cells."""
    v = after[low, c, level, j] + 0.0
    if j > 0:
        v = part * v + (1.0 - part) * after[low, c, level, j - 1]
    if share > 0.0:
        u = after[low + 1, c, level, j] + 0.0
        if j > 0:
            u = part * u + (1.0 - part) * after[low + 1, c, level, j - 1]
        v = (1.0 - share) * v + share * u
    return v


@numba.njit(cache=True, nogil=True, error_model="numpy")
def choose(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    after,
    low,
    share,
    allowed,
    rates,
    overheads,
    nearest,
    pending_s,
    cell,
    finish,
    held_spot,
    held_on_demand,
    interrupted,
    pending_now_s,
    left,
    spot_price,
    on_demand_price,
    spot_available,
    on_demand_available,
    slot_left_s,
):
    """One look ahead over every candidate; returns (spot, on-demand).

    `after` is `ValueTable.after` at a slot and run state; prices lie between `low` and the next
    by `share`. For what is considered, and for ties, see `look_ahead`.
    """
    per_quantum = 1.0 / cell
    j, part = _cell_of(left, cell, per_quantum)
    best = _at(after, low, share, 0, 0, j, part)
    best_spot = 0
    best_on_demand = 0
    # What each class of change costs in time, once for all candidates.
    launched = held_spot + held_on_demand == 0
    broken = interrupted or held_spot > spot_available
    keep, shrink, grow = 0, 1, 2
    if launched:
        keep, shrink, grow = 3, 3, 3
    elif broken:
        keep, shrink, grow = 4, 4, 4
    keep_s = max(overheads[keep], pending_now_s)
    shrink_s = max(overheads[shrink], pending_now_s)
    grow_s = max(overheads[grow], pending_now_s)
    keep_to = _level(pending_s, max(0, keep_s - slot_left_s))
    shrink_to = _level(pending_s, max(0, shrink_s - slot_left_s))
    grow_to = _level(pending_s, max(0, grow_s - slot_left_s))
    keep_s = max(0, slot_left_s - keep_s)
    shrink_s = max(0, slot_left_s - shrink_s)
    grow_s = max(0, slot_left_s - grow_s)
    spot_cost = spot_price * slot_left_s
    on_demand_cost = on_demand_price * slot_left_s
    for index in range(allowed.shape[0]):
        count = allowed[index]
        rate = rates[count]
        known_s = -1  # splits of one count mostly differ in cost alone
        most_spot = min(count, spot_available)
        for option in range(3):
            if option == 0:
                spot = most_spot
            elif option == 1:
                spot = 0
                if most_spot == 0:
                    continue
            else:
                spot = held_spot
                if spot == 0 or spot >= most_spot:
                    continue
            rest = count - spot
            if rest > on_demand_available:
                continue
            keeps = False
            if spot == held_spot and rest == held_on_demand:
                productive_s, to = keep_s, keep_to
                keeps = keep == 0
            elif spot <= held_spot and rest <= held_on_demand:
                productive_s, to = shrink_s, shrink_to
            else:
                productive_s, to = grow_s, grow_to
            gained = rate * productive_s
            cost = (spot_cost * spot + 1800) // 3600 + (on_demand_cost * rest + 1800) // 3600
            if gained >= left:
                v = float(finish - cost)
            else:
                if productive_s != known_s:
                    j, part = _cell_of(left - gained, cell, per_quantum)
                    known_s = productive_s
                v = _at(after, low, share, nearest[spot, rest], to, j, part) - cost
            if v > best or (v == best and (keeps or count >= best_spot + best_on_demand)):
                best = v
                best_spot = spot
                best_on_demand = rest
    return best_spot, best_on_demand


@numba.njit(cache=True, nogil=True)
def through(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    after,
    low,
    share,
    spot_price,
    spot_available,
    spot,
    on_demand,
    cover_start,
    covers,
    on_demand_price,
    on_demand_available,
    rates,
    overheads,
    pending_s,
    values,
    slot_s,
    deadline_slots,
    elapsed,
    hard,
    most,
    cell,
    reserve,
):
    """Go back over the forecast slots from the table; returns (1, sets, levels, cells)."""
    sets = spot.shape[0]
    levels = pending_s.shape[0]
    cells = after.shape[3]
    forced = _forced(spot, on_demand, on_demand_available)
    # Where there is never enough for the largest count, the net falls back on what there is.
    rescue = on_demand[forced] if forced else most
    gain, whole, part, next_level, same_kind, rescue_s, waits = _gains(
        spot, on_demand, rates, overheads, pending_s, slot_s, rescue, cell, reserve
    )
    slots = spot_price.shape[0]
    later = np.empty((1, sets, levels, cells), dtype=np.float32)
    later[0] = after[low]
    if share > 0.0:
        later[0] = (1.0 - share) * after[low] + share * after[low + 1]
    now = np.empty((sets, levels, cells))
    for h in range(slots - 1, -1, -1):
        t = elapsed + 1 + h
        _stage(
            later[0],
            now,
            spot,
            on_demand,
            cover_start,
            covers,
            spot_price[h],
            on_demand_price,
            spot_available[h],
            on_demand_available,
            whole,
            part,
            gain,
            next_level,
            same_kind,
            rescue_s,
            waits,
            pending_s,
            values[t + 1],
            slot_s,
            deadline_slots - t - 1,
            hard,
            forced,
            rates[rescue],
            cell,
        )
        later[0] = now
    return later
