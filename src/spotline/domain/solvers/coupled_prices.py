"""Prices for what jobs share: a bound on every plan, and good plans, from exact one-job programs.

Where a slot's spot, stock or quota is asked for by more jobs than it serves, its price rises; each
job answers with its own optimum at these prices. The jobs' values at the prices, plus what the
shared limits are worth, bound every plan (Lagrangian duality); the answers are the columns from
which a small integer program picks one per job. Prices move by the subgradient with Polyak's step,
a fixed number of times: equal inputs give equal answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.migration import NOT_PLACED, NOWHERE, PlacedHolding
from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    SharedMarket,
    end_worth,
    execute_coupled,
    one_after_the_other,
    solve_alone,
    within_quota,
)
from spotline.domain.solvers.window import Rounding, WindowMarket
from spotline.domain.units import S_PER_HOUR

_ROUNDS = 60
# Rounds without a better bound after which the step is halved.
_PATIENCE = 3
_SEED = 1
_PICKING_WORK = 1.0

Schedule = tuple[PlacedHolding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPlan:
    """A bound on every plan in micro-USD, and the best plan found: None where none fits.

    `utility_micro_usd` is what executing `placements` earns, end values included.
    """

    upper_utility_micro_usd: int
    placements: tuple[Schedule, ...] | None
    utility_micro_usd: int


@dataclass(slots=True)
class _Prices:
    """Surcharges in micro-USD per instance-hour; spot and stock (offerings, slots)."""

    spot: npt.NDArray[np.float64]
    stock: npt.NDArray[np.float64]
    quota: npt.NDArray[np.float64]

    def all(self) -> tuple[npt.NDArray[np.float64], ...]:
        return self.spot, self.stock, self.quota


def price_coupled(
    jobs: Sequence[CoupledJob],
    shared: SharedMarket,
    bounds: Sequence[int],
    *,
    cell_limit: int,
) -> PricedPlan:
    """Bound what any plan earns and look for a good one.

    Parameters
    ----------
    bounds
        What each job earns at most, alone on all there is.
    cell_limit
        As in `solve_multi_window`.
    """
    columns: list[list[Schedule]] = [[] for _ in jobs]
    most_spot, most_stock, most_quota = _limits(shared)
    for order in _orders(len(jobs)):
        guess = one_after_the_other(jobs, shared, cell_limit, order)
        for kept, one in zip(columns, guess, strict=True):
            _keep(kept, one)
    best, utility = _picked(jobs, shared, columns)
    upper = sum(bounds)
    step, waited = 1.0, 0
    # Surcharges that cost whole micro-USD per slot keep the bound free of rounding.
    grain = S_PER_HOUR // math.gcd(jobs[0].program.slot_s, S_PER_HOUR)
    per_slot = jobs[0].program.slot_s / S_PER_HOUR
    shape = most_spot.shape
    prices = _Prices(np.zeros(shape), np.zeros(shape), np.zeros(most_quota.shape))
    for _ in range(_ROUNDS):
        if upper <= utility:
            break
        whole = _Prices(*(np.floor(p / grain) * grain for p in prices.all()))
        markets = _priced(shared, whole)
        value = 0
        used = _Prices(np.zeros(shape), np.zeros(shape), np.zeros(most_quota.shape))
        for kept, job in zip(columns, jobs, strict=True):
            earned, schedule = solve_alone(job, markets, cell_limit, Rounding.UP)
            value += earned
            _keep(kept, schedule)
            _count(used, shared, schedule)
        slack = [most_spot - used.spot, most_stock - used.stock, most_quota - used.quota]
        worth = (most_spot * whole.spot).sum() + (most_stock * whole.stock).sum()
        worth += (most_quota * whole.quota).sum()
        value += round(float(worth) * jobs[0].program.slot_s) // S_PER_HOUR
        if value < upper:
            upper, waited = value, 0
        else:
            waited += 1
            if waited >= _PATIENCE:
                step, waited = step / 2, 0
        # A limit that is kept at no price asks for nothing.
        steep = [
            np.where((s > 0) & (p <= 0), 0.0, -s) for s, p in zip(slack, prices.all(), strict=True)
        ]
        norm = sum(float((g * g).sum()) for g in steep)
        if norm == 0:
            break
        target = max(utility, upper - abs(upper) // 10)
        move = step * max(1.0, value - target) / norm / per_slot
        prices = _Prices(
            *(np.maximum(0.0, p + move * g) for p, g in zip(prices.all(), steep, strict=True))
        )
    picked, earned = _picked(jobs, shared, columns)
    if earned > utility:
        best, utility = picked, earned
    return PricedPlan(upper_utility_micro_usd=upper, placements=best, utility_micro_usd=utility)


def _orders(count: int) -> list[list[int] | None]:
    """Orders in which jobs may choose: by deadline, and each job first."""
    firsts = [[j, *(i for i in range(count) if i != j)] for j in range(count)]
    return [None, *firsts[:8]]


def _keep(columns: list[Schedule], schedule: Schedule) -> None:
    if schedule not in columns:
        columns.append(schedule)


def _limits(
    shared: SharedMarket,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    spot = np.array([market.spot_available for market in shared.markets])
    stock = np.array([market.on_demand_available for market in shared.markets])
    quota = np.array([[limit] * shared.slots for _, limit in shared.quotas], dtype=np.int64)
    return spot, stock, quota.reshape(len(shared.quotas), shared.slots)


def _priced(shared: SharedMarket, prices: _Prices) -> list[WindowMarket]:
    markets = []
    for k in range(len(shared.markets)):
        market = within_quota(shared, k)
        extra = np.zeros(shared.slots, dtype=np.int64)
        for q, (pool, _) in enumerate(shared.quotas):
            if shared.quota_pools[k] == pool:
                extra = extra + prices.quota[q].astype(np.int64)
        markets.append(
            replace(
                market,
                spot_price=market.spot_price + prices.spot[k].astype(np.int64) + extra,
                on_demand_price=market.on_demand_price + prices.stock[k].astype(np.int64) + extra,
            )
        )
    return markets


def _count(used: _Prices, shared: SharedMarket, schedule: Schedule) -> None:
    for t, one in enumerate(schedule):
        if one.offering == NOWHERE:
            continue
        used.spot[one.offering, t] += one.holding.spot
        used.stock[one.offering, t] += one.holding.on_demand
        for q, (pool, _) in enumerate(shared.quotas):
            if shared.quota_pools[one.offering] == pool:
                used.quota[q, t] += one.holding.instances


# --- one schedule per job ---------------------------------------------------------------------


def _picked(
    jobs: Sequence[CoupledJob], shared: SharedMarket, columns: Sequence[Sequence[Schedule]]
) -> tuple[tuple[Schedule, ...] | None, int]:
    """The best choice of one schedule per job within the limits, and what it earns."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    total: Any = 0
    chosen: list[list[tuple[Schedule, Any]]] = []
    spot, stock, quota = _limits(shared)
    uses: dict[tuple[str, int, int], list[Any]] = {}
    spent: dict[int, list[Any]] = {}
    for job, schedules in zip(jobs, columns, strict=True):
        mine: list[tuple[Schedule, Any]] = []
        for schedule in [*schedules, (NOT_PLACED,) * shared.slots]:
            earned = _earned([job], shared, [schedule])
            if earned is None:
                continue
            x = model.new_bool_var("")
            mine.append((schedule, x))
            total = total + earned * x
            used = _Prices(np.zeros(spot.shape), np.zeros(spot.shape), np.zeros(quota.shape))
            _count(used, shared, schedule)
            for name, counts in zip(("spot", "stock", "quota"), used.all(), strict=True):
                for row, t in np.argwhere(counts > 0).tolist():
                    uses.setdefault((name, row, t), []).append(int(counts[row, t]) * x)
            if shared.budget_micro_usd_per_hour:
                for t, cost in enumerate(_costs(job, shared, schedule)):
                    spent.setdefault(t, []).append(cost * x)
        if not mine:
            return None, -(2**62)
        model.add_exactly_one([x for _, x in mine])
        chosen.append(mine)
    limits = {"spot": spot, "stock": stock, "quota": quota}
    for (name, row, t), terms in uses.items():
        model.add(sum(terms) <= int(limits[name][row, t]))
    slot_s = jobs[0].program.slot_s
    for terms in spent.values():
        model.add(sum(terms) <= shared.budget_micro_usd_per_hour * slot_s // S_PER_HOUR)
    model.maximize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = _PICKING_WORK
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, -(2**62)
    plan = tuple(next(s for s, x in mine if solver.value(x)) for mine in chosen)
    together = _earned(jobs, shared, plan)
    return (None, -(2**62)) if together is None else (plan, together)


def _earned(
    jobs: Sequence[CoupledJob], shared: SharedMarket, schedules: Sequence[Schedule]
) -> int | None:
    """What executing these earns; None where work that is required stays undone."""
    total = 0
    results = execute_coupled(jobs, shared, schedules)
    for job, result, schedule in zip(jobs, results, schedules, strict=True):
        if job.budget_micro_usd and result.cost_micro_usd > job.budget_micro_usd:
            return None
        if job.required_by_slot:
            cut = (
                *schedule[: job.required_by_slot],
                *(NOT_PLACED,) * (shared.slots - job.required_by_slot),
            )
            # Interruptions by others are checked for all jobs together by the caller's execution.
            done = (
                result
                if not any(one != NOT_PLACED for one in schedule[job.required_by_slot :])
                else execute_coupled([job], shared, [cut])[0]
            )
            if done.end.progress_quanta < job.required_quanta:
                return None
        total += result.utility_micro_usd
        total += 0 if result.finished_slot else end_worth(job, result.end)
    return total


def _costs(job: CoupledJob, shared: SharedMarket, schedule: Schedule) -> list[int]:
    """What the schedule costs in each slot, egress included."""
    before = 0
    costs = []
    for t in range(shared.slots):
        cut = (*schedule[: t + 1], *(NOT_PLACED,) * (shared.slots - t - 1))
        spent = execute_coupled([job], shared, [cut])[0].cost_micro_usd
        costs.append(spent - before)
        before = spent
    return costs
