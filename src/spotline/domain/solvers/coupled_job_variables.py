"""One job of a coupled integer program: the variables and constraints that no other touches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    PlacedHolding,
    move_cost_micro_usd,
    placement_overhead_s,
)
from spotline.domain.jobs.program import Holding
from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    SharedMarket,
    is_hit,
    programs_by_offering,
    within_quota,
)
from spotline.domain.solvers.multi_window import terminal_values
from spotline.domain.solvers.multi_window_layout import pending_levels
from spotline.domain.solvers.placed_schedules import placement_cost_micro_usd


class Coupling(Protocol):
    """What the variables of one job need of the model of all."""

    model: Any

    def quota_of(self, offering: int) -> bool:
        """Whether a quota on this offering's pool holds."""
        ...

    def known_over(self, t: int) -> list[bool]:
        """Per offering, whether what is held at the start is more than slot `t` offers."""
        ...

    def over(self, offering: int, t: int) -> Any:
        """Whether the spot held of an offering before slot `t` is more than it offers."""
        ...


@dataclass(slots=True)
class SlotVariables:
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


class JobPart:
    """The variables and constraints of one job that no other job touches."""

    def __init__(
        self, owner: Coupling, job: CoupledJob, shared: SharedMarket, cell_limit: int
    ) -> None:
        self.job = job
        self._owner = owner
        self._model = owner.model
        self._shared = shared
        program = job.program
        self._slot_s = program.slot_s
        self._bases, self._opening = self._overheads()
        self._levels = pending_levels([*self._bases, *self._opening], self._slot_s)
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
        self.slots: list[SlotVariables] = []
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
            slot = SlotVariables()
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

    def _hold(self, slot: SlotVariables, t: int) -> None:
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
                    placement = PlacedHolding(offering=k, holding=held)
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

    def _open(self, slot: SlotVariables, t: int) -> Any:
        """The job's first slot: what comes before is known."""
        job, model = self.job, self._model
        programs, start, table = programs_by_offering(job), job.start, job.migrations or ()
        over = self._owner.known_over(t) if t == 0 else [False] * len(self._shared.markets)
        gained: Any = 0
        levels: list[Any] = [0] * len(self._levels)
        levels[0] = slot.idle
        for k, held, x in slot.holds:
            after = PlacedHolding(offering=k, holding=held)
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

    def _settle(self, slot: SlotVariables, before: SlotVariables | None, levels: list[Any]) -> None:
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

    def _change(self, slot: SlotVariables, before: SlotVariables, t: int) -> Any:
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
        self, slot: SlotVariables, before: SlotVariables, k: int, t: int
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

    def _gains(self, slot: SlotVariables, rows: list[Any]) -> Any:
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

    def hint(self, placements: Sequence[PlacedHolding]) -> None:
        """Begin the search at a schedule."""
        for t, slot in enumerate(self.slots):
            if not slot.holds and isinstance(slot.idle, int):
                continue
            wanted = placements[t] if t < len(placements) else NOT_PLACED
            self._model.add_hint(slot.idle, wanted.offering == NOWHERE)
            for k, held, x in slot.holds:
                self._model.add_hint(x, wanted.offering == k and wanted.holding == held)

    def read(self, value: Callable[[Any], int]) -> list[PlacedHolding]:
        """The schedule of a solution; idle once done."""
        placements = []
        for t in range(self._shared.slots):
            chosen = NOT_PLACED
            if self.slots and not (t and self._is_done(t - 1, value)):
                for k, held, x in self.slots[t].holds:
                    if value(x):
                        chosen = PlacedHolding(offering=k, holding=held)
            placements.append(chosen)
        return placements

    def _is_done(self, t: int, value: Callable[[Any], int]) -> bool:
        done = self._done[t]
        return bool(done if isinstance(done, int) else value(done))

    def progress_at(self, slots: int) -> Any:
        """Cells done when that many slots of the window are over."""
        return self._progress[slots - 1] if self._progress and slots else 0
