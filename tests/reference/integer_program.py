"""The window program once more, as an integer program: an independent reference.

CP-SAT sees transitions between held sets as a flow, so it shares nothing with the dynamic program
but the accounting. It is slower by orders of magnitude and is used to check, not to decide. Left
out is overhead that lasts longer than a slot: it would be carried into the next.
"""

from __future__ import annotations

import math
from typing import Any

from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, overhead_s
from spotline.domain.solvers.configurations import Configurations
from spotline.domain.solvers.coupled_jobs import Unsolved
from spotline.domain.solvers.window import WindowMarket, WindowPlan
from spotline.domain.units import cost_micro_usd

_SEED = 1


def solve_window_cp(
    program: JobProgram,
    configs: Configurations,
    market: WindowMarket,
    start: JobProgress,
    elapsed_slots: int,
    *,
    max_deterministic_time: float = 30.0,
) -> WindowPlan | Unsolved:
    """Find the schedule of greatest value less cost over a window, as `solve_window` does.

    Unfinished work is worth nothing at the window's end (`end_value=None` there). Among equal
    schedules any may be returned: compare utilities, not holdings.

    Parameters
    ----------
    program, configs, market, start, elapsed_slots
        As in `solve_window`.
    max_deterministic_time
        Bound on CP-SAT's own count of work, not on seconds; equal inputs end alike.

    Returns
    -------
    WindowPlan
        Proven optimal.
    Unsolved
        An overhead is longer than the slot, or the bound was reached. A value, not an error.
    """
    # cp_model costs almost a second to import, and few who import this module solve.
    from ortools.sat.python import cp_model

    slots = len(market)
    left = program.work_quanta - start.progress_quanta
    if left <= 0 or slots == 0:
        return WindowPlan(holdings=(IDLE,) * slots, utility_micro_usd=0, exact=True)
    longest_s = max(
        program.launch_s, program.grow_s, program.interrupted_s, start.pending_overhead_s
    )
    if longest_s > program.slot_s:
        return Unsolved(
            reason=f"overheads must be <= the slot ({program.slot_s} s), one was {longest_s} s"
        )
    model = cp_model.CpModel()
    chosen, gains = _add_flow(model, program, configs, market, start, elapsed_slots)
    finished = _add_progress(model, gains, left)
    model.maximize(
        _value(program, finished, elapsed_slots) - _cost(program, configs, market, chosen)
    )

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = max_deterministic_time
    # Progress couples all slots through large coefficients: the full linear relaxation pays.
    solver.parameters.linearization_level = 2
    status = solver.solve(model)
    if status != cp_model.OPTIMAL:
        bound = math.floor(solver.best_objective_bound) if status == cp_model.FEASIBLE else None
        return Unsolved(
            reason=f"not proven within {max_deterministic_time:g} units of work",
            upper_utility_micro_usd=bound,
        )
    holdings = []
    done = False
    for slot in range(slots):
        index = next(c for c, x in enumerate(chosen[slot]) if solver.value(x))
        holdings.append(IDLE if done else configs.holdings[index])
        done = bool(solver.value(finished[slot]))
    return WindowPlan(
        holdings=tuple(holdings),
        utility_micro_usd=round(solver.objective_value),
        exact=True,
    )


def _add_flow(
    model: Any,
    program: JobProgram,
    configs: Configurations,
    market: WindowMarket,
    start: JobProgress,
    elapsed_slots: int,
) -> tuple[list[list[Any]], list[list[tuple[int, Any]]]]:
    """One held set per slot; returns who holds what, and per slot (quanta gained, if this)."""
    forced = Holding(on_demand=program.max_instances)
    chosen: list[list[Any]] = []
    gains: list[list[tuple[int, Any]]] = []
    for slot in range(len(market)):
        row = [model.new_bool_var(f"x{slot}_{c}") for c in range(len(configs.holdings))]
        model.add_exactly_one(row)
        late = elapsed_slots + slot >= program.deadline_slots
        for holding, x in zip(configs.holdings, row, strict=True):
            scarce = (
                holding.spot > market.spot_available[slot]
                or holding.on_demand > market.on_demand_available[slot]
            )
            if scarce or (late and holding not in (IDLE, forced)):
                model.add(x == 0)
        spot_left = int(market.spot_available[slot])
        gained: list[tuple[int, Any]] = []
        if slot == 0:
            pending_s = start.pending_overhead_s
            for holding, x in zip(configs.holdings, row, strict=True):
                gained.append((_gain(program, start.holding, holding, spot_left, pending_s), x))
        else:
            into: list[list[Any]] = [[] for _ in row]
            for p, before in enumerate(configs.holdings):
                out = []
                for c, after in enumerate(configs.holdings):
                    move = model.new_bool_var(f"y{slot}_{p}_{c}")
                    out.append(move)
                    into[c].append(move)
                    gained.append((_gain(program, before, after, spot_left, 0), move))
                model.add(sum(out) == chosen[slot - 1][p])
            for c, moves in enumerate(into):
                model.add(sum(moves) == row[c])
        chosen.append(row)
        gains.append(gained)
    return chosen, gains


def _gain(
    program: JobProgram, before: Holding, after: Holding, spot_left: int, pending_s: int
) -> int:
    lost_s = overhead_s(program, before, after, interrupted=before.spot > spot_left)
    productive_s = max(0, program.slot_s - max(lost_s, pending_s))
    return program.rate_quanta_per_s[after.instances] * productive_s


def _add_progress(model: Any, gains: list[list[tuple[int, Any]]], left: int) -> list[Any]:
    """Booleans that the job is done by the end of each slot."""
    # All gains are multiples of their greatest common divisor: exact, and far smaller numbers.
    unit = math.gcd(*(gain for slot in gains for gain, _ in slot)) or 1
    needed = -(-left // unit)
    finished: list[Any] = []
    progress: Any = 0
    for slot, gained in enumerate(gains):
        progress = progress + sum(gain // unit * x for gain, x in gained if gain)
        done = model.new_bool_var(f"f{slot}")
        model.add(progress >= needed).only_enforce_if(done)
        if finished:
            model.add_implication(finished[-1], done)
        finished.append(done)
    return finished


def _value(program: JobProgram, finished: list[Any], elapsed_slots: int) -> Any:
    """Value of the slot in which the job is done; values never rise, so the first one counts."""
    total: Any = 0
    before: Any = 0
    for slot, done in enumerate(finished):
        number = elapsed_slots + slot + 1
        if number <= program.end_slots:
            total = total + program.value_micro_usd[number] * (done - before)
        before = done
    return total


def _cost(
    program: JobProgram, configs: Configurations, market: WindowMarket, chosen: list[list[Any]]
) -> Any:
    total: Any = 0
    for slot, row in enumerate(chosen):
        for holding, x in zip(configs.holdings, row, strict=True):
            cost = cost_micro_usd(
                int(market.spot_price[slot]), holding.spot, program.slot_s
            ) + cost_micro_usd(int(market.on_demand_price[slot]), holding.on_demand, program.slot_s)
            total = total + cost * x
    return total
