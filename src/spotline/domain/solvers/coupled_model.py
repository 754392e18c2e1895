"""The integer program of several jobs, and what couples them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spotline.domain.jobs.migration import (
    PlacedHolding,
)
from spotline.domain.solvers.coupled_job_variables import JobPart
from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    SharedMarket,
)
from spotline.domain.units import S_PER_HOUR

_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimits:
    """Which of the shared limits hold; leaving some out finds the one that makes it impossible."""

    spot: frozenset[int]
    on_demand: frozenset[int]
    quotas: frozenset[str]
    budget: bool

    @classmethod
    def all_of(cls, shared: SharedMarket) -> SharedLimits:
        """Every limit that the market sets."""
        offerings = frozenset(range(len(shared.markets)))
        return cls(
            spot=offerings,
            on_demand=offerings,
            quotas=frozenset(pool for pool, _ in shared.quotas),
            budget=bool(shared.budget_micro_usd_per_hour),
        )

    @classmethod
    def none(cls) -> SharedLimits:
        """No limit."""
        return cls(spot=frozenset(), on_demand=frozenset(), quotas=frozenset(), budget=False)


class CoupledModel:
    """All jobs, and what couples them."""

    def __init__(
        self,
        jobs: Sequence[CoupledJob],
        shared: SharedMarket,
        limits: SharedLimits,
        cell_limit: int,
    ) -> None:
        # cp_model costs almost a second to import, and few who import this module solve.
        from ortools.sat.python import cp_model

        self.model: Any = cp_model.CpModel()
        self._shared = shared
        self._limits = limits
        self._started = [job.start for job in jobs]
        self._most_spot = [
            sum(program.max_instances for job in jobs if (program := job.programs[k]) is not None)
            for k in range(len(shared.markets))
        ]
        self._over: dict[tuple[int, int], Any] = {}
        self.jobs = [JobPart(self, job, shared, cell_limit) for job in jobs]
        self._couple()

    def quota_of(self, offering: int) -> bool:
        """Whether a quota on this offering's pool holds."""
        pools = self._shared.quota_pools
        return bool(pools) and pools[offering] in self._limits.quotas

    def known_over(self, t: int) -> list[bool]:
        """Per offering, whether what is held at the start is more than slot `t` offers."""
        together = [0] * len(self._shared.markets)
        for state in self._started:
            if state.holding.spot:
                together[state.home] += state.holding.spot
        return [
            total > int(market.spot_available[t])
            for total, market in zip(together, self._shared.markets, strict=True)
        ]

    def over(self, offering: int, t: int) -> Any:
        """Whether the spot held of an offering before slot t is more than it offers.

        None where that cannot be.
        """
        key = (offering, t)
        if key not in self._over:
            available = self._shared.markets[offering].spot_available
            before = min(self._most_spot[offering], self._spot_limit(offering, t - 1))
            possible = before > int(available[t])
            self._over[key] = self.model.new_bool_var(f"over{t}_{offering}") if possible else None
        return self._over[key]

    def _spot_limit(self, offering: int, t: int) -> int:
        # Without the shared limit each job may take all there is.
        if offering in self._limits.spot:
            return int(self._shared.markets[offering].spot_available[t])
        return self._most_spot[offering]

    def _couple(self) -> None:
        shared, model, limits = self._shared, self.model, self._limits
        parts = [part for part in self.jobs if part.slots]
        for t in range(shared.slots):
            for k, market in enumerate(shared.markets):
                spot = [p.slots[t].spot[k] for p in parts if k in p.slots[t].spot]
                if k in limits.spot and spot:
                    model.add(sum(spot) <= int(market.spot_available[t]))
                stock = [p.slots[t].on_demand[k] for p in parts if k in p.slots[t].on_demand]
                if k in limits.on_demand and stock:
                    model.add(sum(stock) <= int(market.on_demand_available[t]))
                if t + 1 < shared.slots and spot and self._over.get((k, t + 1)) is not None:
                    fits = self._over[k, t + 1].negated()
                    left = int(market.spot_available[t + 1])
                    model.add(sum(spot) <= left).only_enforce_if(fits)
            self._limit_quotas(parts, t)
            if limits.budget and parts:
                slot_s = parts[0].job.program.slot_s
                most = shared.budget_micro_usd_per_hour * slot_s // S_PER_HOUR
                model.add(sum(part.slots[t].cost for part in parts) <= most)

    def _limit_quotas(self, parts: Sequence[JobPart], t: int) -> None:
        for pool, limit in self._shared.quotas:
            if pool not in self._limits.quotas:
                continue
            held = [
                part.slots[t].spot[k] + part.slots[t].on_demand[k]
                for part in parts
                for k in part.slots[t].spot
                if self._shared.quota_pools[k] == pool
            ]
            if held:
                self.model.add(sum(held) <= limit)

    def maximise(
        self, bounds: Sequence[int], upper: int, guess: Sequence[Sequence[PlacedHolding]] | None
    ) -> None:
        """Ask for the greatest utility; no job earns more than its bound, nor all than `upper`."""
        total: Any = 0
        for index, (part, bound) in enumerate(zip(self.jobs, bounds, strict=True)):
            utility = part.utility()
            if not isinstance(utility, int):
                self.model.add(utility <= bound)
            if guess is not None:
                part.hint(guess[index])
            total = total + utility
        if not isinstance(total, int):
            self.model.add(total <= upper)
        self.model.maximize(total)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What the solver found: "found", "infeasible" or "unknown"."""

    status: str
    placements: list[list[PlacedHolding]]
    bound: int
    objective: int


def solve_model(model: CoupledModel, max_deterministic_time: float) -> ModelAnswer:
    """Run CP-SAT on one thread, bounded by its own count of work."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = max_deterministic_time
    solver.parameters.linearization_level = 2
    status = solver.solve(model.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return ModelAnswer(
            "found",
            [part.read(solver.value) for part in model.jobs],
            math.floor(solver.best_objective_bound + 1e-6),
            round(solver.objective_value),
        )
    name = "infeasible" if status == cp_model.INFEASIBLE else "unknown"
    return ModelAnswer(name, [], 0, 0)
