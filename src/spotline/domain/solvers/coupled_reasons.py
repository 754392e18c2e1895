"""Why several jobs cannot all be done: which jobs, and which of the shared limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spotline.domain.kernels import IntArray
from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    Infeasible,
    SharedMarket,
    execute_coupled,
)
from spotline.domain.solvers.coupled_model import CoupledModel, SharedLimits, solve_model


def explain_coupled(
    jobs: Sequence[CoupledJob], shared: SharedMarket, work: float, cell_limit: int
) -> Infeasible:
    """Leave out jobs, then limits, as long as it stays impossible: what is left is the reason."""

    def impossible(some: Sequence[CoupledJob], limits: SharedLimits) -> bool:
        return (
            solve_model(CoupledModel(some, shared, limits, cell_limit), work).status == "infeasible"
        )

    required = [job for job in jobs if job.required_by_slot]
    alone = SharedLimits.none()
    for job in required:
        if impossible([job], alone):
            return _cannot_alone(job, shared, work, cell_limit)
    limits = SharedLimits.all_of(shared)
    for job in list(required):
        fewer = [other for other in required if other is not job]
        if fewer and impossible(fewer, limits):
            required = fewer
    for fewer_limits in _looser(limits):
        reduced = fewer_limits(limits)
        if impossible(required, reduced):
            limits = reduced
    return _cannot_together(required, shared, limits)


def _looser(limits: SharedLimits) -> list[Callable[[SharedLimits], SharedLimits]]:
    """Ways to drop one limit each: stock first, for it names least."""

    def without_stock(offering: int) -> Callable[[SharedLimits], SharedLimits]:
        return lambda now: replace(now, on_demand=now.on_demand - {offering})

    def without_spot(offering: int) -> Callable[[SharedLimits], SharedLimits]:
        return lambda now: replace(now, spot=now.spot - {offering})

    def without_quota(pool: str) -> Callable[[SharedLimits], SharedLimits]:
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
    model = CoupledModel([relaxed], shared, SharedLimits.none(), cell_limit)
    most = model.jobs[0].progress_at(job.required_by_slot)
    share = 0
    if not isinstance(most, int):
        model.model.maximize(most)
        answer = solve_model(model, work)
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
    jobs: Sequence[CoupledJob], shared: SharedMarket, limits: SharedLimits
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
