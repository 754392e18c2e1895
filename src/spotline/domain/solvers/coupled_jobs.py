"""Several jobs that share one market over a window: what is asked, answered and accounted.

Who loses spot: where all jobs together held more spot of an offering than a slot offers, a job
whose spot there falls is interrupted, one that keeps its own is not; the plan says who yields. For
one job that is the rule of everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    MigrationTable,
    PlacedHolding,
    PlacedProgress,
    advance_placed,
    move_cost_micro_usd,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.multi_window import EndValue, solve_multi_window, terminal_values
from spotline.domain.solvers.multi_window_layout import OfferingWindow
from spotline.domain.solvers.placed_schedules import (
    PlacedResult,
    check_programs,
    placement_cost_micro_usd,
)
from spotline.domain.solvers.window import Rounding, WindowMarket


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsolved:
    """Why there is no proven optimum; `upper_utility_micro_usd` bounds it where known."""

    reason: str
    upper_utility_micro_usd: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMarket:
    """What the jobs share over a window.

    `markets` holds prices and counts per slot of each offering in `offering_ids`. `quota_pools`
    names the quota pool of each ("" for none), `quotas` how many instances, spot and on-demand
    together, may be held of a pool at a time. `budget_micro_usd_per_hour` (0: none) bounds what all
    jobs spend in a slot, egress included, in proportion to its length. `first_slot` is the number
    of the window's first slot, for reasons people read.
    """

    offering_ids: tuple[str, ...]
    markets: tuple[WindowMarket, ...]
    quota_pools: tuple[str, ...] = ()
    quotas: tuple[tuple[str, int], ...] = ()
    budget_micro_usd_per_hour: int = 0
    first_slot: int = 0

    def __post_init__(self) -> None:
        count = len(self.offering_ids)
        if not count or len(self.markets) != count:
            raise ValueError(f"markets must hold one per offering ({count}), not none")
        if self.quota_pools and len(self.quota_pools) != count:
            raise ValueError(f"quota_pools must hold {count}, held {len(self.quota_pools)}")
        if any(len(market) != len(self.markets[0]) for market in self.markets):
            raise ValueError("markets must all have as many slots as the first")
        unknown = sorted({pool for pool, _ in self.quotas} - set(self.quota_pools))
        if unknown:
            raise ValueError(f"quotas must be of a pool of an offering, {unknown[0]!r} is of none")
        if any(limit < 0 for _, limit in self.quotas) or self.budget_micro_usd_per_hour < 0:
            raise ValueError("quotas and budget_micro_usd_per_hour must be >= 0")

    @property
    def slots(self) -> int:
        """Length of the window."""
        return len(self.markets[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class CoupledJob:
    """One of the jobs.

    `programs` holds the job compiled for each offering of the market, None where it cannot run.
    Without `migrations` it stays on the offering it is launched on first. `first_slot` counts from
    the window's first; before it nothing is held. `elapsed_slots` is its life before that.
    `end_value` is as in `solve_multi_window`, with one array per offering that it can run on; no
    progress may be worth more than being done.
    A job with `required_by_slot` > 0 must have done `required_quanta` when that many slots of the
    window are over; without it the job is given up where it does not pay. `budget_micro_usd` (0:
    none) bounds what it spends in the window.
    """

    job_id: str
    programs: tuple[JobProgram | None, ...]
    migrations: MigrationTable | None = None
    start: PlacedProgress = field(default_factory=PlacedProgress)
    first_slot: int = 0
    elapsed_slots: int = 0
    end_value: EndValue = None
    required_quanta: int = 0
    required_by_slot: int = 0
    budget_micro_usd: int = 0

    def __post_init__(self) -> None:
        runnable = [program for program in self.programs if program is not None]
        if not runnable:
            raise ValueError(f"programs of {self.job_id} must hold one that is not None")
        check_programs(runnable)
        if any(not p.shrink_s <= p.grow_s <= p.interrupted_s for p in runnable):
            raise ValueError(
                f"overheads of {self.job_id} must satisfy shrink_s <= grow_s <= interrupted_s"
            )
        if self.first_slot and self.start.holding.instances:
            raise ValueError(f"start of {self.job_id} must hold nothing where it begins later")
        if self.start.home != NOWHERE and self.programs[self.start.home] is None:
            raise ValueError(f"start.home of {self.job_id} must be an offering it can run on")

    @property
    def program(self) -> JobProgram:
        """The first of its programs: work, deadline and value are equal in all."""
        return next(program for program in self.programs if program is not None)

    @property
    def runs_on(self) -> tuple[int, ...]:
        """Indices of the offerings it can run on."""
        return tuple(k for k, program in enumerate(self.programs) if program is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoupledSchedule:
    """One job's part of a plan; the result's `finished_slot` counts slots of the job's life.

    `end_value_micro_usd` is the worth of what is left undone at the window's end, in no result.
    """

    job_id: str
    result: PlacedResult
    end_value_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoupledPlan:
    """A plan of all jobs, in their order.

    `utility_micro_usd` is what it earns, end values included; no plan earns more than
    `upper_utility_micro_usd`. `proven` says that they are equal.
    """

    schedules: tuple[CoupledSchedule, ...]
    utility_micro_usd: int
    upper_utility_micro_usd: int

    @property
    def proven(self) -> bool:
        """Whether this is an optimum."""
        return self.utility_micro_usd >= self.upper_utility_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why there is no plan: the jobs that cannot all be served, what they lack, and by when.

    `resources` is empty where a job cannot make it even alone. `slot` is the number of the last
    slot by which the named jobs would have to be done.
    """

    reason: str
    job_ids: tuple[str, ...]
    resources: tuple[str, ...]
    slot: int


# --- one job alone ----------------------------------------------------------------------------


def solve_alone(
    job: CoupledJob,
    markets: Sequence[WindowMarket],
    cell_limit: int,
    rounding: Rounding,
) -> tuple[int, tuple[PlacedHolding, ...]]:
    """The best of one job on these markets: utility, and placements of the whole window."""
    slots = len(markets[0])
    if job.first_slot >= slots:
        return end_worth(job, job.start), (NOT_PLACED,) * slots
    runs_on = job.runs_on
    groups: list[tuple[int, ...]] = [runs_on]
    if job.migrations is None:
        groups = [(job.start.home,)] if job.start.home != NOWHERE else [(k,) for k in runs_on]
    best = -(2**62)
    placements: tuple[PlacedHolding, ...] = (NOT_PLACED,) * slots
    for group in groups:
        offerings = [
            _opened(program, markets[k].between(job.first_slot, slots))
            for k in group
            if (program := job.programs[k]) is not None
        ]
        end_value = job.end_value
        if isinstance(end_value, Sequence):
            end_value = [end_value[runs_on.index(k)] for k in group]
        home = group.index(job.start.home) if job.start.home in group else NOWHERE
        plan = solve_multi_window(
            offerings,
            _sub_table(job.migrations, group),
            replace(job.start, home=home),
            elapsed_slots=job.elapsed_slots,
            end_value=end_value,
            rounding=rounding,
            cell_limit=cell_limit,
        )
        if plan.utility_micro_usd > best:
            best = plan.utility_micro_usd
            placements = (NOT_PLACED,) * min(job.first_slot, slots) + tuple(
                PlacedHolding(offering=group[one.offering], holding=one.holding)
                if one.offering != NOWHERE
                else NOT_PLACED
                for one in plan.placements
            )
    return best, placements


def _opened(program: JobProgram, market: WindowMarket) -> OfferingWindow:
    most_spot = int(market.spot_available.max(initial=0))
    configs = all_configurations(program, most_spot=most_spot)
    return OfferingWindow(program=program, configs=configs, market=market)


def _sub_table(migrations: MigrationTable | None, group: Sequence[int]) -> MigrationTable:
    if migrations is None:
        return ()
    return tuple(tuple(migrations[a][b] for b in group) for a in group)


def solo_bound(job: CoupledJob, shared: SharedMarket, cell_limit: int) -> int:
    """No plan lets the job earn more: it alone, on all there is."""
    markets = [within_quota(shared, k) for k in range(len(shared.markets))]
    return solve_alone(job, markets, cell_limit, Rounding.UP)[0]


def within_quota(shared: SharedMarket, offering: int) -> WindowMarket:
    """An offering's market with no count above the quota of its pool."""
    market = shared.markets[offering]
    for pool, limit in shared.quotas:
        if shared.quota_pools[offering] == pool:
            market = replace(
                market,
                spot_available=np.minimum(market.spot_available, limit),
                on_demand_available=np.minimum(market.on_demand_available, limit),
            )
    return market


def one_after_the_other(
    jobs: Sequence[CoupledJob],
    shared: SharedMarket,
    cell_limit: int,
    order: Sequence[int] | None = None,
) -> list[tuple[PlacedHolding, ...]]:
    """Schedules on what those before left, in this order or the required ones first.

    A guess: a quota or the budget may be exceeded, and required work undone.
    """
    slots = shared.slots
    spot = [market.spot_available.copy() for market in shared.markets]
    stock = [market.on_demand_available.copy() for market in shared.markets]
    quota_left = {pool: np.full(slots, limit, dtype=np.int64) for pool, limit in shared.quotas}
    guess: list[tuple[PlacedHolding, ...]] = [(NOT_PLACED,) * slots for _ in jobs]
    by_deadline = sorted(
        range(len(jobs)),
        key=lambda j: (not jobs[j].required_by_slot, jobs[j].required_by_slot, j),
    )
    for j in by_deadline if order is None else order:
        markets = []
        for k, market in enumerate(shared.markets):
            left = quota_left.get(shared.quota_pools[k]) if shared.quota_pools else None
            markets.append(
                replace(
                    market,
                    spot_available=spot[k] if left is None else np.minimum(spot[k], left),
                    on_demand_available=stock[k] if left is None else np.minimum(stock[k], left),
                )
            )
        guess[j] = solve_alone(jobs[j], markets, cell_limit, Rounding.DOWN)[1]
        for t, one in enumerate(guess[j]):
            if one.offering == NOWHERE:
                continue
            k = one.offering
            spot[k][t] -= one.holding.spot
            stock[k][t] -= one.holding.on_demand
            left = quota_left.get(shared.quota_pools[k]) if shared.quota_pools else None
            if left is not None:
                left[t] = max(0, left[t] - one.holding.instances)
    return guess


# --- executing --------------------------------------------------------------------------------


def execute_coupled(
    jobs: Sequence[CoupledJob],
    shared: SharedMarket,
    placements: Sequence[Sequence[PlacedHolding]],
) -> tuple[PlacedResult, ...]:
    """Run one schedule per job through the accounting; slots before a job's first are idle.

    What follows the slot in which a job is done is not held. Limits are not checked here.
    """
    states = [job.start for job in jobs]
    cost = [0] * len(jobs)
    egress = [0] * len(jobs)
    finished = [0] * len(jobs)
    held: list[list[PlacedHolding]] = [[] for _ in jobs]
    for t in range(shared.slots):
        together = [0] * len(shared.markets)
        for state in states:
            if state.holding.spot:
                together[state.home] += state.holding.spot
        over = [
            together[k] > int(market.spot_available[t]) for k, market in enumerate(shared.markets)
        ]
        for j, job in enumerate(jobs):
            if finished[j] or job.start.progress_quanta >= job.program.work_quanta:
                # What it held in the slot before counted; it is released by now.
                states[j] = replace(states[j], holding=Holding(), pending_overhead_s=0)
                held[j].append(NOT_PLACED)
                continue
            after = placements[j][t] if t < len(placements[j]) else NOT_PLACED
            held[j].append(after)
            if t < job.first_slot:
                continue
            programs = programs_by_offering(job)
            broken = is_hit(states[j], after, over)
            table = job.migrations or ()
            if after.offering != NOWHERE:
                cost[j] += placement_cost_micro_usd(programs, shared.markets, after, t)
                egress[j] += move_cost_micro_usd(table, states[j], after)
            states[j] = advance_placed(
                programs, table, states[j], after, held_s=job.program.slot_s, interrupted=broken
            )
            if states[j].progress_quanta >= job.program.work_quanta:
                finished[j] = job.elapsed_slots + t - job.first_slot + 1
    results = []
    for j, job in enumerate(jobs):
        program = job.program
        number = finished[j]
        value = program.value_micro_usd[number] if 0 < number <= program.end_slots else 0
        results.append(
            PlacedResult(
                utility_micro_usd=value - cost[j] - egress[j],
                cost_micro_usd=cost[j] + egress[j],
                egress_micro_usd=egress[j],
                value_micro_usd=value,
                finished_slot=number,
                on_time=0 < number <= program.deadline_slots,
                placements=tuple(held[j]),
                end=states[j],
            )
        )
    return tuple(results)


def programs_by_offering(job: CoupledJob) -> list[JobProgram]:
    """Programs by offering; those it cannot run on are never read."""
    return [program or job.program for program in job.programs]


def is_hit(state: PlacedProgress, after: PlacedHolding, over: Sequence[bool]) -> bool:
    """Whether the job loses spot where all jobs together held more than there is."""
    if not state.holding.spot or not over[state.home]:
        return False
    kept = after.holding.spot if after.offering == state.home else 0
    return kept < state.holding.spot


def end_worth(job: CoupledJob, end: PlacedProgress) -> int:
    """End value of an unfinished job; one that was done before is worth nothing any more."""
    if end.progress_quanta >= job.program.work_quanta:
        return 0
    runnable = [program for program in job.programs if program is not None]
    at_end = np.array([end.progress_quanta], dtype=np.int64)
    return int(terminal_values(runnable, at_end, job.end_value)[0])


def plan_of(
    jobs: Sequence[CoupledJob],
    shared: SharedMarket,
    placements: Sequence[Sequence[PlacedHolding]],
    upper: int,
) -> CoupledPlan:
    """Execute one schedule per job; `upper` is in micro-USD."""
    schedules = []
    for job, result in zip(jobs, execute_coupled(jobs, shared, placements), strict=True):
        worth = 0 if result.finished_slot else end_worth(job, result.end)
        schedules.append(
            CoupledSchedule(job_id=job.job_id, result=result, end_value_micro_usd=worth)
        )
    utility = sum(one.result.utility_micro_usd + one.end_value_micro_usd for one in schedules)
    return CoupledPlan(
        schedules=tuple(schedules),
        utility_micro_usd=utility,
        upper_utility_micro_usd=max(utility, upper),
    )
