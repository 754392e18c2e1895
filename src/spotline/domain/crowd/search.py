"""Choosing one option per job: exactly where work allows, else greedily and by exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.domain.crowd.exchanges import MOST_EXCHANGES, improve
from spotline.domain.crowd.one_resource import best_by_counts
from spotline.domain.crowd.program import IntArray, SlotPart
from spotline.domain.crowd.relaxation import Relaxed, relax

# Cells times options of the dynamic program over one resource.
_MOST_CELLS = 20_000_000
# Rows that CP-SAT is given after those are left out that cannot be in anything better.
_MOST_ROWS = 4_000
# CP-SAT's own count of work, in which a second is about one of a machine.
MOST_WORK = 0.5
# Where a slot must not wait: in what was seen, nearly all that is ever found is found by then.
BRIEF_WORK = 0.05
_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCleared:
    """A row per job of a part, what they are worth, the bound on it, and prices by resource."""

    rows: tuple[int, ...]
    worth: int
    bound: int
    prices: IntArray


def load_solvers() -> None:
    """Import OR-Tools and load what is compiled, before the first slot that couples several things.

    Together they take a second and more: a service does so before anything waits for it.
    """
    from ortools.linear_solver import pywraplp  # noqa: F401
    from ortools.sat.python import cp_model  # noqa: F401

    nothing = np.zeros((1, 1), dtype=np.int64)
    improve(nothing, nothing[0], nothing[0], nothing[0], nothing[0].copy(), 1)
    best_by_counts(nothing[0], nothing[0], np.array((0, 1), dtype=np.int64), 0)


def clear_part(part: SlotPart, served: Sequence[int], *, work: float = MOST_WORK) -> PartCleared:
    """Choose the rows of greatest worth, never worth less than those `served` in order.

    Parameters
    ----------
    work
        CP-SAT's bound on its own count of work; with 0 only exchanges are tried.
    """
    relaxed = relax(part)
    cells = (int(part.limits[0]) + 1) * len(part.values)
    if len(part.resources) == 1 and cells <= _MOST_CELLS:
        rows = _by_counts(part)
        worth = part.worth(rows)
        return PartCleared(rows=rows, worth=worth, bound=worth, prices=relaxed.prices)
    fitted = _fitted(part, relaxed.leaning)
    found = [] if fitted is None else [_improved(part, fitted)]
    found.append(_improved(part, tuple(served)))
    best = max(found, key=part.worth)
    bound = relaxed.bound
    if part.worth(best) < bound and work:
        best, bound = _searched(part, relaxed, best, work)
    return PartCleared(
        rows=best, worth=part.worth(best), bound=max(bound, part.worth(best)), prices=relaxed.prices
    )


def _by_counts(part: SlotPart) -> tuple[int, ...]:
    """The optimum over one resource, by dynamic programming over how much of it is taken."""
    takes = np.ascontiguousarray(part.takes[:, 0])
    rows = best_by_counts(takes, part.values, part.starts, int(part.limits[0]))
    return tuple(rows.tolist())


# --- by exchanges -----------------------------------------------------------------------------


def _owner(part: SlotPart) -> IntArray:
    return np.repeat(np.arange(len(part.jobs), dtype=np.int64), np.diff(part.starts))


def _fitted(part: SlotPart, rows: Sequence[int]) -> tuple[int, ...] | None:
    """Rows that fit, from some that need not: cut where that costs least for what it frees.

    None where nothing can be cut: jobs may only be safe with one scarce thing or with another.
    """
    owner = _owner(part)
    chosen = np.array(rows, dtype=np.int64)
    in_vain = 0
    while True:
        over = np.maximum(part.takes[chosen].sum(axis=0) - part.limits, 0)
        if not over.any():
            return tuple(int(row) for row in chosen)
        now = chosen[owner]
        freed = np.clip(part.takes[now] - part.takes, None, over)
        # What is freed counts by its share of what is over: budgets are larger than counts.
        relief = (freed / np.maximum(over, 1)).sum(axis=1)
        grows = (part.takes > part.takes[now]).any(axis=1)
        loss = (part.values[now] - part.values).astype(np.float64)
        rate = np.where((relief > 0) & ~grows, loss / np.maximum(relief, 1e-12), np.inf)
        row = int(np.argmin(rate))
        if np.isinf(rate[row]):
            # No cut frees anything. The first row is taken then, as logs of before have it.
            in_vain += 1
            if chosen[owner[row]] == row or in_vain > len(part.values):
                return None
        chosen[owner[row]] = row


def _improved(part: SlotPart, rows: tuple[int, ...]) -> tuple[int, ...]:
    """Rows that fit, made better: one job more at a time, or one more and another less."""
    chosen = np.array(rows, dtype=np.int64)
    rounds = MOST_EXCHANGES + 4 * len(part.jobs)
    improve(part.takes, part.values, _owner(part), part.limits, chosen, rounds)
    return tuple(chosen.tolist())


# --- by integer programming -------------------------------------------------------------------


def _searched(
    part: SlotPart, relaxed: Relaxed, best: tuple[int, ...], work: float
) -> tuple[tuple[int, ...], int]:
    """The optimum among rows that could be in anything better, if CP-SAT finds it in time."""
    worth = part.worth(best)
    reduced = part.values - part.takes @ relaxed.prices
    most = np.maximum.reduceat(reduced, part.starts[:-1])[_owner(part)]
    # A row that costs more than the gap, at the prices, is in no better clearing.
    kept = most - reduced <= relaxed.bound - worth
    kept[list(best)] = True
    if int(kept.sum()) > _MOST_ROWS:
        return best, relaxed.bound
    return _solve(part, np.flatnonzero(kept), best, relaxed.bound, work)


def _solve(
    part: SlotPart, kept: IntArray, best: tuple[int, ...], bound: int, work: float
) -> tuple[tuple[int, ...], int]:
    # cp_model costs almost a second to import, and few slots need it.
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    # Plain lists: numbers are taken out of them one by one.
    owner, values, takes = _owner(part).tolist(), part.values.tolist(), part.takes.tolist()
    picks = {row: model.new_bool_var("") for row in kept.tolist()}
    of_job: dict[int, list[int]] = {}
    for row in picks:
        of_job.setdefault(owner[row], []).append(row)
    for rows in of_job.values():
        model.add_exactly_one(picks[row] for row in rows)
    for at, limit in enumerate(part.limits.tolist()):
        taken = [(row, takes[row][at]) for row in picks if takes[row][at]]
        if taken:
            model.add(sum(amount * picks[row] for row, amount in taken) <= limit)
    hinted = set(best)
    for row, pick in picks.items():
        model.add_hint(pick, int(row in hinted))
    # Differences only: the sum of whole lives may be larger than the solver counts in.
    base = {job: min(values[row] for row in rows) for job, rows in of_job.items()}
    total = sum((values[row] - base[owner[row]]) * pick for row, pick in picks.items())
    least = sum(base.values())
    model.add(total >= part.worth(best) - least)
    model.maximize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return best, bound
    found = tuple(
        next(row for row in of_job[job] if solver.value(picks[row]))
        for job in range(len(part.jobs))
    )
    better = max(best, found, key=part.worth)
    if status == cp_model.OPTIMAL:
        return better, part.worth(better)
    return better, min(bound, least + int(solver.best_objective_bound))
