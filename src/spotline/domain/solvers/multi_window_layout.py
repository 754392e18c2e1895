"""A window over several offerings laid out for the compiled program: sets, overheads, costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from spotline.domain.jobs.migration import (
    MigrationTable,
    PlacedHolding,
    PlacedProgress,
    move_cost_micro_usd,
    placement_overhead_s,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.kernels import IntArray
from spotline.domain.solvers.configurations import Configurations
from spotline.domain.solvers.multi_window_stages import Changes, HeldSets, WindowSlots
from spotline.domain.solvers.placed_schedules import is_interrupted
from spotline.domain.solvers.window import WindowMarket
from spotline.domain.units import cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferingWindow:
    """One offering in a window: the job compiled for it, the sets to choose from, the market."""

    program: JobProgram
    configs: Configurations
    market: WindowMarket


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowLayout:
    """All offerings' held sets but idle, one after the other: what each is, where, how fast."""

    holdings: tuple[Holding, ...]
    offering: IntArray
    rate: IntArray
    sets: HeldSets

    @property
    def size(self) -> int:
        """Held sets of all offerings."""
        return len(self.holdings)

    @property
    def sources(self) -> int:
        """Where a job can stand: the sets, idle at each home, idle nowhere."""
        return self.size + int(self.sets.first.shape[0])

    def placement(self, target: int) -> PlacedHolding:
        """The held set of this number, placed."""
        return PlacedHolding(offering=int(self.offering[target]), holding=self.holdings[target])


def layout_of(offerings: Sequence[OfferingWindow]) -> WindowLayout:
    """Lay out the sets of all offerings one after the other."""
    holdings: list[Holding] = []
    offering: list[int] = []
    rate: list[int] = []
    first = [0]
    cover_start = [0]
    covers: list[int] = []
    for index, here in enumerate(offerings):
        sets = here.configs
        at = len(holdings) - 1  # idle, at 0 of every offering's sets, is left out
        for c in range(1, len(sets.holdings)):
            holdings.append(sets.holdings[c])
            offering.append(index)
            rate.append(here.program.rate_quanta_per_s[sets.holdings[c].instances])
            inner = sets.covers[sets.cover_start[c] : sets.cover_start[c + 1]]
            covers.extend(int(k) + at for k in inner if k)
            cover_start.append(len(covers))
        first.append(len(holdings))
    return WindowLayout(
        holdings=tuple(holdings),
        offering=np.array(offering, dtype=np.int64),
        rate=np.array(rate, dtype=np.int64),
        sets=HeldSets(
            spot=np.array([h.spot for h in holdings], dtype=np.int64),
            first=np.array(first, dtype=np.int64),
            cover_start=np.array(cover_start, dtype=np.int64),
            covers=np.array(covers, dtype=np.int64),
        ),
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


def pending_levels(overheads: Iterable[int], slot_s: int) -> list[int]:
    """Every overhead that can be pending when a slot opens; 0 comes first."""
    levels = [0]
    for overhead_s in sorted(set(overheads)):
        left_s = max(0, overhead_s - slot_s)
        while left_s not in levels:
            levels.append(left_s)
            left_s = max(0, left_s - slot_s)
    return levels


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOverheads:
    """The overheads of a window in seconds, each list ascending and numbered by its order.

    `bases` are those of changes, from 0; `levels` what can be pending when a slot opens, 0 first;
    `productive` what a slot of `slot_s` seconds can leave.
    """

    slot_s: int
    bases: list[int]
    levels: list[int]
    productive: list[int]

    @classmethod
    def of(cls, bases: list[int], opening: Sequence[int], slot_s: int) -> WindowOverheads:
        """Number the overheads of changes, and of entering the window from its start."""
        levels = pending_levels([*bases, *opening], slot_s)
        left = {
            max(0, slot_s - max(base, level)) for base in (*bases, *opening) for level in levels
        }
        return cls(slot_s=slot_s, bases=bases, levels=levels, productive=sorted(left))

    def row(self, overhead_s: int) -> int:
        """Number of the productive seconds that a slot has behind an overhead."""
        return self.productive.index(max(0, self.slot_s - overhead_s))

    def level(self, overhead_s: int) -> int:
        """Number of what is pending of an overhead when the next slot opens."""
        return self.levels.index(max(0, overhead_s - self.slot_s))

    def classes(self) -> IntArray:
        """For each base and pending level: (row of the gains, next pending level)."""
        table = np.zeros((len(self.bases), len(self.levels), 2), dtype=np.int64)
        for at, base in enumerate(self.bases):
            for column, level in enumerate(self.levels):
                overhead_s = max(base, level)
                table[at, column] = self.row(overhead_s), self.level(overhead_s)
        return table


def changes_of(
    programs: Sequence[JobProgram], migrations: MigrationTable, overheads: WindowOverheads
) -> Changes:
    """With which overheads the sets of each offering are entered, and what moves cost."""
    count = len(programs)
    start = [0]
    flat: list[int] = []
    ways = {name: np.zeros(count, dtype=np.int64) for name in ("grow", "launch", "broken")}
    moves = {
        name: np.zeros((count, count), dtype=np.int64)
        for name in ("move", "move_broken", "egress_micro_usd")
    }
    for to, there in enumerate(programs):
        own: list[int] = []

        def entry(overhead_s: int, own: list[int] = own, at: int = len(flat)) -> int:
            base = overheads.bases.index(overhead_s)
            if base not in own:
                own.append(base)
            return at + own.index(base)

        ways["grow"][to] = entry(there.grow_s)
        ways["launch"][to] = entry(there.launch_s)
        ways["broken"][to] = entry(there.interrupted_s)
        for origin, here in enumerate(programs):
            if origin != to:
                move = migrations[origin][to]
                moved_s = max(move.overhead_s, there.launch_s)
                moves["move"][origin, to] = entry(moved_s)
                moves["move_broken"][origin, to] = entry(max(moved_s, here.interrupted_s))
                moves["egress_micro_usd"][origin, to] = move.cost_micro_usd
        flat.extend(own)
        start.append(len(flat))
    return Changes(
        classes=overheads.classes(),
        start=np.array(start, dtype=np.int64),
        base=np.array(flat, dtype=np.int64),
        shrink=np.array([overheads.bases.index(p.shrink_s) for p in programs], dtype=np.int64),
        **ways,
        **moves,
    )


def slots_of(
    offerings: Sequence[OfferingWindow], layout: WindowLayout, elapsed_slots: int
) -> WindowSlots:
    """What each slot offers and what being done in it is worth."""
    first = offerings[0].program
    slots = len(offerings[0].market)
    cost = np.zeros((slots, layout.size), dtype=np.int64)
    usable = np.zeros((slots, layout.size), dtype=np.bool_)
    for c, held in enumerate(layout.holdings):
        here = offerings[int(layout.offering[c])]
        market, slot_s = here.market, here.program.slot_s
        cost[:, c] = cost_micro_usd(market.spot_price, held.spot, slot_s)
        cost[:, c] += cost_micro_usd(market.on_demand_price, held.on_demand, slot_s)
        usable[:, c] = (held.spot <= market.spot_available) & (
            held.on_demand <= market.on_demand_available
        )
        if held != Holding(on_demand=here.program.max_instances):
            # After its deadline a job runs on its largest on-demand count, or not at all.
            usable[max(0, first.deadline_slots - elapsed_slots) :, c] = False
    finish = np.zeros(slots, dtype=np.int64)
    for slot in range(max(0, min(slots, first.end_slots - elapsed_slots))):
        finish[slot] = first.value_micro_usd[elapsed_slots + slot + 1]
    return WindowSlots(
        spot_available=np.array([here.market.spot_available for here in offerings]),
        usable=usable,
        cost=cost,
        finish=finish,
    )


def opening_of(
    offerings: Sequence[OfferingWindow],
    migrations: MigrationTable,
    start: PlacedProgress,
    layout: WindowLayout,
) -> tuple[IntArray, list[int]]:
    """Egress and whole overhead of entering each set from the start, which may be any set."""
    programs = [here.program for here in offerings]
    markets = [here.market for here in offerings]
    broken = is_interrupted(markets, start, 0)
    dollars = np.zeros(layout.size, dtype=np.int64)
    overheads = []
    for c in range(layout.size):
        after = layout.placement(c)
        change_s = placement_overhead_s(programs, migrations, start, after, interrupted=broken)
        overheads.append(max(change_s, start.pending_overhead_s))
        dollars[c] = move_cost_micro_usd(migrations, start, after)
    return dollars, overheads
