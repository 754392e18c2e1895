"""Plan several jobs at once up to the last of their deadlines, on what they share.

The window begins with the next slot and ends with the last job (after `MOST_SLOTS` at the latest).
Counts and prices are those that policies plan with, medians, and prices that hold the risk of
falling back on demand: of the forecast as far as that goes (`window_forecast`), of the sampled
futures after that. That all jobs are on time is as likely as the share of those futures in which
they are, decided slot by slot as when they run, within the same limits.

What a job that is not done when the window ends is worth is AHAP's end value: by the straight line
to its deadline, progress missing at the on-demand price, progress ahead at half of it; after a soft
deadline, what finishing on demand still earns. A hard deadline inside the window must be met;
beyond it, so much must be done that its largest on-demand count, wherever that is fastest, can do
the rest in time after the worst overhead. What other jobs hold is considered in the probability
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spotline.application.admission import check_job
from spotline.application.allocation.on_demand_quote import valued
from spotline.application.allocation.tasks import forecast_of, program_of
from spotline.application.allocator.messages import (
    JointPlan,
    JointSchedule,
    PlanAnswer,
    PlanRequest,
    PlanStep,
)
from spotline.application.market_view import MarketView
from spotline.application.outlook.fleets import FleetLimits
from spotline.application.outlook.following import SelectorSnapshot
from spotline.application.outlook.futures import MarketFutures, OfferingFutures
from spotline.application.outlook.outlook import fleets_of, market_futures, slots_ahead
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.measured import planned_lead_s
from spotline.domain.jobs.migration import NOWHERE, MigrationCost, MigrationTable, migration_cost
from spotline.domain.jobs.program import JobProgram
from spotline.domain.kernels import IntArray
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.policies.ahap import line_value
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.solvers.coupled import solve_coupled
from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    CoupledPlan,
    CoupledSchedule,
    Infeasible,
    SharedMarket,
)
from spotline.domain.solvers.multi_window import EndValue
from spotline.domain.solvers.window import WindowMarket
from spotline.domain.units import PPM, cost_micro_usd

# The longest window: the program grows with every slot of it.
MOST_SLOTS = 96

# CP-SAT's own count of work; about as many seconds on one core, and as much again for a reason.
_WORK = 4.0

# Being ahead of the line to the deadline is worth this share of the on-demand price.
_SIGMA_PPM = 500_000

MOST_JOBS = 32

# What probability of being on time hard deadlines ask for where nobody says.
LEAST_ON_TIME_PPM = 990_000

# Futures in which all jobs are followed: about this many slots are lived through in all.
_MOST_LIVED = 4_000
_LEAST_FUTURES, _MOST_FUTURES = 40, 100


def plan_together(
    request: PlanRequest, market: MarketView, known: SelectorSnapshot, *, quote_margin: float
) -> PlanAnswer:
    """Plan all of `request.jobs` for the greatest sum of value less cost.

    Raises
    ------
    ValueError
        No quote to plan on, a limit or a job that does not fit the market; the message begins with
        the field.
    """
    _check(request, market)
    jobs_at_value: list[Job] = []
    for index, job in enumerate(request.jobs):
        refused = check_job(market, job)
        if refused is not None:
            field = refused.field.replace("job.", f"jobs[{index}].", 1)
            if not (refused.permanent or refused.earliest_feasible_deadline_ns):
                raise ValueError(f"{field} {refused.message}")
            return _without_plan(
                f"{field} {refused.message}", refused.earliest_feasible_deadline_ns
            )
        jobs_at_value.append(valued(market, job, margin=quote_margin, field=f"jobs[{index}]"))
    request = replace(request, jobs=tuple(jobs_at_value))
    offerings, quotes = _offerings(request.jobs, market)
    slots = min(MOST_SLOTS, max(slots_ahead(known.state, job) for job in request.jobs))
    futures = max(_LEAST_FUTURES, _MOST_LIVED // (slots * len(request.jobs)))
    ahead = market_futures(known.state, slots=slots, futures=min(_MOST_FUTURES, futures))
    shared = _shared(request, market, offerings, quotes, ahead)
    jobs = [_coupled_job(request, market, job, offerings, quotes, shared) for job in request.jobs]
    plan = solve_coupled(jobs, shared, max_deterministic_time=_WORK)
    if isinstance(plan, Infeasible):
        return _without_plan(plan.reason, 0)
    if not isinstance(plan, CoupledPlan):
        return _without_plan(
            f"neither a plan nor a proof that there is none: {plan.reason}; plan fewer jobs at a "
            "time",
            0,
        )
    all_ppm = _all_on_time_ppm(request, market, known, ahead)
    hard = any(job.deadline.kind is DeadlineKind.HARD for job in request.jobs)
    least_ppm = request.least_on_time_ppm or (LEAST_ON_TIME_PPM if hard else 0)
    return PlanAnswer(
        feasible=True,
        infeasible_reason="",
        earliest_feasible_deadline_ns=0,
        options=(),
        joint=_joint(request.jobs, market, jobs, shared, plan),
        all_on_time_probability_ppm=all_ppm,
        likely_enough=all_ppm >= least_ppm,
    )


def _all_on_time_ppm(
    request: PlanRequest, market: MarketView, known: SelectorSnapshot, ahead: MarketFutures
) -> int:
    """The share of the futures in which every job is on time within the limits."""
    limits = FleetLimits(
        pools={offering.offering_id: offering.quota_pool for offering in market.offerings},
        quotas={limit.quota_pool: limit.instances for limit in request.quotas},
        budget_micro_usd_per_hour=request.budget_micro_usd_per_hour,
    )
    fleets = fleets_of(known, request.jobs, limits, ahead)
    if fleets is None:
        return 0
    return sum(fleet.all_on_time for fleet in fleets) * PPM // len(fleets)


def _without_plan(reason: str, earliest_ns: int) -> PlanAnswer:
    return PlanAnswer(
        feasible=False,
        infeasible_reason=reason,
        earliest_feasible_deadline_ns=earliest_ns,
        options=(),
    )


def _check(request: PlanRequest, market: MarketView) -> None:
    if request.policy_ids:
        raise ValueError("policy_ids must be empty where jobs are planned together")
    if len(request.jobs) > MOST_JOBS:
        raise ValueError(f"jobs must hold at most {MOST_JOBS}, held {len(request.jobs)}")
    seen: set[str] = set()
    for index, job in enumerate(request.jobs):
        if job.job_id in seen:
            raise ValueError(f"jobs[{index}].job_id must be unique, {job.job_id} was before")
        seen.add(job.job_id)
    for name in ("budget_micro_usd_per_hour", "egress_micro_usd_per_gb"):
        if getattr(request, name) < 0:
            raise ValueError(f"{name} must be >= 0, was {getattr(request, name)}")
    pools = sorted({offering.quota_pool for offering in market.offerings} - {""})
    limited: set[str] = set()
    for index, limit in enumerate(request.quotas):
        where = f"quotas[{index}]"
        if limit.quota_pool not in pools:
            raise ValueError(
                f"{where}.quota_pool must be one of {', '.join(pools)}, was {limit.quota_pool!r}"
            )
        if limit.quota_pool in limited:
            raise ValueError(f"{where}.quota_pool must be unique, {limit.quota_pool} was before")
        if limit.instances < 0:
            raise ValueError(f"{where}.instances must be >= 0, was {limit.instances}")
        limited.add(limit.quota_pool)


def _offerings(
    jobs: Sequence[Job], market: MarketView
) -> tuple[tuple[Offering, ...], tuple[Quote, ...]]:
    """The quoted offerings that one of the jobs can run on, by id."""
    quoted = {sq.quote.offering_id: sq.quote for sq in market.quotes}
    found: dict[str, Offering] = {}
    for index, job in enumerate(jobs):
        here = [o for o, _ in market.runnable(job) if o.offering_id in quoted]
        if not here:
            raise ValueError(f"quotes must hold one of an offering that jobs[{index}] can run on")
        found.update((offering.offering_id, offering) for offering in here)
    ids = sorted(found)
    return tuple(found[offering_id] for offering_id in ids), tuple(
        quoted[offering_id] for offering_id in ids
    )


def _shared(
    request: PlanRequest,
    market: MarketView,
    offerings: Sequence[Offering],
    quotes: Sequence[Quote],
    ahead: MarketFutures,
) -> SharedMarket:
    slots = ahead.slots
    markets = []
    for offering, quote in zip(offerings, quotes, strict=True):
        stock = quote.on_demand_available
        price, count = _medians(ahead.offerings[offering.offering_id])
        forecast = forecast_of(market.forecast, quote)
        if forecast is not None:
            known = min(slots, len(forecast.spot_price))
            price[:known] = forecast.spot_price[:known]
            count[:known] = forecast.spot_available[:known]
        markets.append(
            WindowMarket(
                spot_price=np.array(price, dtype=np.int64),
                on_demand_price=np.full(slots, quote.on_demand_price_micro_usd, dtype=np.int64),
                spot_available=np.array(count, dtype=np.int64),
                on_demand_available=_until_it_ends(
                    offering, stock.instances if stock.known else UNCOUNTED, market, slots
                ),
            )
        )
    pools = tuple(offering.quota_pool for offering in offerings)
    return SharedMarket(
        offering_ids=tuple(offering.offering_id for offering in offerings),
        markets=tuple(markets),
        quota_pools=pools,
        # A pool that none of the jobs can touch limits nothing.
        quotas=tuple((q.quota_pool, q.instances) for q in request.quotas if q.quota_pool in pools),
        budget_micro_usd_per_hour=request.budget_micro_usd_per_hour,
        first_slot=market.next_slot,
    )


def _medians(ahead: OfferingFutures) -> tuple[list[int], list[int]]:
    """Prices and counts slot by slot, as `window_forecast` makes them of distributions."""
    prices, counts = [], []
    for slot in range(ahead.spot.shape[1]):
        # The largest m with P(count >= m) >= 1/2.
        ordered = np.sort(ahead.spot[:, slot])[::-1]
        median = int(ordered[(len(ordered) - 1) // 2])
        certain = float((ahead.spot[:, slot] >= median).mean())
        spot_price = float(ahead.spot_price[:, slot].mean())
        price = spot_price * certain + ahead.on_demand_price * (1.0 - certain)
        prices.append(max(1, int(price)))
        counts.append(median)
    return prices, counts


def _until_it_ends(offering: Offering, stock: int, market: MarketView, slots: int) -> IntArray:
    """What may be held on demand in every slot: of a reservation nothing from its end on."""
    counts = np.full(slots, stock, dtype=np.int64)
    if offering.reservation is not None:
        covered = offering.reservation.whole_slots(market.next_slot_start_ns, market.slot_s)
        counts[covered:] = 0
    return counts


def _lasting(
    offerings: Sequence[Offering], programs: Sequence[JobProgram | None]
) -> list[JobProgram | None]:
    """A job's programs by offering, less those on reservations where it can run elsewhere.

    What is not planned yet must not be left to what may have ended by then, or be taken by others.
    """
    traded = [
        program if offering.reservation is None else None
        for offering, program in zip(offerings, programs, strict=True)
    ]
    return traded if any(traded) else list(programs)


def _coupled_job(
    request: PlanRequest,
    market: MarketView,
    job: Job,
    offerings: Sequence[Offering],
    quotes: Sequence[Quote],
    shared: SharedMarket,
) -> CoupledJob:
    first_slot, first_ns = market.first_slot(job)
    programs: list[JobProgram | None] = []
    for offering in offerings:
        runs = job.throughput_on(offering.offering_id, offering.instance_type) is not None
        programs.append(
            program_of(
                job,
                offering.offering_id,
                offering.instance_type,
                market.slot_s,
                first_ns,
                planned_lead_s(job, offering.notice_lead_s),
            ).planned
            if runs
            else None
        )
    waits = min(first_slot - market.next_slot, shared.slots)
    lasting = _lasting(offerings, programs)
    required_quanta, required_by_slot = _requirement(job, lasting, waits, shared.slots)
    return CoupledJob(
        job_id=f"{job.job_id[:12]} ({job.name})" if job.name else job.job_id[:12],
        programs=tuple(programs),
        migrations=_migrations(job, offerings, request.egress_micro_usd_per_gb),
        first_slot=waits,
        end_value=_end_value(programs, lasting, quotes, shared.slots - waits),
        required_quanta=required_quanta,
        required_by_slot=required_by_slot,
        budget_micro_usd=job.budget_micro_usd,
    )


def _migrations(
    job: Job, offerings: Sequence[Offering], egress_micro_usd_per_gb: int
) -> MigrationTable:
    """What moving costs; a copy within a region is free of charge."""
    within = migration_cost(job, egress_micro_usd_per_gb=0)
    across = migration_cost(job, egress_micro_usd_per_gb=egress_micro_usd_per_gb)

    def between(one: Offering, other: Offering) -> MigrationCost:
        near = (one.provider, one.region) == (other.provider, other.region)
        return within if near else across

    return tuple(tuple(between(offering, other) for other in offerings) for offering in offerings)


def _requirement(
    job: Job, programs: Sequence[JobProgram | None], waits: int, slots: int
) -> tuple[int, int]:
    """Quanta a hard job must have done, and after how many slots of the window; 0 for none."""
    runnable = [program for program in programs if program is not None]
    program = runnable[0]
    lives = slots - waits
    if not program.hard or lives < 1:
        return 0, 0
    if program.deadline_slots <= lives:
        return program.work_quanta, waits + program.deadline_slots
    later_s = (program.deadline_slots - lives) * program.slot_s
    required = program.work_quanta
    for offering in runnable:
        worst_s = max(offering.launch_s, offering.interrupted_s, job.overheads.migrate_s)
        rate = offering.rate_quanta_per_s[offering.max_instances]
        required = min(required, offering.work_quanta - rate * max(0, later_s - worst_s))
    return (required, slots) if required > 0 else (0, 0)


def _end_value(
    programs: Sequence[JobProgram | None],
    lasting: Sequence[JobProgram | None],
    quotes: Sequence[Quote],
    lives: int,
) -> EndValue:
    """What progress is worth after `lives` slots of the job's life."""
    priced = [
        (program, quote.on_demand_price_micro_usd)
        for program, quote in zip(lasting, quotes, strict=True)
        if program is not None
    ]
    runs = [(p, quote) for p, quote in zip(programs, quotes, strict=True) if p is not None]
    if lives >= runs[0][0].deadline_slots:
        # What costs nothing now may cost as much as anything that lasts.
        least = min(price for _, price in priced)
        return [
            _worth_by_slots_left(program, max(least, quote.on_demand_price_micro_usd), lives)
            for program, quote in runs
        ]
    # The offering on which work on demand is cheapest; the first of equals.
    program, price = min(
        priced,
        key=lambda one: (
            one[1] * one[0].max_instances / one[0].rate_quanta_per_s[one[0].max_instances]
        ),
    )
    return line_value(program, _SIGMA_PPM, lives, price)


def _worth_by_slots_left(
    program: JobProgram, on_demand_price_micro_usd: int, lives: int
) -> IntArray:
    """As `value_after_deadline`, for a window that ends at or after the deadline."""
    slot_cost = cost_micro_usd(on_demand_price_micro_usd, program.max_instances, program.slot_s)
    late = range(1, max(0, program.end_slots - lives) + 1)
    worth = [max(0, program.value_micro_usd[lives + left] - left * slot_cost) for left in late]
    return np.array([0, *worth, 0], dtype=np.int64)


def _joint(
    jobs: Sequence[Job],
    market: MarketView,
    coupled: Sequence[CoupledJob],
    shared: SharedMarket,
    plan: CoupledPlan,
) -> JointPlan:
    return JointPlan(
        first_slot=market.next_slot,
        slots=shared.slots,
        utility_micro_usd=plan.utility_micro_usd,
        upper_utility_micro_usd=plan.upper_utility_micro_usd,
        proven=plan.proven,
        schedules=tuple(
            _schedule(job.job_id, market, one, shared, schedule)
            for job, one, schedule in zip(jobs, coupled, plan.schedules, strict=True)
        ),
    )


def _schedule(
    job_id: str,
    market: MarketView,
    job: CoupledJob,
    shared: SharedMarket,
    schedule: CoupledSchedule,
) -> JointSchedule:
    result = schedule.result
    finished = -1
    if result.finished_slot:
        finished = market.next_slot + job.first_slot + result.finished_slot - 1
    steps = []
    for t, placement in enumerate(result.placements):
        if placement.offering == NOWHERE:
            continue
        steps.append(
            PlanStep(
                slot=market.next_slot + t,
                slot_start_ns=market.next_slot_start_ns + t * market.slot_ns,
                lot=Lot(
                    offering_id=shared.offering_ids[placement.offering],
                    spot=placement.holding.spot,
                    on_demand=placement.holding.on_demand,
                ),
            )
        )
    return JointSchedule(
        job_id=job_id,
        cost_micro_usd=result.cost_micro_usd,
        egress_micro_usd=result.egress_micro_usd,
        value_micro_usd=result.value_micro_usd,
        end_value_micro_usd=schedule.end_value_micro_usd,
        finished_slot=finished,
        progress_ppm=result.end.progress_quanta * PPM // job.program.work_quanta,
        steps=tuple(steps),
    )
