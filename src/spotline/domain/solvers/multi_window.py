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

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    MigrationTable,
    PlacedHolding,
    PlacedProgress,
    advance_placed,
    placement_overhead_s,
)
from spotline.domain.jobs.program import JobProgram
from spotline.domain.kernels import IntArray
from spotline.domain.solvers.multi_window_layout import (
    OfferingWindow,
    WindowLayout,
    WindowOverheads,
    bases_of,
    changes_of,
    layout_of,
    opening_of,
    slots_of,
)
from spotline.domain.solvers.multi_window_stages import Opening, ProgressGrid, solve_stages
from spotline.domain.solvers.placed_schedules import check_programs, is_interrupted
from spotline.domain.solvers.window import CELL_LIMIT, ProgressValue, Rounding

# Two bytes each: where slots * cells * sets * levels is more, the grid is coarsened.
_STATE_LIMIT = 400_000_000

# What a window's end is worth: nothing, by progress, or per offering by slots of on-demand work
# still needed there (the best offering counts).
EndValue = ProgressValue | Sequence[IntArray] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPlan:
    """The best schedule of a window: placements per slot, and value less cost in micro-USD.

    `exact` says that no gain was rounded. A slot after the job is done is idle.
    """

    placements: tuple[PlacedHolding, ...]
    utility_micro_usd: int
    exact: bool


def solve_multi_window(
    offerings: Sequence[OfferingWindow],
    migrations: MigrationTable,
    start: PlacedProgress,
    *,
    elapsed_slots: int,
    end_value: EndValue,
    rounding: Rounding = Rounding.DOWN,
    cell_limit: int = CELL_LIMIT,
) -> PlacedPlan:
    """Find the schedule of greatest value less cost over a window and several offerings.

    Parameters
    ----------
    offerings
        Each with the job compiled for it (one slot grid, work scale, deadline and value for all),
        the held sets to choose from (`start.holding` may be any set) and the market of the window,
        as long as that of the first.
    migrations
        What moving costs; rows and columns in the order of `offerings`.
    start
        Where the job stands before the window. Spot beyond its home's availability in the first
        slot counts as interrupted.
    elapsed_slots
        Slots of the job's life before the window.
    end_value
        Worth of the progress where the window ends unfinished, see `EndValue`; which offering the
        job is on then, and what is pending, counts for nothing. It may never fall as progress
        grows, nor exceed what being done is worth: a dearer change is taken to be no better.
    rounding, cell_limit
        Where the exact grid has more cells than this, gains are rounded down or up to fit.

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
    programs = [here.program for here in offerings]
    check_programs(programs)
    slots = len(offerings[0].market)
    if any(len(here.market) != slots for here in offerings):
        raise ValueError(f"markets must all have {slots} slots, as the first has")
    first = programs[0]
    if start.progress_quanta >= first.work_quanta or slots == 0:
        return PlacedPlan(placements=(NOT_PLACED,) * slots, utility_micro_usd=0, exact=True)
    window = _Window.of(offerings, migrations, start)
    grid, exact = window.grid(end_value, rounding, cell_limit)
    best, target, choice = solve_stages(
        window.layout.sets,
        slots_of(offerings, window.layout, elapsed_slots),
        grid,
        changes_of(programs, migrations, window.overheads),
        window.opening(grid),
    )
    return PlacedPlan(
        placements=window.trace(grid, int(target), choice), utility_micro_usd=int(best), exact=exact
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Window:
    """A window laid out: `entered_s` and `egress` are of entering each set from the start."""

    offerings: Sequence[OfferingWindow]
    migrations: MigrationTable
    start: PlacedProgress
    layout: WindowLayout
    overheads: WindowOverheads
    entered_s: list[int]
    egress_micro_usd: IntArray

    @classmethod
    def of(
        cls, offerings: Sequence[OfferingWindow], migrations: MigrationTable, start: PlacedProgress
    ) -> _Window:
        layout = layout_of(offerings)
        programs = [here.program for here in offerings]
        egress, entered_s = opening_of(offerings, migrations, start, layout)
        bases = bases_of(programs, migrations)
        return cls(
            offerings=offerings,
            migrations=migrations,
            start=start,
            layout=layout,
            overheads=WindowOverheads.of(bases, entered_s, programs[0].slot_s),
            entered_s=entered_s,
            egress_micro_usd=egress,
        )

    def grid(
        self, end_value: EndValue, rounding: Rounding, cell_limit: int
    ) -> tuple[ProgressGrid, bool]:
        """The progress grid, and whether every gain falls on it."""
        programs = [here.program for here in self.offerings]
        slots, productive = len(self.offerings[0].market), self.overheads.productive
        left = programs[0].work_quanta - self.start.progress_quanta
        rates = sorted({int(rate) for rate in self.layout.rate})
        states = slots * self.layout.sources * len(self.overheads.levels)
        cell, exact = _cell_quanta(
            [rate * second for rate in rates for second in productive],
            min(left, slots * max(rates) * max(productive)),
            max(2, min(cell_limit, _STATE_LIMIT // states)),
        )
        up = 0 if rounding is Rounding.DOWN else cell - 1
        gains = np.array([[(r * s + up) // cell for r in self.layout.rate] for s in productive])
        done = -(-left // cell)
        quanta = np.arange(min(done, slots * int(gains.max()) + 1), dtype=np.int64) * cell
        terminal = terminal_values(programs, self.start.progress_quanta + quanta, end_value)
        return ProgressGrid(gain_cells=gains, terminal=terminal, done=done), exact

    def opening(self, grid: ProgressGrid) -> Opening:
        """The first slot."""
        gains = [grid.gain_cells[self.overheads.row(s), c] for c, s in enumerate(self.entered_s)]
        return Opening(
            gain_cells=np.array(gains, dtype=np.int64),
            level=np.array([self.overheads.level(s) for s in self.entered_s], dtype=np.int64),
            egress_micro_usd=self.egress_micro_usd,
            home=self.start.home,
        )

    def trace(
        self, grid: ProgressGrid, target: int, choice: npt.NDArray[np.int16]
    ) -> tuple[PlacedHolding, ...]:
        """Follow the choices forward on the grid; `target` is that of the first slot."""
        programs = [here.program for here in self.offerings]
        markets = [here.market for here in self.offerings]
        placements = [NOT_PLACED] * len(markets[0])
        state = self.start
        cell = 0
        for slot in range(len(placements)):
            if slot:
                level = self.overheads.levels.index(state.pending_overhead_s)
                target = int(choice[slot, cell, target, level])
            after = NOT_PLACED if target >= self.layout.size else self.layout.placement(target)
            placements[slot] = after
            broken = is_interrupted(markets, state, slot)
            change_s = placement_overhead_s(
                programs, self.migrations, state, after, interrupted=broken
            )
            overhead_s = max(change_s, state.pending_overhead_s)
            state = advance_placed(
                programs,
                self.migrations,
                state,
                after,
                held_s=programs[0].slot_s,
                interrupted=broken,
            )
            if after.offering != NOWHERE:
                cell += int(grid.gain_cells[self.overheads.row(overhead_s), target])
                if cell >= grid.done:
                    break
        return tuple(placements)


def _cell_quanta(gains: Sequence[int], reach: int, cell_limit: int) -> tuple[int, bool]:
    """The grid step in quanta, and whether every gain falls on it."""
    exact = math.gcd(*gains)
    if exact == 0:
        return max(1, reach), True
    if reach <= exact * cell_limit:
        return exact, True
    return -(-reach // cell_limit), False


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
