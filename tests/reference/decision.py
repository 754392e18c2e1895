"""From a policy's wish to what a job really holds: feasibility, last slot, safety net, budget.

Every policy goes through here, in services, simulation and counterfactual replay alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.interface import Memory, Policy, PolicyView
from spotline.domain.units import cost_micro_usd
from tests.reference.progress import advance, fallen, overhead_s


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
    if view.elapsed_slots >= program.deadline_slots:
        holding = _after_deadline(view)
        return _within_budget(view, holding, memory, DecisionReason.AFTER_DEADLINE)
    choice = policy.choose(view, memory)
    holding = fit(view, choice.holding)
    reason = DecisionReason.POLICY
    finishing = _cheapest_finish(view, holding)
    if finishing is not None:
        holding = finishing
    elif _is_netted(view, policy) and not is_safe(view, holding):
        holding = _safest(view)
        reason = DecisionReason.SAFETY_NET
    return _within_budget(view, holding, choice.memory, reason)


def _is_netted(view: PolicyView, policy: Policy) -> bool:
    """Whether the safety net guards the deadline: without a table nobody knows what late costs."""
    return view.program.hard or policy.nets_soft_deadlines or view.outlook is None


def fit(view: PolicyView, wish: Holding) -> Holding:
    """Cut `wish` to what is available, then to the largest allowed count it still covers."""
    spot = min(wish.spot, view.spot_available)
    on_demand = min(wish.on_demand, view.on_demand_available)
    count = largest_allowed(view.program, spot + on_demand)
    # Instances beyond the count are dropped from the dearer side.
    on_demand = min(on_demand, max(0, count - spot)) if count else 0
    return Holding(spot=count - on_demand, on_demand=on_demand)


def largest_allowed(program: JobProgram, most: int) -> int:
    """The largest allowed count <= `most`, 0 where there is none."""
    best = 0
    for count in program.allowed_counts:
        if count > most:
            break
        best = count
    return best


def spot_first(view: PolicyView, instances: int) -> Holding:
    """Hold `instances`, as many of them spot as there are, on-demand for the rest."""
    spot = min(instances, view.spot_available)
    return Holding(spot=spot, on_demand=instances - spot)


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
    return max(available, held.on_demand) if reserve_slots else available


def is_safe(view: PolicyView, holding: Holding) -> bool:
    """Whether on-demand alone can still meet the deadline after this slot.

    Spot that is not firm counts as lost at once: no progress, and the overhead of an interruption.
    Until the rescue is held, its launch may have to wait for `reserve_slots`.
    """
    return _is_safe_after(view, holding, after_slot(view, holding))


def _is_safe_after(view: PolicyView, holding: Holding, after: JobProgress) -> bool:
    program = view.program
    slots_left = program.deadline_slots - view.elapsed_slots - 1
    if holding.spot and not view.spot_firm:
        state = view.state
        if holding == state.holding and not view.interrupted:
            state = fallen(state)
        after = JobProgress(
            progress_quanta=state.progress_quanta,
            holding=holding,
            pending_overhead_s=program.interrupted_s,
        )
    if after.progress_quanta >= program.work_quanta:
        may_lose = program.lost_s and holding.spot and after.unsaved_quanta
        return not may_lose or _outlives_last_loss(view, after)
    left = _left_at_worst(view, after)
    needed = _rescue_slots(view, left, after)
    return needed + (view.reserve_slots if _waits(view, after.holding) else 0) <= slots_left


def _left_at_worst(view: PolicyView, after: JobProgress) -> int:
    """Work left when the slot is over and the spot that is held has gone without notice."""
    if after.holding.spot:
        after = fallen(after)
    return view.program.work_quanta - after.progress_quanta


def _outlives_last_loss(view: PolicyView, after: JobProgress) -> bool:
    """Whether a job that is done in this slot is done in time if spot goes just before that."""
    program, held = view.program, after.holding
    change_s = overhead_s(program, view.state.holding, held, interrupted=view.interrupted)
    left = program.work_quanta - view.state.progress_quanta
    busy_s = -(-left // program.rate_quanta_per_s[held.instances]) if left else 0
    done_s = max(change_s, view.state.pending_overhead_s) + busy_s
    slots_left = program.deadline_slots - view.elapsed_slots - 1
    if _waits(view, held):
        slots_left -= view.reserve_slots
    left_s = view.slot_left_s - done_s + slots_left * program.slot_s
    again_s = -(-after.unsaved_quanta // program.rate_quanta_per_s[_rescue_instances(view)])
    return again_s + _rescue_overhead_s(view, after) <= left_s


def _rescue_instances(view: PolicyView) -> int:
    """What the safety net falls back on: the largest count that on-demand can be had for."""
    program = view.program
    if not view.rescue_instances:
        return program.max_instances
    return largest_allowed(program, view.rescue_instances) or program.max_instances


def _waits(view: PolicyView, held: Holding) -> bool:
    """Whether the rescue must be launched, and its launch may have to wait."""
    return view.reserve_slots > 0 and held.on_demand < _rescue_instances(view)


def _rescue_slots(view: PolicyView, left_quanta: int, after: JobProgress) -> int:
    """Slots of on-demand that the work left takes, moving there included."""
    first_s = _rescue_overhead_s(view, after)
    instances = _rescue_instances(view)
    return view.program.slots_on_demand(left_quanta, first_s, instances=instances)


def _rescue_overhead_s(view: PolicyView, after: JobProgress) -> int:
    """What moving to on-demand costs next slot at worst: spot held now may be taken by then."""
    program = view.program
    held = after.holding
    change_s = overhead_s(program, held, Holding(on_demand=_rescue_instances(view)))
    if held.spot:
        change_s = max(change_s, program.interrupted_s)
    if _waits(view, held):
        # While a launch waits, whatever is held comes and goes.
        change_s = max(program.launch_s, program.grow_s, program.shrink_s, program.interrupted_s)
    return max(after.pending_overhead_s, change_s)


@lru_cache(maxsize=256)
def _splits(allowed_counts: tuple[int, ...]) -> tuple[Holding, ...]:
    return tuple(
        Holding(spot=spot, on_demand=count - spot)
        for count in allowed_counts
        for spot in range(count, -1, -1)
    )


def _feasible(view: PolicyView) -> Iterator[Holding]:
    for holding in _splits(view.program.allowed_counts):
        if holding.spot <= view.spot_available and holding.on_demand <= view.on_demand_available:
            yield holding


def _cheapest_finish(view: PolicyView, chosen: Holding) -> Holding | None:
    """The cheapest holding that ends the job in this slot, if the chosen one ends it."""
    work = view.program.work_quanta
    if after_slot(view, chosen).progress_quanta < work:
        return None
    risky = not view.spot_firm or view.program.lost_s > 0
    if chosen.spot and risky and not is_safe(view, chosen):
        return None
    best, best_cost = chosen, slot_cost_micro_usd(view, chosen)
    for holding in _feasible(view):
        cost = slot_cost_micro_usd(view, holding)
        if cost < best_cost and after_slot(view, holding).progress_quanta >= work:
            if view.program.lost_s and not is_safe(view, holding):
                continue
            best, best_cost = holding, cost
    return best


def _safest(view: PolicyView) -> Holding:
    """The cheapest way through this slot that keeps the deadline safe, else the fastest."""
    program = view.program
    instances = _rescue_instances(view)
    full_slot = cost_micro_usd(view.on_demand_price, instances, program.slot_s)
    best: Holding | None = None
    best_cost = 0
    fastest, most = IDLE, -1
    for holding in _feasible(view):
        after = after_slot(view, holding)
        certain = view.spot_firm or not holding.spot
        if certain and after.progress_quanta > most:
            fastest, most = holding, after.progress_quanta
        if _is_safe_after(view, holding, after):
            left = _left_at_worst(view, after)
            later = _rescue_slots(view, left, after) * full_slot
            cost = slot_cost_micro_usd(view, holding) + later
            if best is None or cost < best_cost:
                best, best_cost = holding, cost
    return fastest if best is None else best


def _after_deadline(view: PolicyView) -> Holding:
    program = view.program
    rescue = Holding(on_demand=min(program.max_instances, view.on_demand_available))
    if rescue.on_demand < program.max_instances:
        return fit(view, rescue)
    first_s = max(
        view.state.pending_overhead_s,
        overhead_s(program, view.state.holding, rescue, interrupted=view.interrupted),
    )
    left = program.work_quanta - view.state.progress_quanta
    slots = program.slots_on_demand(left, first_s)
    finish = view.elapsed_slots + slots
    if finish > program.end_slots:
        return IDLE
    full_slot = cost_micro_usd(view.on_demand_price, program.max_instances, program.slot_s)
    return rescue if program.value_micro_usd[finish] > slots * full_slot else IDLE


def _within_budget(
    view: PolicyView, holding: Holding, memory: Memory, reason: DecisionReason
) -> SlotDecision:
    budget = view.program.budget_micro_usd
    left = budget - view.spent_micro_usd
    if not budget or slot_cost_micro_usd(view, holding) <= left:
        return SlotDecision(holding=holding, memory=memory, reason=reason)
    best, most = IDLE, view.state.progress_quanta
    for candidate in _feasible(view):
        if slot_cost_micro_usd(view, candidate) <= left:
            progress = after_slot(view, candidate).progress_quanta
            if progress > most:
                best, most = candidate, progress
    return SlotDecision(holding=best, memory=memory, reason=DecisionReason.BUDGET)
