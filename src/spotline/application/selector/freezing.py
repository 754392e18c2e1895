"""Stops of buying in the selector: what a job may hold, and what its deadline has bought all the same.

Under a stop a job is offered what it holds: releasing and keeping are always allowed. On-demand that
a hard deadline needs is exempt from stops that yield to deadlines, as far as the job's quote
reaches. That is decided here alone; the command carries it to the actuator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.allocation.tasks import task_view
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.jobs.lot import holding_of
from spotline.domain.jobs.program import Holding
from spotline.domain.ledger.billing import OfferingPrice
from spotline.domain.limits.freezes import Freeze, Purchase
from spotline.domain.market.offering import CapacityType, Quote
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.decision import fit, is_safe
from spotline.domain.units import cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """On-demand that a hard deadline needs now: how many more, and what is left of the quote."""

    instances: int = 0
    quote_left_micro_usd: int = 0


NO_EXEMPTION = Exemption()


def blocking(
    state: SelectorState, run: JobRun, offering_id: str, capacity_type: CapacityType
) -> Freeze | None:
    """What stands against buying for a job; None for nothing."""
    if not state.freezes.by_id:
        return None
    offering = state.offerings[offering_id]
    return state.freezes.blocking(
        Purchase(
            job_id=run.job.job_id,
            tenant=run.job.tenant,
            offering_id=offering_id,
            account=offering.account_key,
            capacity_type=capacity_type,
        )
    )


def task_under_freezes(state: SelectorState, run: JobRun, task: JobTask) -> JobTask:
    """The task of a job as stops of buying bound it; as it is where none concerns it."""
    if not state.freezes.by_id:
        return task
    alternatives = tuple(
        place
        for place in task.alternatives
        if all(blocking(state, run, place.offering_id, kind) is None for kind in CapacityType)
    )
    bounded = replace(task, alternatives=alternatives)
    if blocking(state, run, task.offering_id, CapacityType.SPOT) is not None:
        bounded = replace(bounded, most_spot=task.holding.spot)
    stop = blocking(state, run, task.offering_id, CapacityType.ON_DEMAND)
    if stop is None:
        return bounded
    held = task.holding.on_demand
    more = exemption(state, run, bounded).instances if stop.yields_to_deadlines else 0
    most = held + more
    if task.most_on_demand is not None:
        most = max(held, min(most, task.most_on_demand))
    return replace(bounded, most_on_demand=most)


def task_at_discount(state: SelectorState, task: JobTask, options: SelectorOptions) -> JobTask:
    """The task of a job that is offered no more spot where that is not as cheap as it must be."""
    spending = options.limits_on_spending
    if not spending.least_spot_discount_ppm:
        return task
    quote = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}[task.offering_id]
    if spending.discounted(quote.spot_price_micro_usd, quote.on_demand_price_micro_usd):
        return task
    return replace(task, most_spot=task.holding.spot)


def exemption(state: SelectorState, run: JobRun, task: JobTask) -> Exemption:
    """What of on-demand an admitted hard deadline needs now, within the job's own quote.

    It needs some where the job could not be saved any more after a slot on what it holds, with all
    the spot that it may have.
    """
    quote_micro_usd = run.on_demand_quote_micro_usd or run.job.on_demand_quote_micro_usd
    if run.job.deadline.kind is not DeadlineKind.HARD or not quote_micro_usd:
        return NO_EXEMPTION
    quoted = {sq.quote.offering_id: sq for sq in state.current.quotes}[task.offering_id]
    left = quote_micro_usd - _spent(state, run)
    left_s = state.current.slot_s - state.offset_s
    each = cost_micro_usd(quoted.worst_price(CapacityType.ON_DEMAND), 1, left_s)
    most = run.job.max_instances if each == 0 else max(0, left) // each
    if blocking(state, run, task.offering_id, CapacityType.SPOT) is not None:
        task = replace(task, most_spot=task.holding.spot)
    if not most or not _is_needed(state, task, quoted.quote):
        return NO_EXEMPTION
    more = min(most, run.job.max_instances - task.holding.on_demand)
    return Exemption(instances=max(0, more), quote_left_micro_usd=left)


def _is_needed(state: SelectorState, task: JobTask, quote: Quote) -> bool:
    request = AllocateRequest(
        slot=state.slot,
        revision=state.revision,
        offset_s=state.offset_s,
        slot_s=state.current.slot_s,
        quotes=(),
        forecast=None,
        reason=DecisionReason.POLICY,
        tasks=(),
    )
    held = holding_of((task.holding,))
    alone = replace(task, table_use=None, most_on_demand=held.on_demand)
    view = task_view(request, alone, quote, state.residual())
    program = view.program
    if view.state.progress_quanta >= program.work_quanta:
        return False
    best = fit(view, Holding(spot=program.max_instances, on_demand=held.on_demand))
    return not is_safe(view, best)


def _spent(state: SelectorState, run: JobRun) -> int:
    """What a job has spent, the open slot included up to now."""
    if not state.offset_s:
        return run.spent_micro_usd
    quote = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}[run.offering_id]
    price = OfferingPrice(
        offering_id=run.offering_id,
        spot_micro_usd=quote.spot_price_micro_usd,
        on_demand_micro_usd=quote.on_demand_price_micro_usd,
    )
    return run.spent_micro_usd + run.ended_at(price, state.offset_s)[1]
