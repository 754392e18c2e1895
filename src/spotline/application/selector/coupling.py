"""Limits on all jobs together as a clearing takes them: what is left of them for those that bid."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from spotline.application.allocation.messages import JobTask, PoolQuota
from spotline.application.selector.freezing import exemption
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.offered_money import room_now
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.limits.spending import PoolRoom
from spotline.domain.market.offering import CapacityType


@dataclass(frozen=True, slots=True, kw_only=True)
class CoupledLimits:
    """What is left of quota pools and of what may be spent in all, for the jobs that bid."""

    quotas: tuple[PoolQuota, ...] = ()
    budget_micro_usd: int | None = None


def coupled_limits(
    state: SelectorState, asked: Set[str], options: SelectorOptions
) -> CoupledLimits:
    """The limits on all jobs that a clearing keeps to, beside what jobs hold that are not `asked`.

    Limits by tenant and by capacity type are no couplings: what was cleared is cut to these.
    """
    if not (state.clearing and options.couples_limits):
        return CoupledLimits()
    spending = options.limits_on_spending
    pools, room = PoolRoom.within(spending), room_now(state, options)
    quotes = {quoted.quote.offering_id: quoted for quoted in state.current.quotes}
    rest_s = state.current.slot_s - state.offset_s
    for run in state.running():
        if run.job.job_id in asked:
            continue
        for lot in run.held_lots:
            pools.take(state.offerings[lot.offering_id].quota_pool, lot.spot + lot.on_demand)
            quoted = quotes.get(lot.offering_id)
            if quoted is None:
                continue
            for kind, count in (
                (CapacityType.SPOT, lot.spot),
                (CapacityType.ON_DEMAND, lot.on_demand),
            ):
                room.take(run.job.tenant, kind, quoted.worst_price(kind), count, rest_s)
    left = spending.left_in_total(room.spent)
    return CoupledLimits(
        quotas=tuple(
            PoolQuota(
                quota_pool=pool,
                instances=max(0, pools.left[pool]),
                offering_ids=tuple(
                    name
                    for name, offering in sorted(state.offerings.items())
                    if offering.quota_pool == pool
                ),
            )
            for pool in sorted(pools.left)
        ),
        budget_micro_usd=None if left is None else max(0, left),
    )


def task_in_quota(
    state: SelectorState, run: JobRun, task: JobTask, options: SelectorOptions
) -> JobTask:
    """The task with the on-demand that no quota may refuse it, as it may get no spot at all.

    Who needs it is judged again where what was cleared is cut, by the spot that there is room for then.
    """
    pool = state.offerings[task.offering_id].quota_pool
    coupled = state.clearing and options.couples_limits
    if not coupled or not run.is_limited or pool not in options.limits_on_spending.quotas:
        return task
    if task.offering_id != run.offering_id:
        return task
    bare = replace(task, holding=replace(task.holding, on_demand=0), most_spot=0)
    return replace(task, excepted_on_demand=exemption(state, run, bare).instances)
