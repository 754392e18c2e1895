"""The scheduling round of Sia (SOSP'23): one configuration per job, as an integer program.

Written from the formulas in `../shared/reference/configuration-knowledge.md`:
minimise ``sum x_ij (r_i G_ij)^p + 1.1 sum_i (1 - sum_j x_ij) + 0.01 sum |x - x_prev|`` with binary
x, at most one configuration per job and the GPUs of every type not exceeded; p = -0.5.

How it is solved: prices per GPU type come from the Lagrangian dual (cutting planes, GLOP on a few
variables), which also bounds the optimum; configurations whose reduced gain is worse than the
distance between that bound and a known solution cannot be in a better one, so SCIP proves the
optimum on the few that are left. Exact, and three orders of magnitude smaller than the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

RESTART_S = 30.0
FAIRNESS_POWER = -0.5
UNALLOCATED_COST = 1.1
SWITCHING_COST = 0.01
NOTHING = -1

_MAX_CUTS = 400
_DUAL_TOLERANCE = 1e-9
_FIRST_COLUMNS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaConfiguration:
    """GPUs of one type that a job may hold: a power of two inside a node, or whole nodes."""

    gpu_type: str
    gpus: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaJob:
    """A job at the start of a round.

    `goodput` is per configuration, in any one unit, 0 where the job cannot run so; `current` is
    the configuration that it holds, `NOTHING` where it waits. `age_s` counts from submission,
    `restarts` every start after the first.
    """

    goodput: tuple[float, ...]
    current: int = NOTHING
    age_s: float = 0.0
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaRound:
    """Who holds what: `chosen` per job, `NOTHING` for those who wait.

    `objective` is of the program above; `bound` is proven to be no more than the least possible.
    """

    chosen: tuple[int, ...]
    objective: float
    bound: float
    optimal: bool

    @property
    def gap(self) -> float:
        """How far above the bound it is, as a share of the objective; 0 where it is optimal."""
        if self.optimal:
            return 0.0
        return max(self.objective - self.bound, 0.0) / max(abs(self.objective), 1e-12)


def allowed_configurations(
    gpu_type: str, *, gpus_per_node: int, nodes: int
) -> tuple[SiaConfiguration, ...]:
    """All configurations of a GPU type, by rising size: powers of two, then whole nodes.

    Raises
    ------
    ValueError
        A count is not positive.
    """
    if gpus_per_node < 1 or nodes < 1:
        raise ValueError(f"gpus_per_node and nodes must be >= 1, were {gpus_per_node} and {nodes}")
    sizes = []
    size = 1
    while size < gpus_per_node:
        sizes.append((size, 1))
        size *= 2
    sizes += [(gpus_per_node * count, count) for count in range(1, nodes + 1)]
    return tuple(
        SiaConfiguration(gpu_type=gpu_type, gpus=gpus, nodes=count) for gpus, count in sizes
    )


def restart_factor(age_s: float, restarts: int, restart_s: float = RESTART_S) -> float:
    """Share of its goodput that a job can expect of a change, in 0..1.

    Parameters
    ----------
    age_s
        Time since submission.
    restarts
        Starts after the first so far.
    """
    return max(age_s - restarts * restart_s, 0.0) / (age_s + restart_s)


def round_costs(
    jobs: Sequence[SiaJob], *, restart_s: float = RESTART_S
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Objective terms of every choice.

    Returns
    -------
    tuple
        Cost of every configuration, shape (jobs, configurations), infinite where it is not
        allowed; and of holding nothing, shape (jobs,).

    Notes
    -----
    The restart factor multiplies configurations other than the current one, so it concerns jobs
    that hold one; a waiting job restarts nothing. A factor of 0 makes (r G)^p infinite: the job
    keeps what it holds, or loses it. A change of configuration counts two switches.
    """
    goodput = np.array([job.goodput for job in jobs], dtype=np.float64)
    possible = goodput > 0
    least = np.where(possible, goodput, np.inf).min(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        normal = np.where(possible, goodput / least, 0.0)
    current = np.array([job.current for job in jobs])
    holds = current != NOTHING
    factor = np.array(
        [
            restart_factor(job.age_s, job.restarts, restart_s) if job.current != NOTHING else 1.0
            for job in jobs
        ]
    )
    held = np.zeros_like(possible)
    held[np.flatnonzero(holds), current[holds]] = True
    scaled = np.where(held, normal, normal * factor[:, None])
    costs = np.full(scaled.shape, np.inf)
    allowed = scaled > 0
    costs[allowed] = scaled[allowed] ** FAIRNESS_POWER
    switches = np.where(held, 0.0, 1.0 + holds[:, None])
    return costs + SWITCHING_COST * switches, UNALLOCATED_COST + SWITCHING_COST * holds


def solve_round(
    configurations: Sequence[SiaConfiguration],
    capacity: Mapping[str, int],
    jobs: Sequence[SiaJob],
    *,
    restart_s: float = RESTART_S,
    max_nodes: int = 20_000,
) -> SiaRound:
    """Choose a configuration, or nothing, for every job.

    Parameters
    ----------
    configurations
        What the indices in `jobs` mean.
    capacity
        GPUs per type.
    max_nodes
        Bound on the branching nodes of SCIP, not on seconds; equal inputs end alike.

    Returns
    -------
    SiaRound
        Optimal unless the bound on work was reached; then the gap is stated.

    Raises
    ------
    ValueError
        A job's goodputs are not one per configuration, or its `current` is none of them.
    """
    if not jobs:
        return SiaRound(chosen=(), objective=0.0, bound=0.0, optimal=True)
    _check(configurations, jobs)
    types = sorted({one.gpu_type for one in configurations})
    use = np.zeros((len(types), len(configurations)))
    for index, one in enumerate(configurations):
        use[types.index(one.gpu_type), index] = one.gpus
    limits = np.array([float(capacity.get(name, 0)) for name in types])
    costs, idle = round_costs(jobs, restart_s=restart_s)
    gains = idle[:, None] - costs
    # What gains nothing, or is larger than the cluster, is never chosen.
    gains[:, (use > limits[:, None]).any(axis=0)] = -np.inf
    gains[gains <= 0] = -np.inf

    prices, upper = _prices(gains, use, limits)
    chosen, value, upper, optimal = _choose(gains, use, limits, prices, upper, max_nodes)
    total = float(idle.sum())
    return SiaRound(
        chosen=tuple(int(one) for one in chosen),
        objective=total - value,
        bound=total - max(upper, value),
        optimal=optimal,
    )


def _check(configurations: Sequence[SiaConfiguration], jobs: Sequence[SiaJob]) -> None:
    for place, job in enumerate(jobs):
        if len(job.goodput) != len(configurations):
            raise ValueError(
                f"goodput of job {place} must have {len(configurations)} entries, "
                f"had {len(job.goodput)}"
            )
        if not NOTHING <= job.current < len(configurations):
            raise ValueError(
                f"current of job {place} must be NOTHING or < {len(configurations)}, "
                f"was {job.current}"
            )


def _prices(
    gains: npt.NDArray[np.float64],
    use: npt.NDArray[np.float64],
    limits: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], float]:
    """Least Lagrangian bound over prices per GPU: cutting planes; returns prices and bound."""
    from ortools.linear_solver import pywraplp

    best_prices = np.zeros(len(limits))
    best, slope = _dual(gains, use, limits, best_prices)
    if best <= 0 or (slope >= 0).all():
        return best_prices, best
    finite = np.isfinite(gains)
    ceiling = float((gains[finite]).max()) + 1.0
    solver = pywraplp.Solver.CreateSolver("GLOP")
    price = [solver.NumVar(0.0, ceiling, "") for _ in limits]
    least = solver.NumVar(0.0, best, "")
    solver.Minimize(least)
    at, value = best_prices, best
    for _ in range(_MAX_CUTS):
        constant = value - float(slope @ at)
        cut = solver.Constraint(constant, solver.infinity())
        cut.SetCoefficient(least, 1.0)
        for variable, gradient in zip(price, slope, strict=True):
            cut.SetCoefficient(variable, -float(gradient))
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            break
        at = np.array([max(variable.solution_value(), 0.0) for variable in price])
        promised = least.solution_value()
        value, slope = _dual(gains, use, limits, at)
        if value < best:
            best, best_prices = value, at
        if best - promised <= _DUAL_TOLERANCE * max(1.0, abs(best)):
            break
    return best_prices, best


def _dual(
    gains: npt.NDArray[np.float64],
    use: npt.NDArray[np.float64],
    limits: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64],
) -> tuple[float, npt.NDArray[np.float64]]:
    """The Lagrangian bound at these prices, and a subgradient."""
    reduced = gains - prices @ use
    choice = reduced.argmax(axis=1)
    top = reduced[np.arange(len(choice)), choice]
    taken = top > 0
    slope = limits - use[:, choice[taken]].sum(axis=1)
    return float(top[taken].sum() + prices @ limits), slope


def _choose(
    gains: npt.NDArray[np.float64],
    use: npt.NDArray[np.float64],
    limits: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64],
    upper: float,
    max_nodes: int,
) -> tuple[npt.NDArray[np.int64], float, float, bool]:
    """Solve on the columns near the prices, then on all that may improve; value, bound, proven."""
    reduced = gains - prices @ use
    top = np.maximum(reduced.max(axis=1), 0.0)
    loss = top[:, None] - reduced  # what the bound falls by if this column is chosen
    at_prices = np.where(top > 0, reduced.argmax(axis=1), NOTHING)
    taken = at_prices[at_prices != NOTHING]
    if (use[:, taken].sum(axis=1) <= limits).all():
        value = float(gains[at_prices != NOTHING, taken].sum())
        if upper - value <= _DUAL_TOLERANCE * max(1.0, upper):
            return at_prices, value, value, True
    finite = np.sort(loss[np.isfinite(loss)])
    extent = len(gains) + _FIRST_COLUMNS
    near = float(finite[extent - 1]) if len(finite) > extent else np.inf
    chosen, value, proven = _restricted(gains, use, limits, loss, top, near, max_nodes)
    if upper - value > near:
        near = upper - value
        chosen, value, proven = _restricted(gains, use, limits, loss, top, near, max_nodes)
    if value < 0:  # not even found within the bound on work: nothing for anybody is feasible
        return np.full(len(gains), NOTHING, dtype=np.int64), 0.0, upper, False
    return chosen, value, value if proven else upper, proven


def _restricted(
    gains: npt.NDArray[np.float64],
    use: npt.NDArray[np.float64],
    limits: npt.NDArray[np.float64],
    loss: npt.NDArray[np.float64],
    top: npt.NDArray[np.float64],
    near: float,
    max_nodes: int,
) -> tuple[npt.NDArray[np.int64], float, bool]:
    """The program with only the columns that cost the bound no more than `near`."""
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("SCIP")
    capacities = [solver.Constraint(0.0, float(limit)) for limit in limits]
    objective = solver.Objective()
    objective.SetMaximization()
    columns: list[tuple[int, int, pywraplp.Variable]] = []
    slack = near * (1 + 1e-9) + 1e-9
    usable = np.isfinite(gains) & (loss <= slack)
    for job, allowed in enumerate(usable):
        # Where idling costs the bound more than `near`, it is out like any column as bad.
        row = solver.Constraint(1.0 if top[job] > slack else 0.0, 1.0)
        for index in np.flatnonzero(allowed):
            x = solver.BoolVar("")
            row.SetCoefficient(x, 1.0)
            objective.SetCoefficient(x, float(gains[job, index]))
            for capacity, amounts in zip(capacities, use, strict=True):
                if amounts[index]:
                    capacity.SetCoefficient(x, float(amounts[index]))
            columns.append((job, int(index), x))
    solver.SetSolverSpecificParametersAsString(f"limits/nodes = {max_nodes}\n")
    status = solver.Solve(_exactly())
    chosen = np.full(len(gains), NOTHING, dtype=np.int64)
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        return chosen, -np.inf, False
    value = 0.0
    for place, column, x in columns:
        if x.solution_value() > 0.5:
            chosen[place] = column
            value += float(gains[place, column])
    return chosen, value, status == pywraplp.Solver.OPTIMAL


def _exactly() -> Any:
    from ortools.linear_solver import pywraplp

    parameters = pywraplp.MPSolverParameters()
    parameters.SetDoubleParam(parameters.RELATIVE_MIP_GAP, 0.0)
    return parameters
