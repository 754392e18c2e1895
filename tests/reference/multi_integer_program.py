"""The window program over several offerings as an integer program: an independent reference.

A job's possible states (home, held set, pending overhead) form a layer per slot; CP-SAT picks a
path through them. The layers are laid out by `advance_placed` alone, so this shares only the
accounting with the dynamic program; overhead longer than a slot is a state like any other. It is
slower by orders of magnitude and is used to check, not to decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    MigrationTable,
    PlacedHolding,
    PlacedProgress,
    advance_placed,
    move_cost_micro_usd,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.solvers.configurations import Configurations
from spotline.domain.solvers.coupled_jobs import Unsolved
from spotline.domain.solvers.multi_window import PlacedPlan
from spotline.domain.solvers.placed_schedules import (
    check_programs,
    execute_placed,
    is_interrupted,
    placement_cost_micro_usd,
)
from spotline.domain.solvers.window import WindowMarket

_SEED = 1
# Steps from state to state over the whole window; CP-SAT proves little beyond.
_STEP_LIMIT = 200_000


@dataclass(frozen=True, slots=True)
class _Step:
    """One way from a state to the next: what is held, what it costs and gains."""

    after: PlacedHolding
    cost_micro_usd: int
    gained_quanta: int
    used: Any


@dataclass(slots=True)
class _Layer:
    """All steps of one slot, and by state reached those that lead there."""

    steps: list[_Step] = field(default_factory=list)
    into: dict[PlacedProgress, list[Any]] = field(default_factory=dict)


def solve_multi_window_cp(
    programs: Sequence[JobProgram],
    configs: Sequence[Configurations],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    *,
    elapsed_slots: int,
    max_deterministic_time: float = 30.0,
) -> PlacedPlan | Unsolved:
    """Find the schedule of greatest value less cost, as `solve_multi_window` does.

    Unfinished work is worth nothing at the window's end. Among equal schedules any may be
    returned: compare utilities, not placements.

    Parameters
    ----------
    programs, configs, markets, migrations, start, elapsed_slots
        As in `solve_multi_window`.
    max_deterministic_time
        Bound on CP-SAT's own count of work, not on seconds; equal inputs end alike.

    Returns
    -------
    PlacedPlan
        Proven optimal.
    Unsolved
        The program would be too large, or the bound was reached. A value, not an error.
    """
    # cp_model costs almost a second to import, and few who import this module solve.
    from ortools.sat.python import cp_model

    check_programs(programs)
    slots = len(markets[0])
    first = programs[0]
    left = first.work_quanta - start.progress_quanta
    if left <= 0 or slots == 0:
        return PlacedPlan(placements=(NOT_PLACED,) * slots, utility_micro_usd=0, exact=True)
    model = cp_model.CpModel()
    layers = _layers(model, programs, configs, markets, migrations, start, elapsed_slots)
    if layers is None:
        return Unsolved(reason=f"more than {_STEP_LIMIT} steps between states")
    finished = _progress(model, layers, left)
    value: Any = 0
    before: Any = 0
    for slot, done in enumerate(finished):
        number = elapsed_slots + slot + 1
        if number <= first.end_slots:
            value = value + first.value_micro_usd[number] * (done - before)
        before = done
    cost = sum(s.cost_micro_usd * s.used for layer in layers for s in layer.steps)
    model.maximize(value - cost)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = max_deterministic_time
    solver.parameters.linearization_level = 2
    status = solver.solve(model)
    if status != cp_model.OPTIMAL:
        bound = math.floor(solver.best_objective_bound) if status == cp_model.FEASIBLE else None
        return Unsolved(
            reason=f"not proven within {max_deterministic_time:g} units of work",
            upper_utility_micro_usd=bound,
        )
    placements = []
    done = False
    for layer, finishes in zip(layers, finished, strict=True):
        after = next(step.after for step in layer.steps if solver.value(step.used))
        placements.append(NOT_PLACED if done else after)
        done = bool(solver.value(finishes))
    earned = execute_placed(
        programs, markets, migrations, start, placements, elapsed_slots=elapsed_slots
    )
    return PlacedPlan(
        placements=tuple(placements), utility_micro_usd=earned.utility_micro_usd, exact=True
    )


def _layers(
    model: Any,
    programs: Sequence[JobProgram],
    configs: Sequence[Configurations],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    elapsed_slots: int,
) -> list[_Layer] | None:
    """Every state that can be reached, slot by slot, tied into one path."""
    slot_s = programs[0].slot_s
    # Progress is counted apart: without it few states are left.
    opening = replace(start, progress_quanta=0)
    reached: dict[PlacedProgress, Any] = {opening: 1}
    layers: list[_Layer] = []
    total = 0
    for slot in range(len(markets[0])):
        late = elapsed_slots + slot >= programs[0].deadline_slots
        options = _options(programs, configs, markets, slot, late=late)
        layer = _Layer()
        total += len(reached) * len(options)
        if total > _STEP_LIMIT:
            return None
        for state, here in reached.items():
            broken = is_interrupted(markets, state, slot)
            out = []
            for after in options:
                then = advance_placed(
                    programs, migrations, state, after, held_s=slot_s, interrupted=broken
                )
                gained = _gained(programs, migrations, state, after, interrupted=broken)
                used = model.new_bool_var("")
                cost = placement_cost_micro_usd(programs, markets, after, slot)
                cost += move_cost_micro_usd(migrations, state, after)
                layer.steps.append(_Step(after, cost, gained, used))
                layer.into.setdefault(replace(then, progress_quanta=0), []).append(used)
                out.append(used)
            model.add(sum(out) == here)
        layers.append(layer)
        reached = {}
        for state, arriving in layer.into.items():
            there = model.new_bool_var("")
            model.add(sum(arriving) == there)
            reached[state] = there
    return layers


def _options(
    programs: Sequence[JobProgram],
    configs: Sequence[Configurations],
    markets: Sequence[WindowMarket],
    slot: int,
    *,
    late: bool,
) -> list[PlacedHolding]:
    options = [NOT_PLACED]
    for k, (program, sets, market) in enumerate(zip(programs, configs, markets, strict=True)):
        for held in sets.holdings:
            scarce = (
                held.spot > market.spot_available[slot]
                or held.on_demand > market.on_demand_available[slot]
            )
            rescue = held == Holding(on_demand=program.max_instances)
            if held.instances and not scarce and (rescue or not late):
                options.append(PlacedHolding(offering=k, holding=held))
    return options


def _gained(
    programs: Sequence[JobProgram],
    migrations: MigrationTable,
    state: PlacedProgress,
    after: PlacedHolding,
    *,
    interrupted: bool,
) -> int:
    """Quanta gained in one slot, before the cap at the job's work."""
    # The cap would hide part of a gain from a job that has almost no work.
    endless = [replace(one, work_quanta=2**62) for one in programs]
    then = advance_placed(
        endless, migrations, state, after, held_s=programs[0].slot_s, interrupted=interrupted
    )
    return then.progress_quanta - state.progress_quanta


def _progress(model: Any, layers: list[_Layer], left: int) -> list[Any]:
    """Booleans that the job is done by the end of each slot."""
    unit = math.gcd(*(step.gained_quanta for layer in layers for step in layer.steps)) or 1
    needed = -(-left // unit)
    finished: list[Any] = []
    progress: Any = 0
    for layer in layers:
        progress = progress + sum(
            step.gained_quanta // unit * step.used for step in layer.steps if step.gained_quanta
        )
        done = model.new_bool_var("")
        model.add(progress >= needed).only_enforce_if(done)
        if finished:
            model.add_implication(finished[-1], done)
        finished.append(done)
    return finished
