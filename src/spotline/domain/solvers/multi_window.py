"""The window program of a job that holds one of several offerings at a time, and may move.

The same exact dynamic program as `window`, over (progress, home offering and held set, pending
overhead): progress on a grid of the greatest common divisor of all gains, rounded down or up where
that grid is too fine. What moving costs is `jobs.migration`'s, the one accounting; `execute_placed`
runs a schedule through it, so what a plan promises is what executing it earns.

All sets that a job can enter with the same overhead share one maximum per offering, so a stage
costs O(cells * levels * (sets + offerings^2)) whatever the sets came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    MigrationTable,
    PlacedProgress,
    Placement,
    advance_placed,
    placement_overhead_s,
)
from spotline.domain.jobs.program import JobProgram
from spotline.domain.solvers.configurations import Configurations
from spotline.domain.solvers.multi_window_layout import (
    HeldSets,
    bases_of,
    cell_quanta,
    class_table,
    egress_of,
    entering_of,
    held_sets,
    opening_of,
    pending_levels,
    slot_tables,
)
from spotline.domain.solvers.multi_window_stages import solve_stages
from spotline.domain.solvers.placed_schedules import check_programs, is_interrupted
from spotline.domain.solvers.window import (
    CELL_LIMIT,
    IntArray,
    ProgressValue,
    Rounding,
    WindowMarket,
)

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
    layout = held_sets(programs, configs)
    bases = bases_of(programs, migrations)
    opening, opening_overheads = opening_of(programs, markets, migrations, start, layout)
    levels = pending_levels([*bases, *opening_overheads], first.slot_s)
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
    cell, exact = cell_quanta(rates, seconds, reach, most_cells)
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
    classes = class_table(bases, levels, seconds, first.slot_s)
    entering = entering_of(programs, migrations, bases)
    cost, usable = slot_tables(
        programs, markets, layout, free_slots=first.deadline_slots - elapsed_slots
    )
    dollars = egress_of(migrations, len(programs))
    opening_gain = np.zeros(layout.size, dtype=np.int64)
    opening_level = np.zeros(layout.size, dtype=np.int64)
    for c, overhead_s in enumerate(opening_overheads):
        opening_gain[c] = gain_cells[seconds.index(max(0, first.slot_s - overhead_s)), c]
        opening_level[c] = levels.index(max(0, overhead_s - first.slot_s))
    best, choice, first_choice = solve_stages(
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
        classes,
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


def _trace(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    layout: HeldSets,
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
