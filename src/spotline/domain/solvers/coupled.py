"""Several jobs in one window, coupled by what they share: spot, on-demand stock, quotas, a budget.

An integer program (OR-Tools CP-SAT, one thread, seeded, bounded by its own count of work) over the
accounting of `jobs.migration`: every change of a held set costs its overhead, also one longer than
a slot. `coupled_prices` bounds what it can find and says where to begin; where its plan meets its
bound, nothing is left to do. The answer is executed through the accounting: what a plan promises is
what executing it earns. `coupled_jobs` says what is asked and answered, and who loses spot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    Placement,
    move_cost_micro_usd,
    placement_overhead_s,
)
from spotline.domain.jobs.program import Holding
from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    CoupledPlan,
    Infeasible,
    SharedMarket,
    Unsolved,
    execute_coupled,
    is_hit,
    plan_of,
    programs_by_offering,
    solo_bound,
    within_quota,
)
from spotline.domain.solvers.coupled_prices import price_coupled
from spotline.domain.solvers.multi_window import terminal_values
from spotline.domain.solvers.placed_schedules import placement_cost_micro_usd
from spotline.domain.solvers.window import CELL_LIMIT, IntArray
from spotline.domain.units import S_PER_HOUR

_SEED = 1
# Share of the work bound that finding out why there is no plan may take, per question.
_DIAGNOSIS_SHARE = 0.2


def solve_coupled(
    jobs: Sequence[CoupledJob],
    shared: SharedMarket,
    *,
    max_deterministic_time: float = 20.0,
    cell_limit: int = CELL_LIMIT,
) -> CoupledPlan | Infeasible | Unsolved:
    """Plan several jobs at once for the greatest sum of value less cost.

    Parameters
    ----------
    jobs
        Each with programs for the offerings of `shared`, in that order.
    shared
        Prices, counts and limits of the window.
    max_deterministic_time
        Bound on CP-SAT's own count of work, not on seconds; equal inputs end alike. Finding out
        why there is no plan takes up to as much again.
    cell_limit
        A job whose exact progress grid would be finer is planned with gains rounded down.

    Returns
    -------
    CoupledPlan
        The best found, with a bound on what any could earn.
    Infeasible
        Not all required work can be done.
    Unsolved
        Neither a plan nor a proof that there is none was found within the bound.

    Raises
    ------
    ValueError
        The arguments do not fit together.
    """
    for job in jobs:
        if len(job.programs) != len(shared.offering_ids):
            raise ValueError(
                f"programs of {job.job_id} must hold {len(shared.offering_ids)}, "
                f"held {len(job.programs)}"
            )
        if job.program.slot_s != jobs[0].program.slot_s:
            raise ValueError("programs must all have one slot_s")
        if not 0 <= job.required_by_slot <= shared.slots:
            raise ValueError(f"required_by_slot must lie in 0..{shared.slots}")
    bounds = [solo_bound(job, shared, cell_limit) for job in jobs]
    if not jobs or not shared.slots:
        return plan_of(jobs, shared, [[] for _ in jobs], sum(bounds))
    priced = price_coupled(jobs, shared, bounds, cell_limit=cell_limit)
    upper = priced.upper_utility_micro_usd
    if priced.placements is not None and priced.utility_micro_usd >= upper:
        return plan_of(jobs, shared, priced.placements, upper)
    model = _Model(jobs, shared, _Limits.all_of(shared), cell_limit)
    model.maximise(bounds, upper, priced.placements)
    answer = _solved(model, max_deterministic_time)
    if answer.status == "infeasible":
        return _explain(jobs, shared, max_deterministic_time * _DIAGNOSIS_SHARE, cell_limit)
    if answer.status == "found" and all(part.exact for part in model.jobs):
        # On a rounded grid the solver's bound is one of rounded plans only.
        upper = min(upper, answer.bound)
    plans = []
    if answer.status == "found":
        plans.append(plan_of(jobs, shared, answer.placements, upper))
    if priced.placements is not None:
        plans.append(plan_of(jobs, shared, priced.placements, upper))
    if not plans:
        return Unsolved(
            reason=f"no plan found within {max_deterministic_time:g} units of work",
            upper_utility_micro_usd=upper,
        )
    return max(plans, key=lambda plan: plan.utility_micro_usd)


# --- the integer program ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Which of the shared limits hold; leaving some out finds the one that makes it impossible."""

    spot: frozenset[int]
    on_demand: frozenset[int]
    quotas: frozenset[str]
    budget: bool

    @classmethod
    def all_of(cls, shared: SharedMarket) -> _Limits:
        offerings = frozenset(range(len(shared.markets)))
        return cls(
            spot=offerings,
            on_demand=offerings,
            quotas=frozenset(pool for pool, _ in shared.quotas),
            budget=bool(shared.budget_micro_usd_per_hour),
        )

    @classmethod
    def none(cls) -> _Limits:
        return cls(spot=frozenset(), on_demand=frozenset(), quotas=frozenset(), budget=False)


@dataclass(slots=True)
class _SlotVariables:
    """One job in one slot: linear expressions and variables by offering."""

    holds: list[tuple[int, Holding, Any]] = field(default_factory=list)
    at: dict[int, Any] = field(default_factory=dict)
    spot: dict[int, Any] = field(default_factory=dict)
    on_demand: dict[int, Any] = field(default_factory=dict)
    idle: Any = 1
    home: dict[int, Any] = field(default_factory=dict)
    no_home: Any = 0
    level: list[Any] = field(default_factory=list)
    cost: Any = 0


class _JobPart:
    """The variables and constraints of one job that no other job touches."""

    def __init__(
        self, owner: _Model, job: CoupledJob, shared: SharedMarket, cell_limit: int
    ) -> None:
        self.job = job
        self._owner = owner
        self._model = owner.model
        self._shared = shared
        program = job.program
        self._slot_s = program.slot_s
        self._bases, self._opening = self._overheads()
        self._levels = _levels([*self._bases, *self._opening], self._slot_s)
        self._seconds = sorted(
            {
                max(0, self._slot_s - max(base, level))
                for base in (*self._bases, *self._opening)
                for level in self._levels
            }
        )
        rates = {
            one.rate_quanta_per_s[count]
            for one in job.programs
            if one is not None
            for count in one.allowed_counts
        }
        self._left = max(0, program.work_quanta - job.start.progress_quanta)
        self._slots = max(0, shared.slots - job.first_slot)
        reach = min(self._left, self._slots * max(rates) * max(self._seconds))
        unit = math.gcd(*(rate * second for rate in rates for second in self._seconds))
        self.exact = unit == 0 or reach <= unit * cell_limit
        self._cell = (unit or max(1, reach)) if self.exact else -(-reach // cell_limit)
        self._most_cells = self._slots * (max(rates) * max(self._seconds) // self._cell)
        self.slots: list[_SlotVariables] = []
        self._progress: list[Any] = []
        self._done: list[Any] = []
        if self._left:
            self._build()
            self._require()

    def _overheads(self) -> tuple[list[int], list[int]]:
        """Overheads of changes inside the window, and whole ones of entering it from the start."""
        job = self.job
        bases = {0}
        programs = programs_by_offering(job)
        for k in job.runs_on:
            there = programs[k]
            bases |= {there.shrink_s, there.grow_s, there.launch_s, there.interrupted_s}
            for a in job.runs_on if job.migrations is not None else ():
                if a != k:
                    bases |= {self._moved_s(a, k), self._torn_s(a, k)}
        pending = job.start.pending_overhead_s
        return sorted(bases), sorted({max(base, pending) for base in bases})

    def _moved_s(self, origin: int, to: int) -> int:
        launch_s = programs_by_offering(self.job)[to].launch_s
        return max((self.job.migrations or ())[origin][to].overhead_s, launch_s)

    def _torn_s(self, origin: int, to: int) -> int:
        return max(self._moved_s(origin, to), programs_by_offering(self.job)[origin].interrupted_s)

    # Everything below adds variables and constraints slot by slot.

    def _build(self) -> None:
        job, model = self.job, self._model
        progress: Any = 0
        for t in range(self._shared.slots):
            slot = _SlotVariables()
            self.slots.append(slot)
            if t < job.first_slot:
                self._progress.append(0)
                self._done.append(0)
                continue
            self._hold(slot, t)
            if t == job.first_slot:
                gained = self._open(slot, t)
            else:
                gained = self._change(slot, self.slots[t - 1], t)
            progress = progress + gained
            needed = -(-self._left // self._cell)
            done = model.new_bool_var(f"{job.job_id}_done{t}")
            model.add(progress >= needed).only_enforce_if(done)
            model.add(progress <= needed - 1).only_enforce_if(done.negated())
            if not isinstance(self._done[-1] if self._done else 0, int):
                model.add_implication(self._done[-1], done)
            self._progress.append(progress)
            self._done.append(done)

    def _hold(self, slot: _SlotVariables, t: int) -> None:
        """Exactly one held set, on one offering, or none."""
        job, model = self.job, self._model
        late = job.elapsed_slots + t - job.first_slot >= job.program.deadline_slots
        slot.idle = model.new_bool_var(f"{job.job_id}_idle{t}")
        chosen = [slot.idle]
        for k in job.runs_on:
            program = programs_by_offering(job)[k]
            market = within_quota(self._shared, k) if self._owner.quota_of(k) else None
            market = market or self._shared.markets[k]
            most_spot, most = int(market.spot_available[t]), int(market.on_demand_available[t])
            here = []
            for count in program.allowed_counts:
                for spot in range(min(count, most_spot) + 1):
                    held = Holding(spot=spot, on_demand=count - spot)
                    rescue = held == Holding(on_demand=program.max_instances)
                    if held.on_demand > most or (late and not rescue):
                        continue
                    x = model.new_bool_var(f"{job.job_id}_h{t}_{k}_{spot}_{count - spot}")
                    here.append((held, x))
                    slot.holds.append((k, held, x))
                    placement = Placement(offering=k, holding=held)
                    slot.cost = slot.cost + x * placement_cost_micro_usd(
                        programs_by_offering(job), self._shared.markets, placement, t
                    )
            at = model.new_bool_var(f"{job.job_id}_at{t}_{k}")
            model.add(sum(x for _, x in here) == at)
            slot.at[k] = at
            slot.spot[k] = sum(held.spot * x for held, x in here if held.spot)
            slot.on_demand[k] = sum(held.on_demand * x for held, x in here if held.on_demand)
            chosen.append(at)
        model.add_exactly_one(chosen)

    def _open(self, slot: _SlotVariables, t: int) -> Any:
        """The job's first slot: what comes before is known."""
        job, model = self.job, self._model
        programs, start, table = programs_by_offering(job), job.start, job.migrations or ()
        over = self._owner.known_over(t) if t == 0 else [False] * len(self._shared.markets)
        gained: Any = 0
        levels: list[Any] = [0] * len(self._levels)
        levels[0] = slot.idle
        for k, held, x in slot.holds:
            after = Placement(offering=k, holding=held)
            if job.migrations is None and start.home not in (NOWHERE, k):
                model.add(x == 0)
                continue
            broken = is_hit(start, after, over)
            change_s = placement_overhead_s(programs, table, start, after, interrupted=broken)
            overhead_s = max(change_s, start.pending_overhead_s)
            rate = programs[k].rate_quanta_per_s[held.instances]
            gained = gained + rate * max(0, self._slot_s - overhead_s) // self._cell * x
            level = self._levels.index(max(0, overhead_s - self._slot_s))
            levels[level] = levels[level] + x
            slot.cost = slot.cost + move_cost_micro_usd(table, start, after) * x
        self._settle(slot, None, levels)
        return gained

    def _settle(
        self, slot: _SlotVariables, before: _SlotVariables | None, levels: list[Any]
    ) -> None:
        """Where the checkpoint lies and what is pending when the slot is over."""
        job, model = self.job, self._model
        slot.level = []
        for expression in levels:
            pending = model.new_bool_var("")
            model.add(expression == pending)
            slot.level.append(pending)
        if len(job.runs_on) == 1:
            return
        slot.no_home = model.new_bool_var("")
        for k in job.runs_on:
            slot.home[k] = model.new_bool_var("")
            model.add_implication(slot.at[k], slot.home[k])
        model.add_exactly_one([*slot.home.values(), slot.no_home])
        # Idling changes no home.
        for k in job.runs_on:
            was: Any = int(job.start.home == k) if before is None else before.home[k]
            model.add(slot.home[k] == was).only_enforce_if(slot.idle)
        model.add_implication(slot.no_home, slot.idle)

    def _change(self, slot: _SlotVariables, before: _SlotVariables, t: int) -> Any:
        """One kind of change per slot, its overhead joined with what is pending; returns gains."""
        model = self._model
        by_base: dict[int, list[Any]] = {base: [] for base in self._bases}
        for k in self.job.runs_on:
            ways = self._ways_in(slot, before, k, t)
            model.add(sum(way for _, way in ways) == slot.at[k])
            for base, one in ways:
                by_base[base].append(one)
        rows: list[list[Any]] = [[] for _ in self._seconds]
        levels: list[list[Any]] = [[] for _ in self._levels]
        levels[0].append(slot.idle)
        idle_at: list[Any] = []
        arrived: list[list[Any]] = [[] for _ in self._levels]
        single = len(self._levels) == 1
        for base, changes in by_base.items():
            joined = []
            for index, level in enumerate(self._levels):
                both: Any = sum(changes)
                if not single:
                    both = model.new_bool_var("")
                    joined.append(both)
                    arrived[index].append(both)
                overhead_s = max(base, level)
                rows[self._seconds.index(max(0, self._slot_s - overhead_s))].append(both)
                levels[self._levels.index(max(0, overhead_s - self._slot_s))].append(both)
            if not single:
                model.add(sum(joined) == sum(changes))
        if not single:
            for index, pending in enumerate(before.level):
                dropped = model.new_bool_var("")
                idle_at.append(dropped)
                model.add(sum(arrived[index]) + dropped == pending)
            model.add(sum(idle_at) == slot.idle)
        self._settle(slot, before, [sum(one) for one in levels])
        return self._gains(slot, [sum(row) for row in rows])

    def _ways_in(
        self, slot: _SlotVariables, before: _SlotVariables, k: int, t: int
    ) -> list[tuple[int, Any]]:
        """The kinds of change that can lead to a set on offering k: (base overhead, boolean).

        A dearer kind than the true one is allowed, for it never pays; a cheaper one is not.
        """
        job, model = self.job, self._model
        program = programs_by_offering(job)[k]
        over = self._owner.over(k, t)
        spot, on_demand = slot.spot[k], slot.on_demand[k]
        spot_before, on_demand_before = before.spot[k], before.on_demand[k]

        def way(name: str, *needs: Any) -> Any:
            x = model.new_bool_var(f"{job.job_id}_{name}{t}_{k}")
            model.add(x <= sum(needs))
            return x

        same = way("same", before.at[k])
        model.add(spot == spot_before).only_enforce_if(same)
        model.add(on_demand == on_demand_before).only_enforce_if(same)
        shrink = way("shrink", before.at[k])
        model.add(spot <= spot_before).only_enforce_if(shrink)
        model.add(on_demand <= on_demand_before).only_enforce_if(shrink)
        grow = way("grow", before.at[k])
        ways = [(0, same), (program.shrink_s, shrink), (program.grow_s, grow)]
        if over is not None:
            model.add(spot >= spot_before).only_enforce_if([shrink, over])
            model.add(spot >= spot_before).only_enforce_if([grow, over])
            ways.append((program.interrupted_s, way("broken", before.at[k])))
        launch = way("launch", before.idle)
        if before.home:
            model.add(launch <= before.home[k] + before.no_home)
        ways.append((program.launch_s, launch))
        for a in job.runs_on if job.migrations is not None else ():
            if a == k:
                continue
            dollars = (job.migrations or ())[a][k].cost_micro_usd
            moved = way(f"move{a}_", before.home[a])
            ways.append((self._moved_s(a, k), moved))
            slot.cost = slot.cost + dollars * moved
            lost = self._owner.over(a, t)
            if lost is not None:
                model.add(before.spot[a] <= 0).only_enforce_if([moved, lost])
                torn = way(f"torn{a}_", before.at[a])
                ways.append((self._torn_s(a, k), torn))
                slot.cost = slot.cost + dollars * torn
        return ways

    def _gains(self, slot: _SlotVariables, rows: list[Any]) -> Any:
        """Cells gained: the product of a rate and productive seconds, both chosen one of many."""
        model = self._model
        by_rate: dict[int, list[Any]] = {}
        for k, held, x in slot.holds:
            rate = programs_by_offering(self.job)[k].rate_quanta_per_s[held.instances]
            by_rate.setdefault(rate, []).append(x)
        columns: list[list[Any]] = [[] for _ in rows]
        gained: Any = 0
        for rate, holds in sorted(by_rate.items()):
            products = []
            for index, second in enumerate(self._seconds):
                product = model.new_bool_var("")
                products.append(product)
                columns[index].append(product)
                gained = gained + rate * second // self._cell * product
            model.add(sum(products) == sum(holds))
        for row, column in zip(rows, columns, strict=True):
            model.add(sum(column) == row)
        return gained

    def _require(self) -> None:
        job = self.job
        if job.budget_micro_usd:
            self._model.add(sum(slot.cost for slot in self.slots) <= job.budget_micro_usd)
        if not job.required_by_slot:
            return
        missing = job.required_quanta - job.start.progress_quanta
        if missing > 0:
            done = self._progress[job.required_by_slot - 1]
            cells = -(-missing // self._cell)
            if isinstance(done, int):
                self._model.add_bool_or([])
            else:
                self._model.add(done >= cells)

    def utility(self) -> Any:
        """Value less cost, end value included."""
        if not self._left:
            return 0
        job, model = self.job, self._model
        total: Any = 0
        before: Any = 0
        for t, done in enumerate(self._done):
            number = job.elapsed_slots + t - job.first_slot + 1
            if not isinstance(done, int) and 0 < number <= job.program.end_slots:
                total = total + job.program.value_micro_usd[number] * (done - before)
            before = done
        for slot in self.slots:
            total = total - slot.cost
        return total + self._end_worth(model)

    def _end_worth(self, model: Any) -> Any:
        job = self.job
        if job.end_value is None:
            return 0
        runnable = [program for program in job.programs if program is not None]
        needed = -(-self._left // self._cell)
        cells = min(needed, self._most_cells + 1)
        grid = job.start.progress_quanta + np.arange(cells, dtype=np.int64) * self._cell
        table = [int(value) for value in terminal_values(runnable, grid, job.end_value)]
        if not self._progress or isinstance(self._progress[-1], int):
            return table[0]
        done = self._done[-1]
        index = model.new_int_var(0, cells - 1, "")
        model.add(index == self._progress[-1]).only_enforce_if(done.negated())
        worth = model.new_int_var(min(table), max(table), "")
        model.add_element(index, table, worth)
        counted = model.new_int_var(min(0, *table, 0), max(0, *table, 0), "")
        model.add(counted == worth).only_enforce_if(done.negated())
        model.add(counted == 0).only_enforce_if(done)
        return counted

    def hint(self, placements: Sequence[Placement]) -> None:
        """Begin the search at a schedule."""
        for t, slot in enumerate(self.slots):
            if not slot.holds and isinstance(slot.idle, int):
                continue
            wanted = placements[t] if t < len(placements) else NOT_PLACED
            self._model.add_hint(slot.idle, wanted.offering == NOWHERE)
            for k, held, x in slot.holds:
                self._model.add_hint(x, wanted.offering == k and wanted.holding == held)

    def read(self, value: Callable[[Any], int]) -> list[Placement]:
        """The schedule of a solution; idle once done."""
        placements = []
        for t in range(self._shared.slots):
            chosen = NOT_PLACED
            if self.slots and not (t and self._is_done(t - 1, value)):
                for k, held, x in self.slots[t].holds:
                    if value(x):
                        chosen = Placement(offering=k, holding=held)
            placements.append(chosen)
        return placements

    def _is_done(self, t: int, value: Callable[[Any], int]) -> bool:
        done = self._done[t]
        return bool(done if isinstance(done, int) else value(done))

    def progress_at(self, slots: int) -> Any:
        """Cells done when that many slots of the window are over."""
        return self._progress[slots - 1] if self._progress and slots else 0


class _Model:
    """All jobs, and what couples them."""

    def __init__(
        self,
        jobs: Sequence[CoupledJob],
        shared: SharedMarket,
        limits: _Limits,
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
        self.jobs = [_JobPart(self, job, shared, cell_limit) for job in jobs]
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

    def _limit_quotas(self, parts: Sequence[_JobPart], t: int) -> None:
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
        self, bounds: Sequence[int], upper: int, guess: Sequence[Sequence[Placement]] | None
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
class _Answer:
    """What the solver found: "found", "infeasible" or "unknown"."""

    status: str
    placements: list[list[Placement]]
    bound: int
    objective: int


def _solved(model: _Model, max_deterministic_time: float) -> _Answer:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = max_deterministic_time
    solver.parameters.linearization_level = 2
    status = solver.solve(model.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return _Answer(
            "found",
            [part.read(solver.value) for part in model.jobs],
            math.floor(solver.best_objective_bound + 1e-6),
            round(solver.objective_value),
        )
    name = "infeasible" if status == cp_model.INFEASIBLE else "unknown"
    return _Answer(name, [], 0, 0)


# --- why there is no plan ---------------------------------------------------------------------


def _explain(
    jobs: Sequence[CoupledJob], shared: SharedMarket, work: float, cell_limit: int
) -> Infeasible:
    """Leave out jobs, then limits, as long as it stays impossible: what is left is the reason."""

    def impossible(some: Sequence[CoupledJob], limits: _Limits) -> bool:
        return _solved(_Model(some, shared, limits, cell_limit), work).status == "infeasible"

    required = [job for job in jobs if job.required_by_slot]
    alone = _Limits.none()
    for job in required:
        if impossible([job], alone):
            return _cannot_alone(job, shared, work, cell_limit)
    limits = _Limits.all_of(shared)
    for job in list(required):
        fewer = [other for other in required if other is not job]
        if fewer and impossible(fewer, limits):
            required = fewer
    for fewer_limits in _looser(limits):
        reduced = fewer_limits(limits)
        if impossible(required, reduced):
            limits = reduced
    return _cannot_together(required, shared, limits)


def _looser(limits: _Limits) -> list[Callable[[_Limits], _Limits]]:
    """Ways to drop one limit each: stock first, for it names least."""

    def without_stock(offering: int) -> Callable[[_Limits], _Limits]:
        return lambda now: replace(now, on_demand=now.on_demand - {offering})

    def without_spot(offering: int) -> Callable[[_Limits], _Limits]:
        return lambda now: replace(now, spot=now.spot - {offering})

    def without_quota(pool: str) -> Callable[[_Limits], _Limits]:
        return lambda now: replace(now, quotas=now.quotas - {pool})

    return [
        *(without_stock(k) for k in sorted(limits.on_demand)),
        *(without_spot(k) for k in sorted(limits.spot)),
        lambda now: replace(now, budget=False),
        *(without_quota(pool) for pool in sorted(limits.quotas)),
    ]


def _need(job: CoupledJob, shared: SharedMarket) -> str:
    """What the job would take at least: "a needs at least 5 slots of 4 instances"."""
    missing = job.required_quanta - job.start.progress_quanta
    fastest = min(
        (program for program in job.programs if program is not None),
        key=lambda one: one.slots_on_demand(missing, 0),
    )
    first_s = 0 if job.start.holding.instances else fastest.launch_s
    slots = fastest.slots_on_demand(missing, first_s)
    start, due = shared.first_slot + job.first_slot, shared.first_slot + job.required_by_slot
    return (
        f"job {job.job_id} needs at least {slots} slots of {fastest.max_instances} instances "
        f"from slot {start} on, before slot {due}"
    )


def _cannot_alone(
    job: CoupledJob, shared: SharedMarket, work: float, cell_limit: int
) -> Infeasible:
    relaxed = replace(job, required_by_slot=0)
    model = _Model([relaxed], shared, _Limits.none(), cell_limit)
    most = model.jobs[0].progress_at(job.required_by_slot)
    share = 0
    if not isinstance(most, int):
        model.model.maximize(most)
        answer = _solved(model, work)
        if answer.status == "found":
            (result,) = execute_coupled([relaxed], shared, answer.placements)
            done = result.end.progress_quanta - job.start.progress_quanta
            share = 100 * done // (job.required_quanta - job.start.progress_quanta)
    due = shared.first_slot + job.required_by_slot
    return Infeasible(
        reason=f"{_need(job, shared)}; alone it would get {share} % of that done with what there "
        f"is{' and its budget' if job.budget_micro_usd else ''}",
        job_ids=(job.job_id,),
        resources=(),
        slot=due - 1,
    )


def _cannot_together(
    jobs: Sequence[CoupledJob], shared: SharedMarket, limits: _Limits
) -> Infeasible:
    by_slot = max(job.required_by_slot for job in jobs)
    resources = []
    if limits.budget:
        usd = shared.budget_micro_usd_per_hour / 1e6
        resources.append(f"the budget allows {usd:.2f} USD per hour")
    for pool, limit in shared.quotas:
        if pool in limits.quotas:
            resources.append(f"quota {pool} allows {limit} instances")
    for kind, kept in (("spot", limits.spot), ("on-demand", limits.on_demand)):
        for k in sorted(kept):
            market = shared.markets[k]
            counts = market.spot_available if kind == "spot" else market.on_demand_available
            resources.append(
                f"{shared.offering_ids[k]} has {_range(counts[:by_slot])} {kind} instances"
            )
    needs = "; ".join(_need(job, shared) for job in jobs)
    together = "" if len(jobs) == 1 else " together"
    return Infeasible(
        reason=f"{needs}; that is impossible{together}: {', '.join(resources) or 'no limit'}",
        job_ids=tuple(job.job_id for job in jobs),
        resources=tuple(resources),
        slot=shared.first_slot + by_slot - 1,
    )


def _range(counts: IntArray) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _levels(overheads: Iterable[int], slot_s: int) -> list[int]:
    """Every overhead that can be pending when a slot opens; 0 comes first."""
    levels = [0]
    for overhead_s in sorted(set(overheads)):
        left_s = max(0, overhead_s - slot_s)
        while left_s not in levels:
            levels.append(left_s)
            left_s = max(0, left_s - slot_s)
    return levels
