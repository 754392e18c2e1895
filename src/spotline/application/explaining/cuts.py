"""What keeps a holding from being chosen: the rules that decide are asked, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.application.allocation.messages import AllocateRequest
from spotline.application.explaining.facts import DecidedTurn, counted, job_text, usd_text
from spotline.application.explaining.messages import AlternativeCut
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.jobs.program import Holding
from spotline.domain.market.offering import NO_SPOT_PRICE_MICRO_USD, CapacityType, Count, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.decision import (
    fit,
    rescue_slots,
    settle_wish,
    slot_cost_micro_usd,
)
from spotline.domain.policies.interface import Choice, Policy, PolicyView
from spotline.domain.policies.prediction import UNCOUNTED

Cut = tuple[AlternativeCut | None, str]

NO_CUT: Cut = (None, "")
_BY_CLASS: Mapping[RefusalClass | None, AlternativeCut] = {
    RefusalClass.QUOTA: AlternativeCut.QUOTA,
    RefusalClass.LIMIT: AlternativeCut.LIMIT,
    RefusalClass.NO_CAPACITY: AlternativeCut.AVAILABILITY,
    None: AlternativeCut.AVAILABILITY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What bounds a job's choice on one offering, beside what its view says.

    `policy` decides, and has, for this `reason`. `earlier` answers of the same request took first;
    `refusals` are those of the slot until then.
    """

    turn: DecidedTurn
    request: AllocateRequest
    job_id: str
    offering_id: str
    view: PolicyView
    policy: Policy
    reason: DecisionReason
    earlier: Sequence[JobAnswer]
    refusals: Sequence[LaunchRefused]


def cut_of(bounds: Bounds, holding: Holding) -> Cut:
    """What keeps the job from holding this; nothing where its policy could have chosen it."""
    view = bounds.view
    program = view.program
    if holding.instances and holding.instances not in program.allowed_counts:
        allowed = ", ".join(map(str, program.allowed_counts))
        return AlternativeCut.TOPOLOGY, f"the job runs on {allowed}, not on {holding.instances}"
    if fit(view, holding) != holding:
        if holding.spot > view.spot_available:
            return _short(bounds, CapacityType.SPOT, holding.spot, view.spot_available)
        wanted, left = holding.on_demand, view.on_demand_available
        return _short(bounds, CapacityType.ON_DEMAND, wanted, left)
    if view.elapsed_slots >= program.deadline_slots:
        idle = "spot that no other job has use for, " if bounds.request.late_on_spot else ""
        return (
            AlternativeCut.RULE,
            f"after its deadline a job holds what is worth most of {idle}its largest count on demand, and nothing",
        )
    return _settled(bounds, holding)


def _settled(bounds: Bounds, holding: Holding) -> Cut:
    """What the safety net, the budget and the policy's own rule make of a wish."""
    view = bounds.view
    settled = settle_wish(bounds.policy, view, Choice(holding=holding))
    if settled.reason is DecisionReason.SAFETY_NET:
        return AlternativeCut.SAFETY_NET, _unsafe(bounds, holding)
    if settled.reason is DecisionReason.BUDGET:
        left = view.program.budget_micro_usd - view.spent_micro_usd
        cost = usd_text(slot_cost_micro_usd(view, holding))
        return AlternativeCut.LIMIT, f"costs {cost}, {usd_text(max(0, left))} of the budget is left"
    if bounds.reason is DecisionReason.SAFETY_NET:
        return (
            AlternativeCut.SAFETY_NET,
            "safe too, but dearer with all the on-demand that must follow",
        )
    if bounds.reason is DecisionReason.BUDGET:
        return AlternativeCut.LIMIT, "gets less far on what is left of the budget"
    if _is_paid_for(view) and settled.holding != holding:
        return AlternativeCut.RULE, "what is paid for already is not left idle"
    if not _is_looked_at(bounds.policy, view, holding):
        return (
            AlternativeCut.RULE,
            f"{bounds.policy.policy_id} weighs all the spot there is, what is held, and none",
        )
    return NO_CUT


def _is_paid_for(view: PolicyView) -> bool:
    """The rule of `domain.jobs.offer.is_paid_for`, on a view."""
    return view.on_demand_price == 0 or (
        view.spot_price == NO_SPOT_PRICE_MICRO_USD and view.spot_available == 0
    )


def _is_looked_at(policy: Policy, view: PolicyView, holding: Holding) -> bool:
    """Whether a policy that looks ahead through a table weighs this split; see `look_ahead`."""
    if not policy.uses_table or view.outlook is None or not holding.instances:
        return True
    most = min(holding.instances, view.spot_available)
    held = view.state.holding.spot
    return holding.spot in (0, most) or (holding.spot == held and held < most)


def _unsafe(bounds: Bounds, holding: Holding) -> str:
    view = bounds.view
    needed = rescue_slots(view, holding)
    left = view.program.deadline_slots - view.elapsed_slots - 1
    spot = ", if that spot is lost" if holding.spot else ""
    if needed <= left:
        why = "its spot may be gone before it is of use" if holding.spot else "it may have to wait"
        return f"on-demand would need {needed} of the {counted(left, 'slot')} left, and {why}"
    return f"on-demand would then need {counted(needed, 'slot')} and has {left}{spot}"


# --- too few instances ------------------------------------------------------------------------


def _short(bounds: Bounds, capacity: CapacityType, wanted: int, left: int) -> Cut:
    """Why there are fewer instances than wanted: taken, refused, or not there."""
    name = capacity.value.replace("_", "-")
    offering_id = bounds.offering_id
    asked = _count(_quote(bounds.request.quotes, offering_id), capacity)
    quoted = _count(_quote(bounds.turn.market.opened.quotes, offering_id), capacity)
    takers = _takers([(answer.job_id, answer.lots) for answer in bounds.earlier], bounds, capacity)
    if wanted <= asked and takers:
        bid = bounds.request.clearing and not bounds.request.serves_in_turn
        how = "worth more there" if bid else "chose first"
        said = f"{left} of {asked} {name} are left: {_named(takers, bounds)} {how}"
        return AlternativeCut.YIELDED, said
    if (offering_id, capacity) in bounds.turn.market.caps:
        return _refused(bounds, capacity, left)
    decided = {task.job.job_id for task in bounds.request.tasks}
    holders = _takers(
        [
            (job_id, job.held_lots)
            for job_id, job in sorted(bounds.turn.jobs.items())
            if job_id not in decided
        ],
        bounds,
        capacity,
    )
    if wanted <= quoted and holders:
        said = f"{left} of {quoted} {name} are left: {_named(holders, bounds)} holds the rest"
        return AlternativeCut.YIELDED, said
    return AlternativeCut.AVAILABILITY, f"{wanted} {name} are wanted, {left} are there"


def _refused(bounds: Bounds, capacity: CapacityType, left: int) -> Cut:
    name = capacity.value.replace("_", "-")
    refusals = [
        refusal
        for refusal in bounds.refusals
        if refusal.offering_id == bounds.offering_id and refusal.capacity_type is capacity
    ]
    if not refusals:
        return AlternativeCut.AVAILABILITY, f"refused in this slot: {left} {name} are all there is"
    last = refusals[-1]
    said = f"{last.granted} of {last.requested} {name} were granted in this slot"
    if last.refusal_class is not None:
        said += f" ({last.refusal_class.value.replace('_', ' ')})"
    cut = _BY_CLASS.get(last.refusal_class, AlternativeCut.COOL_DOWN)
    if last.retry_after_s:
        said += f", not asked for again for {last.retry_after_s} s"
        if cut is AlternativeCut.AVAILABILITY:
            cut = AlternativeCut.COOL_DOWN
    return cut, said


def _takers(
    lots_of: Sequence[tuple[str, Sequence[Lot]]], bounds: Bounds, capacity: CapacityType
) -> list[tuple[str, int]]:
    found = []
    for job_id, lots in lots_of:
        held = holding_of([lot for lot in lots if lot.offering_id == bounds.offering_id])
        count = held.spot if capacity is CapacityType.SPOT else held.on_demand
        if count and job_id != bounds.job_id:
            found.append((job_id, count))
    return found


def _named(takers: Sequence[tuple[str, int]], bounds: Bounds) -> str:
    said = [f"{_name(bounds, job_id)} ({count})" for job_id, count in takers[:3]]
    if len(takers) > len(said):
        said.append(f"{len(takers) - len(said)} more")
    return ", ".join(said)


def _name(bounds: Bounds, job_id: str) -> str:
    return job_text(bounds.turn, bounds.job_id, job_id)


def _quote(quotes: Sequence[SlotQuote], offering_id: str) -> Quote | None:
    found = (slot_quote.quote for slot_quote in quotes)
    return next((quote for quote in found if quote.offering_id == offering_id), None)


def _count(quote: Quote | None, capacity: CapacityType) -> int:
    if quote is None:
        return 0
    spot = capacity is CapacityType.SPOT
    count: Count = quote.spot_available if spot else quote.on_demand_available
    return count.instances if count.known else UNCOUNTED
