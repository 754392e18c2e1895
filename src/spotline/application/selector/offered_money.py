"""What limits on spending leave a job to plan with: without it a plan counts on what it never gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spotline.application.allocation.messages import JobTask
from spotline.application.selector.freezing import exemption
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.limits.actions import LimitAction
from spotline.domain.limits.judgement import action_at_limit, limit_name
from spotline.domain.limits.spending import PER_JOB, Room
from spotline.domain.market.offering import CapacityType, Quote
from spotline.domain.units import S_PER_HOUR, cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy of a job's checkpoint to an offering, and what it costs, micro-USD."""

    to_offering_id: str
    micro_usd: int


def room_now(state: SelectorState, options: SelectorOptions) -> Room:
    """What may still be spent in the open slot, what it has cost until now taken off."""
    spending = options.limits_on_spending
    room = Room.after(spending, state.spent_in(spending.spans_s))
    quotes = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}
    for run in state.running():
        for kind, cost in _costs_now(state, run, quotes):
            room.add(run.job.tenant, kind, cost)
    return room


def _costs_now(
    state: SelectorState, run: JobRun, quotes: Mapping[str, Quote]
) -> tuple[tuple[CapacityType, int], ...]:
    """What the open slot has cost a job until now, by capacity type."""
    if not state.offset_s:
        # A copy is paid for as its move is decided, and counts as on-demand.
        return (
            (CapacityType.SPOT, run.probed_micro_usd),
            (CapacityType.ON_DEMAND, run.transfer_cost_micro_usd),
        )
    quote = quotes[run.offering_id]
    prices = quote.spot_price_micro_usd, quote.on_demand_price_micro_usd
    return run.costs_until(prices, state.offset_s)


def left_for_job(state: SelectorState, run: JobRun, options: SelectorOptions) -> int | None:
    """What a job may still cost by the limit on each job, below 0 where it has cost more; None: any."""
    most = options.limits_on_spending.micro_usd_per_job
    return None if most is None else most - spent_until_now(state, run)


def spent_until_now(state: SelectorState, run: JobRun) -> int:
    """What a job has cost in all, the open slot and the copies of its checkpoint included."""
    quotes = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}
    return run.spent_micro_usd + sum(cost for _, cost in _costs_now(state, run, quotes))


def no_room_for_copy(
    state: SelectorState, run: JobRun, copy: Copy, options: SelectorOptions
) -> str:
    """Which limit on money a copy of a job's checkpoint would pass; empty for none.

    A copy is worth nothing without a slot of running where it goes, of the least that the job may
    hold: what the job itself may cost must pay for both. A limit that a job goes on beyond, as its
    finish is worth it, is none here.
    """
    quoted = {sq.quote.offering_id: sq for sq in state.current.quotes}.get(copy.to_offering_id)
    if quoted is None:
        return ""
    least = min(quoted.quote.spot_price_micro_usd, quoted.quote.on_demand_price_micro_usd)
    rest_s = state.current.slot_s - state.offset_s
    cost = copy.micro_usd + cost_micro_usd(least, run.job.allowed_counts[0], rest_s)
    left = left_for_job(state, run, options)
    if left is not None and cost > left:
        return PER_JOB
    bound = run.limit_micro_usd if action_at_limit(run.job) is not LimitAction.FINISH else 0
    if bound and spent_until_now(state, run) + cost > bound:
        return limit_name(run.job)
    spending = options.limits_on_spending
    if not spending.spans_s:
        return ""
    found = spending.left(room_now(state, options).spent, run.job.tenant, CapacityType.ON_DEMAND)
    return found[1] if found is not None and copy.micro_usd > found[0] else ""


def task_under_own_caps(state: SelectorState, run: JobRun, task: JobTask) -> JobTask:
    """The task of a job that a limit of its own or of its tenant has refused more in this slot.

    No limit leaves it less on demand than it holds: a hard deadline that has that now does.
    """
    if not state.own_caps:
        return task
    job_id = run.job.job_id
    capped = {offering_id for whose, offering_id, _ in state.own_caps if whose == job_id}
    places = tuple(place for place in task.alternatives if place.offering_id not in capped)
    spot = state.own_cap(job_id, task.offering_id, CapacityType.SPOT)
    on_demand = state.own_cap(job_id, task.offering_id, CapacityType.ON_DEMAND)
    lets_go = on_demand is not None and on_demand < task.holding.on_demand
    return replace(
        task,
        # Where launches may have to wait, what is held would stay whatever is left.
        on_demand_reserve_slots=0 if lets_go else task.on_demand_reserve_slots,
        alternatives=places,
        most_spot=_least(task.most_spot, spot),
        most_on_demand=_least(task.most_on_demand, on_demand),
    )


def _least(bound: int | None, cap: int | None) -> int | None:
    return min((each for each in (bound, cap) if each is not None), default=None)


def task_within_spending(
    state: SelectorState, run: JobRun, task: JobTask, options: SelectorOptions
) -> JobTask:
    """The task of a job that is offered no more than it alone could be granted.

    What all jobs together are granted is cut when they have answered; what is held stays offered.
    """
    spending = options.limits_on_spending
    in_pool = spending.quotas.get(state.offerings[task.offering_id].quota_pool)
    left = left_for_job(state, run, options)
    if not spending.spans_s and in_pool is None and left is None:
        return task
    room = room_now(state, options)
    quoted = {sq.quote.offering_id: sq for sq in state.current.quotes}[task.offering_id]
    rest_s = state.current.slot_s - state.offset_s
    exempt = 0
    if in_pool is not None and run.is_limited and in_pool < run.job.max_instances:
        # A quota yields to what a hard deadline needs.
        exempt = exemption(state, run, replace(task, most_spot=in_pool)).instances
    most: dict[CapacityType, int | None] = {}
    for kind, held, bound in (
        (CapacityType.SPOT, task.holding.spot, task.most_spot),
        (CapacityType.ON_DEMAND, task.holding.on_demand, task.most_on_demand),
    ):
        count, _ = room.instances(run.job.tenant, kind, quoted.worst_price(kind), rest_s)
        price = quoted.worst_price(kind)
        if left is not None and price > 0 and rest_s > 0:
            by_job = max(0, left) * S_PER_HOUR // (price * rest_s)
            count = by_job if count < 0 else min(count, by_job)
        if in_pool is not None:
            in_quota = in_pool
            if exempt and kind is CapacityType.ON_DEMAND:
                in_quota = max(in_pool, held + exempt)
            count = in_quota if count < 0 else min(count, in_quota)
        most[kind] = bound
        if 0 <= count < run.job.max_instances:
            most[kind] = max(held, count if bound is None else min(bound, count))
    return replace(
        task, most_spot=most[CapacityType.SPOT], most_on_demand=most[CapacityType.ON_DEMAND]
    )
