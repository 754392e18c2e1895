"""The window program of a job that holds one of several offerings at a time, and may move.

The same exact dynamic program as `window`, over (progress, home offering and held set, pending
overhead): progress on a grid of the greatest common divisor of all gains, rounded down or up where
that grid is too fine. What moving costs is `jobs.migration`'s, the one accounting; `execute_placed`
runs a schedule through it, so what a plan promises is what executing it earns.

All sets that a job can enter with the same overhead share one maximum per offering, so a stage
costs O(cells * levels * (sets + offerings^2)) whatever the sets came from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    MigrationTable,
    PlacedProgress,
    Placement,
    advance_placed,
    move_cost_micro_usd,
    placement_overhead_s,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.solvers.configurations import Configurations
from spotline.domain.solvers.window import (
    CELL_LIMIT,
    IntArray,
    ProgressValue,
    Rounding,
    WindowMarket,
)
from spotline.domain.units import cost_micro_usd

# Two bytes each: where slots * cells * sets * levels is more, the grid is coarsened.
STATE_LIMIT = 400_000_000

# What a window's end is worth: nothing, by progress, or per offering by slots of on-demand work
# still needed there (the best offering counts).
EndValue = ProgressValue | Sequence[IntArray] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPlan:
    """The best schedule of a window: placements per slot, and value less cost in micro-USD.

    `exact` says that no gain was rounded. A slot after the job is done is idle.
    """

    placements: tuple[Placement, ...]
    utility_micro_usd: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedResult:
    """How a schedule fares: `finished_slot` counts from 1, 0 where it does not finish.

    `cost_micro_usd` holds `egress_micro_usd`. `end` is where the job stands after the last slot.
    """

    utility_micro_usd: int
    cost_micro_usd: int
    egress_micro_usd: int
    value_micro_usd: int
    finished_slot: int
    on_time: bool
    placements: tuple[Placement, ...]
    end: PlacedProgress


def check_programs(programs: Sequence[JobProgram]) -> None:
    """Refuse programs that are not of one job on one slot grid.

    Raises
    ------
    ValueError
        None is given, or they differ in slots, work, deadlines or values.
    """
    if not programs:
        raise ValueError("programs must hold at least one")
    shared = ("slot_s", "work_quanta", "deadline_slots", "end_slots", "value_micro_usd")
    for program in programs[1:]:
        for name in shared:
            if getattr(program, name) != getattr(programs[0], name):
                raise ValueError(f"programs of one job must have one {name}")


def solve_multi_window(
    programs: Sequence[JobProgram],
    configs: Sequence[Configurations],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    *,
    elapsed_slots: int,
    end_value: EndValue,
    rounding: Rounding = Rounding.DOWN,
    cell_limit: int = CELL_LIMIT,
    state_limit: int = STATE_LIMIT,
) -> PlacedPlan:
    """Find the schedule of greatest value less cost over a window and several offerings.

    Parameters
    ----------
    programs
        The job on each offering, with one slot grid, work scale, deadline and value.
    configs
        Per offering, the held sets to choose from; `start.holding` may be any set.
    markets
        Per offering, price and availability of each slot; all as long as the first.
    migrations
        What moving costs; rows and columns in the order of `programs`.
    start
        Where the job stands before the window. Spot beyond its home's availability in the first
        slot counts as interrupted.
    elapsed_slots
        Slots of the job's life before the window.
    end_value
        Worth of the progress where the window ends unfinished, see `EndValue`; which offering the
        job is on then, and what is pending, counts for nothing. It may never fall as progress
        grows, nor exceed what being done is worth: a dearer change is taken to be no better.

    Returns
    -------
    PlacedPlan
        Placements per slot. Among equals holding wins over changing, changing over moving, moving
        over idling, then the index decides.

    Raises
    ------
    ValueError
        The arguments do not fit together.
    """
    check_programs(programs)
    slots = len(markets[0])
    if any(len(market) != slots for market in markets) or len(markets) != len(programs):
        raise ValueError(f"markets must hold {len(programs)} of {slots} slots each")
    first = programs[0]
    left = first.work_quanta - start.progress_quanta
    if left <= 0 or slots == 0:
        return PlacedPlan(placements=(NOT_PLACED,) * slots, utility_micro_usd=0, exact=True)
    layout = _layout(programs, configs)
    bases = _bases(programs, migrations)
    opening, opening_overheads = _opening(programs, markets, migrations, start, layout)
    levels = _levels([*bases, *opening_overheads], first.slot_s)
    seconds = sorted(
        {
            max(0, first.slot_s - max(base, level))
            for base in (*bases, *opening_overheads)
            for level in (*levels, 0)
        }
    )
    rates = sorted({int(rate) for rate in layout.rate})
    reach = min(left, slots * max(rates) * max(seconds))
    most_cells = max(2, min(cell_limit, state_limit // (slots * layout.sources * len(levels))))
    cell, exact = _cell_quanta(rates, seconds, reach, most_cells)
    up = 0 if rounding is Rounding.DOWN else cell - 1
    gain_cells = np.array([[(r * s + up) // cell for r in layout.rate] for s in seconds])
    done = -(-left // cell)
    cells = min(done, slots * int(gain_cells.max()) + 1)
    finish = np.zeros(slots, dtype=np.int64)
    for slot in range(slots):
        number = elapsed_slots + slot + 1
        if number <= first.end_slots:
            finish[slot] = first.value_micro_usd[number]
    terminal = terminal_values(
        programs, start.progress_quanta + np.arange(cells, dtype=np.int64) * cell, end_value
    )
    class_table = _class_table(bases, levels, seconds, first.slot_s)
    entering = _entering(programs, migrations, bases)
    cost, usable = _slot_tables(
        programs, markets, layout, free_slots=first.deadline_slots - elapsed_slots
    )
    dollars = _egress(migrations, len(programs))
    opening_gain = np.zeros(layout.size, dtype=np.int64)
    opening_level = np.zeros(layout.size, dtype=np.int64)
    for c, overhead_s in enumerate(opening_overheads):
        opening_gain[c] = gain_cells[seconds.index(max(0, first.slot_s - overhead_s)), c]
        opening_level[c] = levels.index(max(0, overhead_s - first.slot_s))
    best, choice, first_choice = _solve(
        layout.spot,
        layout.first,
        layout.cover_start,
        layout.covers,
        np.array([market.spot_available for market in markets]),
        usable,
        cost,
        finish,
        terminal,
        done,
        gain_cells,
        class_table,
        entering.start,
        entering.base,
        entering.grow,
        entering.launch,
        entering.broken,
        entering.move,
        entering.move_broken,
        np.array([bases.index(p.shrink_s) for p in programs], dtype=np.int64),
        bases.index(0),
        dollars,
        opening_gain,
        opening_level,
        opening,
        start.home,
    )
    placements = _trace(
        programs,
        markets,
        migrations,
        start,
        layout,
        choice,
        int(first_choice),
        seconds,
        levels,
        gain_cells,
        done,
    )
    return PlacedPlan(placements=placements, utility_micro_usd=int(best), exact=exact)


# --- executing --------------------------------------------------------------------------------


def execute_placed(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    placements: Sequence[Placement],
    *,
    elapsed_slots: int = 0,
) -> PlacedResult:
    """Run a schedule slot by slot; what follows the slot in which the job is done is not held.

    Raises
    ------
    ValueError
        A placement takes more than there is, or a count that is not allowed.
    """
    state = start
    cost = egress = 0
    first = programs[0]
    for slot, after in enumerate(placements):
        _check_placement(programs, markets, slot, after)
        broken = is_interrupted(markets, state, slot)
        cost += placement_cost_micro_usd(programs, markets, after, slot)
        egress += move_cost_micro_usd(migrations, state, after)
        state = advance_placed(
            programs, migrations, state, after, held_s=first.slot_s, interrupted=broken
        )
        if state.progress_quanta >= first.work_quanta:
            number = elapsed_slots + slot + 1
            value = first.value_micro_usd[number] if number <= first.end_slots else 0
            return _result(first, value, cost, egress, number, placements[: slot + 1], state)
    return _result(first, 0, cost, egress, 0, placements, state)


def _check_placement(
    programs: Sequence[JobProgram], markets: Sequence[WindowMarket], slot: int, after: Placement
) -> None:
    if after.offering == NOWHERE:
        return
    market, held = markets[after.offering], after.holding
    if held.spot > market.spot_available[slot] or held.on_demand > market.on_demand_available[slot]:
        raise ValueError(
            f"placements[{slot}] must be <= {market.spot_available[slot]} spot and "
            f"{market.on_demand_available[slot]} on-demand, was {held.spot} and {held.on_demand}"
        )
    if held.instances not in programs[after.offering].allowed_counts:
        raise ValueError(
            f"placements[{slot}] must hold one of {programs[after.offering].allowed_counts} "
            f"instances, was {held.instances}"
        )


def _result(
    program: JobProgram,
    value: int,
    cost: int,
    egress: int,
    finished: int,
    placements: Sequence[Placement],
    end: PlacedProgress,
) -> PlacedResult:
    return PlacedResult(
        utility_micro_usd=value - cost - egress,
        cost_micro_usd=cost + egress,
        egress_micro_usd=egress,
        value_micro_usd=value,
        finished_slot=finished,
        on_time=0 < finished <= program.deadline_slots,
        placements=tuple(placements),
        end=end,
    )


def is_interrupted(markets: Sequence[WindowMarket], state: PlacedProgress, slot: int) -> bool:
    """Whether spot that `state` holds is gone when `slot` of the window opens."""
    if state.home == NOWHERE:
        return False
    return bool(state.holding.spot > markets[state.home].spot_available[slot])


def placement_cost_micro_usd(
    programs: Sequence[JobProgram], markets: Sequence[WindowMarket], after: Placement, slot: int
) -> int:
    """What holding `after` for one slot costs, without egress."""
    if after.offering == NOWHERE:
        return 0
    market, slot_s = markets[after.offering], programs[after.offering].slot_s
    return cost_micro_usd(
        int(market.spot_price[slot]), after.holding.spot, slot_s
    ) + cost_micro_usd(int(market.on_demand_price[slot]), after.holding.on_demand, slot_s)


def terminal_values(
    programs: Sequence[JobProgram], quanta: IntArray, end_value: EndValue
) -> IntArray:
    """Worth in micro-USD of each unfinished progress at a window's end, same shape."""
    if end_value is None:
        return np.zeros(quanta.shape[0], dtype=np.int64)
    if isinstance(end_value, ProgressValue):
        return end_value.at(quanta)
    if len(end_value) != len(programs):
        raise ValueError(f"end_value must hold {len(programs)} arrays, held {len(end_value)}")
    worth = None
    for program, by_slots in zip(programs, end_value, strict=True):
        rate = program.rate_quanta_per_s[program.max_instances] * program.slot_s
        needed = -((quanta - program.work_quanta) // rate)
        here = by_slots[np.minimum(needed, by_slots.shape[0] - 1)]
        worth = here if worth is None else np.maximum(worth, here)
    return np.asarray(worth, dtype=np.int64)


# --- layout -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """All offerings' held sets but idle, one after the other.

    Sources and targets of a slot: the sets, then idle with the home 0, 1, ..., then idle nowhere.
    """

    holdings: tuple[Holding, ...]
    spot: IntArray
    offering: IntArray
    rate: IntArray
    first: IntArray
    cover_start: IntArray
    covers: IntArray

    @property
    def size(self) -> int:
        return len(self.holdings)

    @property
    def sources(self) -> int:
        return self.size + int(self.first.shape[0])


def _layout(programs: Sequence[JobProgram], configs: Sequence[Configurations]) -> _Layout:
    holdings: list[Holding] = []
    offering: list[int] = []
    rate: list[int] = []
    first = [0]
    cover_start = [0]
    covers: list[int] = []
    for index, (program, sets) in enumerate(zip(programs, configs, strict=True)):
        at = len(holdings) - 1  # idle, at 0 of every offering's sets, is left out
        for c in range(1, len(sets.holdings)):
            holdings.append(sets.holdings[c])
            offering.append(index)
            rate.append(program.rate_quanta_per_s[sets.holdings[c].instances])
            inner = sets.covers[sets.cover_start[c] : sets.cover_start[c + 1]]
            covers.extend(int(k) + at for k in inner if k)
            cover_start.append(len(covers))
        first.append(len(holdings))
    return _Layout(
        holdings=tuple(holdings),
        spot=np.array([h.spot for h in holdings], dtype=np.int64),
        offering=np.array(offering, dtype=np.int64),
        rate=np.array(rate, dtype=np.int64),
        first=np.array(first, dtype=np.int64),
        cover_start=np.array(cover_start, dtype=np.int64),
        covers=np.array(covers, dtype=np.int64),
    )


def _bases(programs: Sequence[JobProgram], migrations: MigrationTable) -> list[int]:
    """Every overhead that a change between two held sets can have, ascending from 0."""
    bases = {0}
    for to, there in enumerate(programs):
        bases |= {there.shrink_s, there.grow_s, there.launch_s, there.interrupted_s}
        for origin, here in enumerate(programs):
            if origin != to:
                moved_s = max(migrations[origin][to].overhead_s, there.launch_s)
                bases |= {moved_s, max(moved_s, here.interrupted_s)}
    return sorted(bases)


def _levels(overheads: Sequence[int], slot_s: int) -> list[int]:
    """Every overhead that can be pending when a slot opens; 0 comes first."""
    levels = [0]
    for overhead_s in sorted(set(overheads)):
        left_s = max(0, overhead_s - slot_s)
        while left_s not in levels:
            levels.append(left_s)
            left_s = max(0, left_s - slot_s)
    return levels


def _class_table(bases: list[int], levels: list[int], seconds: list[int], slot_s: int) -> IntArray:
    """For each base overhead and pending level: (row of the gains, next pending level)."""
    table = np.zeros((len(bases), len(levels), 2), dtype=np.int64)
    for row, base in enumerate(bases):
        for column, level in enumerate(levels):
            overhead_s = max(base, level)
            table[row, column, 0] = seconds.index(max(0, slot_s - overhead_s))
            table[row, column, 1] = levels.index(max(0, overhead_s - slot_s))
    return table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Entering:
    """With which overheads (indices of the bases) sets of an offering are entered.

    `base[start[k] : start[k + 1]]` are those of offering k; the other arrays point into `base`.
    """

    start: IntArray
    base: IntArray
    grow: IntArray
    launch: IntArray
    broken: IntArray
    move: IntArray
    move_broken: IntArray


def _entering(
    programs: Sequence[JobProgram], migrations: MigrationTable, bases: list[int]
) -> _Entering:
    count = len(programs)
    start = [0]
    flat: list[int] = []
    ways = {name: np.zeros(count, dtype=np.int64) for name in ("grow", "launch", "broken")}
    move = np.zeros((count, count), dtype=np.int64)
    move_broken = np.zeros((count, count), dtype=np.int64)
    for to, there in enumerate(programs):
        own: list[int] = []

        def entry(overhead_s: int, own: list[int] = own, at: int = len(flat)) -> int:
            base = bases.index(overhead_s)
            if base not in own:
                own.append(base)
            return at + own.index(base)

        ways["grow"][to] = entry(there.grow_s)
        ways["launch"][to] = entry(there.launch_s)
        ways["broken"][to] = entry(there.interrupted_s)
        for origin, here in enumerate(programs):
            if origin != to:
                moved_s = max(migrations[origin][to].overhead_s, there.launch_s)
                move[origin, to] = entry(moved_s)
                move_broken[origin, to] = entry(max(moved_s, here.interrupted_s))
        flat.extend(own)
        start.append(len(flat))
    return _Entering(
        start=np.array(start, dtype=np.int64),
        base=np.array(flat, dtype=np.int64),
        move=move,
        move_broken=move_broken,
        **ways,
    )


def _egress(migrations: MigrationTable, offerings: int) -> IntArray:
    dollars = np.zeros((offerings, offerings), dtype=np.int64)
    for origin in range(offerings):
        for to in range(offerings):
            if origin != to:
                dollars[origin, to] = migrations[origin][to].cost_micro_usd
    return dollars


def _slot_tables(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    layout: _Layout,
    *,
    free_slots: int,
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Cost in micro-USD and whether there is enough, per slot and set, shape (slots, sets)."""
    slots = len(markets[0])
    cost = np.zeros((slots, layout.size), dtype=np.int64)
    usable = np.zeros((slots, layout.size), dtype=np.bool_)
    for c, held in enumerate(layout.holdings):
        k = int(layout.offering[c])
        market, slot_s = markets[k], programs[k].slot_s
        cost[:, c] = (market.spot_price * held.spot * slot_s + 1800) // 3600 + (
            market.on_demand_price * held.on_demand * slot_s + 1800
        ) // 3600
        usable[:, c] = (held.spot <= market.spot_available) & (
            held.on_demand <= market.on_demand_available
        )
        if held != Holding(on_demand=programs[k].max_instances):
            # After its deadline a job runs on its largest on-demand count, or not at all.
            usable[max(0, free_slots) :, c] = False
    return cost, usable


def _opening(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    layout: _Layout,
) -> tuple[IntArray, list[int]]:
    """Egress and whole overhead of entering each set from the start, which may be any set."""
    broken = is_interrupted(markets, start, 0)
    dollars = np.zeros(layout.size, dtype=np.int64)
    overheads = []
    for c, held in enumerate(layout.holdings):
        after = Placement(offering=int(layout.offering[c]), holding=held)
        change_s = placement_overhead_s(programs, migrations, start, after, interrupted=broken)
        overheads.append(max(change_s, start.pending_overhead_s))
        dollars[c] = move_cost_micro_usd(migrations, start, after)
    return dollars, overheads


def _cell_quanta(
    rates: Sequence[int], seconds: Sequence[int], reach: int, cell_limit: int
) -> tuple[int, bool]:
    """The grid step in quanta, and whether every gain falls on it."""
    exact = math.gcd(*(rate * productive_s for rate in rates for productive_s in seconds))
    if exact == 0:
        return max(1, reach), True
    if reach <= exact * cell_limit:
        return exact, True
    return -(-reach // cell_limit), False


def _trace(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    layout: _Layout,
    choice: npt.NDArray[np.int16],
    target: int,
    seconds: list[int],
    levels: list[int],
    gain_cells: IntArray,
    done: int,
) -> tuple[Placement, ...]:
    """Follow the choices forward on the grid."""
    slot_s = programs[0].slot_s
    placements = [NOT_PLACED] * len(markets[0])
    state = start
    cell = 0
    for slot in range(len(placements)):
        if slot:
            source = target
            target = int(choice[slot, cell, source, levels.index(state.pending_overhead_s)])
        after = NOT_PLACED
        if target < layout.size:
            after = Placement(
                offering=int(layout.offering[target]), holding=layout.holdings[target]
            )
        placements[slot] = after
        broken = is_interrupted(markets, state, slot)
        overhead_s = placement_overhead_s(programs, migrations, state, after, interrupted=broken)
        overhead_s = max(overhead_s, state.pending_overhead_s)
        state = advance_placed(
            programs, migrations, state, after, held_s=slot_s, interrupted=broken
        )
        if after.offering != NOWHERE:
            cell += int(gain_cells[seconds.index(max(0, slot_s - overhead_s)), target])
            if cell >= done:
                break
    return tuple(placements)


@numba.njit(cache=True, nogil=True)
def _solve(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    spot,
    first,
    cover_start,
    covers,
    spot_available,
    usable,
    cost,
    finish,
    terminal,
    done,
    gain_cells,
    class_table,
    enter_start,
    enter_base,
    grow,
    launch,
    broken,
    move,
    move_broken,
    shrink_base,
    zero_base,
    dollars,
    opening_gain,
    opening_level,
    opening_dollars,
    home,
):
    """Backward induction; returns the best value, the choices and that of the first slot.

    Pending level 0 is nothing pending. Sets, idle at each home, idle nowhere: in this order.
    """
    never = -(2**62)
    slots = cost.shape[0]
    cells = terminal.shape[0]
    count = spot.shape[0]
    offerings = first.shape[0] - 1
    sources = count + offerings + 1
    levels = class_table.shape[1]
    largest = gain_cells.max()
    after = np.empty((cells, sources, levels), dtype=np.int64)
    now = np.empty((cells, sources, levels), dtype=np.int64)
    for cell in range(cells):
        for source in range(sources):
            for level in range(levels):
                after[cell, source, level] = terminal[cell]
    choice = np.zeros((slots, cells, sources, levels), dtype=np.int16)
    entered = np.empty(enter_base.shape[0], dtype=np.int64)
    entered_at = np.empty(enter_base.shape[0], dtype=np.int16)
    shrunk = np.empty(count, dtype=np.int64)
    shrunk_at = np.empty(count, dtype=np.int16)
    for slot in range(slots - 1, 0, -1):
        reach = min(cells, slot * largest + 1)
        for cell in range(reach):
            for level in range(levels):
                for k in range(offerings):
                    # Among equals more instances win: progress made now nobody can take.
                    for e in range(enter_start[k], enter_start[k + 1]):
                        row = class_table[enter_base[e], level, 0]
                        next_level = class_table[enter_base[e], level, 1]
                        best = never
                        best_at = count + k
                        for c in range(first[k], first[k + 1]):
                            if not usable[slot, c]:
                                continue
                            reached = cell + gain_cells[row, c]
                            if reached >= done:
                                v = finish[slot] - cost[slot, c]
                            else:
                                v = after[reached, c, next_level] - cost[slot, c]
                            if v >= best:
                                best = v
                                best_at = c
                        entered[e] = best
                        entered_at[e] = best_at
                for a in range(offerings):
                    # Move away from a, whole and broken.
                    moved = never
                    moved_at = count + a
                    torn = never
                    torn_at = count + a
                    for b in range(offerings):
                        if a == b:
                            continue
                        e = move[a, b]
                        if entered[e] > never and entered[e] - dollars[a, b] > moved:
                            moved = entered[e] - dollars[a, b]
                            moved_at = entered_at[e]
                        e = move_broken[a, b]
                        if entered[e] > never and entered[e] - dollars[a, b] > torn:
                            torn = entered[e] - dollars[a, b]
                            torn_at = entered_at[e]
                    idle = after[cell, count + a, 0]
                    same_row = class_table[zero_base, level, 0]
                    same_level = class_table[zero_base, level, 1]
                    shrink_row = class_table[shrink_base[a], level, 0]
                    shrink_level = class_table[shrink_base[a], level, 1]
                    for c in range(first[a], first[a + 1]):
                        best = never
                        best_at = count + a
                        if usable[slot, c]:
                            reached = cell + gain_cells[shrink_row, c]
                            if reached >= done:
                                best = finish[slot] - cost[slot, c]
                            else:
                                best = after[reached, c, shrink_level] - cost[slot, c]
                            best_at = c
                        for j in range(cover_start[c], cover_start[c + 1]):
                            if shrunk[covers[j]] > best:
                                best = shrunk[covers[j]]
                                best_at = shrunk_at[covers[j]]
                        shrunk[c] = best
                        shrunk_at[c] = best_at
                        if spot[c] > spot_available[a, slot]:
                            best = entered[broken[a]]
                            best_at = entered_at[broken[a]]
                            if torn > best:
                                best = torn
                                best_at = torn_at
                        else:
                            best = never
                            best_at = count + a
                            if usable[slot, c]:
                                reached = cell + gain_cells[same_row, c]
                                if reached >= done:
                                    best = finish[slot] - cost[slot, c]
                                else:
                                    best = after[reached, c, same_level] - cost[slot, c]
                                best_at = c
                            if shrunk[c] > best:
                                best = shrunk[c]
                                best_at = shrunk_at[c]
                            if entered[grow[a]] > best:
                                best = entered[grow[a]]
                                best_at = entered_at[grow[a]]
                            if moved > best:
                                best = moved
                                best_at = moved_at
                        if idle > best:
                            best = idle
                            best_at = count + a
                        now[cell, c, level] = best
                        choice[slot, cell, c, level] = best_at
                    best = entered[launch[a]]
                    best_at = entered_at[launch[a]]
                    if moved > best:
                        best = moved
                        best_at = moved_at
                    if idle > best:
                        best = idle
                        best_at = count + a
                    now[cell, count + a, level] = best
                    choice[slot, cell, count + a, level] = best_at
                best = never
                best_at = count + offerings
                for b in range(offerings):
                    if entered[launch[b]] > best:
                        best = entered[launch[b]]
                        best_at = entered_at[launch[b]]
                idle = after[cell, count + offerings, 0]
                if idle > best:
                    best = idle
                    best_at = count + offerings
                now[cell, count + offerings, level] = best
                choice[slot, cell, count + offerings, level] = best_at
        after, now = now, after
    # The first slot: the start may be any set, so its changes were laid out by the caller.
    rest = count + home if home >= 0 else count + offerings
    best = after[0, rest, 0]
    best_at = rest
    for c in range(count):
        if usable[0, c]:
            if opening_gain[c] >= done:
                v = finish[0] - cost[0, c] - opening_dollars[c]
            else:
                v = after[opening_gain[c], c, opening_level[c]] - cost[0, c] - opening_dollars[c]
            if v > best:
                best = v
                best_at = c
    return best, choice, best_at
