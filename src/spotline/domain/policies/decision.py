"""From a policy's wish to what a job really holds: feasibility, last slot, safety net, budget.

Every policy goes through here, in services, simulation and counterfactual replay alike; the rules
themselves are in `settle` and `jobs.offer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs import offer as rules
from spotline.domain.jobs.accounting import Held, hold, lay_out, terms_at
from spotline.domain.jobs.offer import offer_at, standing_at
from spotline.domain.jobs.program import IDLE, Holding
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.kernels import IntArray, kernel
from spotline.domain.policies import settle
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.interface import Choice, Memory, Policy, PolicyView
from spotline.domain.policies.params import view_row
from spotline.domain.units import cost_micro_usd

REASONS = {
    settle.REASON_POLICY: DecisionReason.POLICY,
    settle.REASON_SAFETY_NET: DecisionReason.SAFETY_NET,
    settle.REASON_BUDGET: DecisionReason.BUDGET,
    settle.REASON_AFTER_DEADLINE: DecisionReason.AFTER_DEADLINE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecision:
    """What a job holds for the rest of a slot, what its policy remembers, and why."""

    holding: Holding
    memory: Memory
    reason: DecisionReason


def decide_slot(policy: Policy, view: PolicyView, memory: Memory) -> SlotDecision:
    """Decide one slot of one job.

    The policy chooses; its choice is cut to what is available and allowed; a slot that can finish
    the job takes the cheapest holding that does; the safety net replaces a choice after which
    on-demand alone could no longer meet the deadline; the budget is never exceeded. After a soft
    deadline the job runs on its largest on-demand count as long as its value exceeds the cost.
    """
    program = view.program
    if view.state.progress_quanta >= program.work_quanta:
        return SlotDecision(holding=IDLE, memory=memory, reason=DecisionReason.CLOSED)
    layout = lay_out(program)
    if view.elapsed_slots >= program.deadline_slots:
        settled = _settle_late(layout.row, view_row(view), layout.by_count, layout.values)
    else:
        choice = policy.choose(view, memory)
        return settle_wish(policy, view, choice)
    spot, on_demand, reason = settled
    holding = Holding(spot=spot, on_demand=on_demand)
    return SlotDecision(holding=holding, memory=memory, reason=REASONS[reason])


def settle_wish(policy: Policy, view: PolicyView, choice: Choice) -> SlotDecision:
    """Decide a slot before the deadline in which the policy chose this; see `decide_slot`."""
    layout = lay_out(view.program)
    wish = choice.holding
    # Without a table it is unknown what being late costs.
    netted = view.program.hard or policy.nets_soft_deadlines or view.outlook is None
    netted = netted or view.nets_soft_deadlines
    spot, on_demand, reason = _settle(
        layout.row, view_row(view), wish.spot, wish.on_demand, netted, layout.by_count
    )
    return SlotDecision(
        holding=Holding(spot=spot, on_demand=on_demand),
        memory=choice.memory,
        reason=REASONS[reason],
    )


@kernel
def _settle(
    program: IntArray, row: IntArray, spot: int, on_demand: int, netted: bool, by_count: IntArray
) -> tuple[int, int, int]:
    standing, offer = standing_at(row), offer_at(row)
    wish = Held(spot, on_demand)
    settled = settle.settle(terms_at(program), standing, offer, wish, netted, by_count)
    return settled.after.held.spot, settled.after.held.on_demand, settled.reason


@kernel
def _settle_late(
    program: IntArray, row: IntArray, by_count: IntArray, values: IntArray
) -> tuple[int, int, int]:
    standing, offer = standing_at(row), offer_at(row)
    settled = settle.settle_late(terms_at(program), standing, offer, by_count, values)
    return settled.after.held.spot, settled.after.held.on_demand, settled.reason


def fit(view: PolicyView, wish: Holding) -> Holding:
    """Cut `wish` to what is available, then to the largest allowed count it still covers."""
    by_count = lay_out(view.program).by_count
    spot, on_demand = _fit(view_row(view), wish.spot, wish.on_demand, by_count)
    return Holding(spot=spot, on_demand=on_demand)


@kernel
def _fit(row: IntArray, spot: int, on_demand: int, by_count: IntArray) -> Held:
    return rules.fit(by_count, offer_at(row), Held(spot, on_demand))


def slot_cost_micro_usd(view: PolicyView, holding: Holding) -> int:
    """What holding this for the rest of the slot costs."""
    return cost_micro_usd(view.spot_price, holding.spot, view.slot_left_s) + cost_micro_usd(
        view.on_demand_price, holding.on_demand, view.slot_left_s
    )


def after_slot(view: PolicyView, holding: Holding) -> JobProgress:
    """Where the job stands when the slot is over."""
    return advance(
        view.program, view.state, holding, held_s=view.slot_left_s, interrupted=view.interrupted
    )


def on_demand_to_hold(available: int, held: Holding, *, reserve_slots: int) -> int:
    """How much on-demand may be held: where stock can run out, what is held stays nevertheless."""
    return rules.on_demand_to_hold(available, held.on_demand, reserve_slots)


def rescue_slots(view: PolicyView, holding: Holding) -> int:
    """Slots that on-demand alone still needs after this one, if `holding` is held until then.

    Spot of it is taken to be lost in the worst moment, as the safety net takes it.
    """
    layout = lay_out(view.program)
    return _rescue_slots(
        layout.row, view_row(view), holding.spot, holding.on_demand, layout.by_count
    )


@kernel
def _rescue_slots(
    program: IntArray, row: IntArray, spot: int, on_demand: int, by_count: IntArray
) -> int:
    terms, standing, offer = terms_at(program), standing_at(row), offer_at(row)
    after = hold(terms, standing, Held(spot, on_demand), offer.left_s, by_count)
    return rules.rescue_slots(terms, offer, after, by_count)


def is_safe(view: PolicyView, holding: Holding) -> bool:
    """Whether on-demand alone can still meet the deadline after this slot.

    Spot that is not firm counts as lost at once: no progress, and the overhead of an interruption.
    Until the rescue is held, its launch may have to wait for `reserve_slots`.

    Raises
    ------
    ValueError
        More is held than the job's largest count.
    """
    most = view.program.max_instances
    if holding.instances > most:
        raise ValueError(f"instances held must be <= {most}, were {holding.instances}")
    layout = lay_out(view.program)
    return _is_safe(layout.row, view_row(view), holding.spot, holding.on_demand, layout.by_count)


@kernel
def _is_safe(
    program: IntArray, row: IntArray, spot: int, on_demand: int, by_count: IntArray
) -> bool:
    terms, standing, offer = terms_at(program), standing_at(row), offer_at(row)
    after = hold(terms, standing, Held(spot, on_demand), offer.left_s, by_count)
    return rules.is_safe(terms, standing, offer, after, by_count)
