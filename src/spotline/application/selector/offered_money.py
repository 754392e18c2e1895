"""What limits on spending leave a job to plan with: without it a plan counts on what it never gets."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.allocation.messages import JobTask
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorOptions, SelectorState
from spotline.domain.limits.spending import Room
from spotline.domain.market.offering import CapacityType


def room_now(state: SelectorState, options: SelectorOptions) -> Room:
    """What may still be spent in the open slot, what it has cost until now taken off."""
    spending = options.limits_on_spending
    room = Room.after(spending, state.spent_in(spending.spans_s))
    quotes = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}
    for run in state.running() if state.offset_s else ():
        quote = quotes[run.offering_id]
        prices = quote.spot_price_micro_usd, quote.on_demand_price_micro_usd
        for kind, cost in run.costs_until(prices, state.offset_s):
            room.add(run.job.tenant, kind, cost)
    return room


def task_under_own_caps(state: SelectorState, run: JobRun, task: JobTask) -> JobTask:
    """The task of a job that a limit of its own or of its tenant has refused more in this slot."""
    if not state.own_caps:
        return task
    job_id = run.job.job_id
    capped = {offering_id for whose, offering_id, _ in state.own_caps if whose == job_id}
    places = tuple(place for place in task.alternatives if place.offering_id not in capped)
    spot = state.own_cap(job_id, task.offering_id, CapacityType.SPOT)
    on_demand = state.own_cap(job_id, task.offering_id, CapacityType.ON_DEMAND)
    return replace(
        task,
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
    if not spending.spans_s and in_pool is None:
        return task
    room = room_now(state, options)
    quoted = {sq.quote.offering_id: sq for sq in state.current.quotes}[task.offering_id]
    rest_s = state.current.slot_s - state.offset_s
    most: dict[CapacityType, int | None] = {}
    for kind, held, bound in (
        (CapacityType.SPOT, task.holding.spot, task.most_spot),
        (CapacityType.ON_DEMAND, task.holding.on_demand, task.most_on_demand),
    ):
        count, _ = room.instances(run.job.tenant, kind, quoted.worst_price(kind), rest_s)
        if in_pool is not None:
            count = in_pool if count < 0 else min(count, in_pool)
        most[kind] = bound
        if 0 <= count < run.job.max_instances:
            most[kind] = max(held, count if bound is None else min(bound, count))
    return replace(
        task, most_spot=most[CapacityType.SPOT], most_on_demand=most[CapacityType.ON_DEMAND]
    )
