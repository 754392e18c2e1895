"""A window over several offerings laid out for the compiled program: sets, overheads, grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.migration import (
    MigrationTable,
    PlacedProgress,
    Placement,
    move_cost_micro_usd,
    placement_overhead_s,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.solvers.configurations import Configurations
from spotline.domain.solvers.placed_schedules import is_interrupted
from spotline.domain.solvers.window import (
    IntArray,
    WindowMarket,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldSets:
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
        """Held sets of all offerings."""
        return len(self.holdings)

    @property
    def sources(self) -> int:
        """Where a job can stand: the sets, idle at each home, idle nowhere."""
        return self.size + int(self.first.shape[0])


def held_sets(programs: Sequence[JobProgram], configs: Sequence[Configurations]) -> HeldSets:
    """Lay out the sets of all offerings one after the other."""
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
    return HeldSets(
        holdings=tuple(holdings),
        spot=np.array([h.spot for h in holdings], dtype=np.int64),
        offering=np.array(offering, dtype=np.int64),
        rate=np.array(rate, dtype=np.int64),
        first=np.array(first, dtype=np.int64),
        cover_start=np.array(cover_start, dtype=np.int64),
        covers=np.array(covers, dtype=np.int64),
    )


def bases_of(programs: Sequence[JobProgram], migrations: MigrationTable) -> list[int]:
    """Every overhead that a change between two held sets can have, ascending from 0."""
    bases = {0}
    for to, there in enumerate(programs):
        bases |= {there.shrink_s, there.grow_s, there.launch_s, there.interrupted_s}
        for origin, here in enumerate(programs):
            if origin != to:
                moved_s = max(migrations[origin][to].overhead_s, there.launch_s)
                bases |= {moved_s, max(moved_s, here.interrupted_s)}
    return sorted(bases)


def pending_levels(overheads: Sequence[int], slot_s: int) -> list[int]:
    """Every overhead that can be pending when a slot opens; 0 comes first."""
    levels = [0]
    for overhead_s in sorted(set(overheads)):
        left_s = max(0, overhead_s - slot_s)
        while left_s not in levels:
            levels.append(left_s)
            left_s = max(0, left_s - slot_s)
    return levels


def class_table(bases: list[int], levels: list[int], seconds: list[int], slot_s: int) -> IntArray:
    """For each base overhead and pending level: (row of the gains, next pending level)."""
    table = np.zeros((len(bases), len(levels), 2), dtype=np.int64)
    for row, base in enumerate(bases):
        for column, level in enumerate(levels):
            overhead_s = max(base, level)
            table[row, column, 0] = seconds.index(max(0, slot_s - overhead_s))
            table[row, column, 1] = levels.index(max(0, overhead_s - slot_s))
    return table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entering:
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


def entering_of(
    programs: Sequence[JobProgram], migrations: MigrationTable, bases: list[int]
) -> Entering:
    """With which overheads each offering is entered."""
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
    return Entering(
        start=np.array(start, dtype=np.int64),
        base=np.array(flat, dtype=np.int64),
        move=move,
        move_broken=move_broken,
        **ways,
    )


def egress_of(migrations: MigrationTable, offerings: int) -> IntArray:
    """Cost of every move in micro-USD, shape (offerings, offerings)."""
    dollars = np.zeros((offerings, offerings), dtype=np.int64)
    for origin in range(offerings):
        for to in range(offerings):
            if origin != to:
                dollars[origin, to] = migrations[origin][to].cost_micro_usd
    return dollars


def slot_tables(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    layout: HeldSets,
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


def opening_of(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    layout: HeldSets,
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


def cell_quanta(
    rates: Sequence[int], seconds: Sequence[int], reach: int, cell_limit: int
) -> tuple[int, bool]:
    """The grid step in quanta, and whether every gain falls on it."""
    exact = math.gcd(*(rate * productive_s for rate in rates for productive_s in seconds))
    if exact == 0:
        return max(1, reach), True
    if reach <= exact * cell_limit:
        return exact, True
    return -(-reach // cell_limit), False
