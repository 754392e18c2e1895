"""Soft deadlines that have passed: on spot that no other job has use for, if that is worth more.

A value table ends at the deadline and has what is late bought on demand, as its paper has, even beside
idle spot at a third of the price. Here it takes that; but it bids next to nothing for it, and gives it up to
any other job: it has no deadline left to save (ADR 0090).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spotline.application.allocation.seats import Seat, TaskPlace
from spotline.application.allocation.stays import most_that_fit
from spotline.application.allocation.tasks import answer_of, can_hold
from spotline.domain.crowd.bids import Option
from spotline.domain.jobs.lot import holding
from spotline.domain.jobs.program import Holding
from spotline.domain.jobs.progress import overhead_s
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.decision import SlotDecision, slot_cost_micro_usd
from spotline.domain.policies.interface import PolicyView
from spotline.domain.units import cost_micro_usd


def late_worth(view: PolicyView, held: Holding) -> int:
    """What a late job is worth that holds this until it is done, less its cost, micro-USD; 0 if idle.

    A value that falls by the slot is that of the slot in which the job would end.
    """
    if not held.instances:
        return 0
    program, slots = view.program, _slots_left(view, held)
    end = view.elapsed_slots + slots
    value = program.value_micro_usd[end] if end <= program.end_slots else 0
    spot = cost_micro_usd(view.spot_price, held.spot, program.slot_s)
    on_demand = cost_micro_usd(view.on_demand_price, held.on_demand, program.slot_s)
    return value - slots * (spot + on_demand)


def _slots_left(view: PolicyView, held: Holding) -> int:
    """Slots until a job is done that holds this."""
    program, now = view.program, view.state
    change_s = overhead_s(program, now.holding, held, interrupted=view.interrupted)
    left, first_s = program.work_quanta - now.progress_quanta, max(now.pending_overhead_s, change_s)
    return program.slots_on_demand(left, first_s, instances=held.instances)


def late_seat(place: TaskPlace, view: PolicyView, on_demand: Seat) -> Seat:
    """What a late job holds at home of what it is left there, its `view`: spot, or what it would hold without."""
    bought = Holding(spot=0, on_demand=on_demand.option.on_demand)
    held = holding(most_that_fit(view, view.spot_available), 0)
    worth, otherwise = late_worth(view, held), max(0, late_worth(view, bought))
    if worth <= otherwise or not can_hold(view, held):
        option = replace(on_demand.option, value_micro_usd=otherwise)
        return Seat(option, on_demand.answer)
    option = Option(
        offering_id=place.offering_id,
        spot=held.spot,
        on_demand=0,
        # Any other bid is worth more.
        value_micro_usd=otherwise + 1,
        cost_micro_usd=slot_cost_micro_usd(view, held),
    )
    decided = SlotDecision(
        holding=held, memory=place.asked.memory, reason=DecisionReason.AFTER_DEADLINE
    )
    return Seat(option, partial(answer_of, place.task, place.asked, decided))
