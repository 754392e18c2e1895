"""What scarce things are worth: the dual of a part's linear relaxation, in whole micro-USD.

Any prices >= 0 bound what a part can be worth: each job takes its best option at these prices, and
what there is is sold at them (Lagrangian duality). Those of the linear program (Dantzig and Wolfe's
master of the multiple choice) make the bound tightest; rounded to integers they still are a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spotline.domain.crowd.program import IntArray, SlotPart

# Simplex steps; a part of thousands of options takes some thousands.
_MOST_ITERATIONS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """Prices by resource, the bound that they prove, and the row that each job leans to."""

    prices: IntArray
    bound: int
    leaning: tuple[int, ...]


def relax(part: SlotPart) -> Relaxed:
    """Price what a part shares."""
    if len(part.resources) == 1:
        prices = np.array([_one_price(part)], dtype=np.int64)
        return Relaxed(
            prices=prices,
            bound=bound_at(part, prices),
            leaning=tuple(_best_rows(part, prices).tolist()),
        )
    shares, prices = _linear(part)
    return Relaxed(
        prices=prices, bound=bound_at(part, prices), leaning=tuple(_greatest(part, shares).tolist())
    )


def bound_at(part: SlotPart, prices: IntArray) -> int:
    """What a part is worth at most, by these prices per unit of each resource."""
    reduced = part.values - part.takes @ prices
    best = np.maximum.reduceat(reduced, part.starts[:-1])
    return int(best.sum()) + int((prices * part.limits).sum())


def _best_rows(part: SlotPart, prices: IntArray) -> IntArray:
    """Each job's best row at prices; ties go to the one that takes least."""
    return _greatest(part, part.values - part.takes @ prices)


def _greatest(part: SlotPart, figures: npt.NDArray[Any]) -> IntArray:
    """Each job's row of the greatest figure; ties go to the first."""
    starts = part.starts[:-1]
    most = np.maximum.reduceat(figures, starts)
    greatest = np.flatnonzero(figures == np.repeat(most, np.diff(part.starts)))
    rows: IntArray = greatest[np.searchsorted(greatest, starts)]
    return rows


def _one_price(part: SlotPart) -> int:
    """The least price at which no more is asked for than there is."""
    takes, limit = part.takes[:, 0], int(part.limits[0])

    def asked(price: int) -> int:
        rows = _best_rows(part, np.array([price], dtype=np.int64))
        return int(takes[rows].sum())

    low, high = 0, 1
    while asked(high) > limit:
        low, high = high, 2 * high
    if low == 0 and asked(0) <= limit:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        if asked(middle) > limit:
            low = middle
        else:
            high = middle
    # Next to it one more or one less is asked for; the better bound of the two is the dual.
    bounds = [bound_at(part, np.array([price], dtype=np.int64)) for price in (low, high)]
    return high if bounds[1] <= bounds[0] else low


def _linear(part: SlotPart) -> tuple[npt.NDArray[np.float64], IntArray]:
    """Solve the relaxation: share of each row, and prices of the resources.

    Without an optimum within the bound on work nothing has a price: still a bound, a loose one.
    """
    # OR-Tools costs half a second to import, and few slots couple several offerings.
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("GLOP")
    solver.SetNumThreads(1)
    solver.SetSolverSpecificParametersAsString(
        f"max_number_of_iterations: {_MOST_ITERATIONS} random_seed: 1"
    )
    # Scaled to dollars: simplex tolerances are absolute.
    scale = 1e-6
    limits = [solver.Constraint(0.0, float(limit)) for limit in part.limits]
    objective = solver.Objective()
    objective.SetMaximization()
    shares = []
    # Plain lists: to take numbers out of arrays one by one takes longer than the simplex.
    values, takes = part.values.tolist(), part.takes.tolist()
    for job in range(len(part.jobs)):
        one = solver.Constraint(1.0, 1.0)
        rows = part.rows(job)
        # Only differences count, and small numbers are exact for longer.
        base = min(values[rows.start : rows.stop])
        for row in rows:
            share = solver.NumVar(0.0, 1.0, "")
            one.SetCoefficient(share, 1.0)
            objective.SetCoefficient(share, (values[row] - base) * scale)
            for limit, amount in zip(limits, takes[row], strict=True):
                if amount:
                    limit.SetCoefficient(share, float(amount))
            shares.append(share)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return np.zeros(len(shares)), np.zeros(len(limits), dtype=np.int64)
    prices = [max(0, round(limit.dual_value() / scale)) for limit in limits]
    return (
        np.array([share.solution_value() for share in shares]),
        np.array(prices, dtype=np.int64),
    )
