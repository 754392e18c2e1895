"""From a policy's wish to what a job really holds: feasibility, last slot, safety net, budget."""

from __future__ import annotations

from typing import NamedTuple

from spotline.domain.jobs.accounting import (
    CAP_S,
    RATE,
    Held,
    Standing,
    Terms,
    change_s,
    cost,
    hold,
    progress_after,
    slots_at,
)
from spotline.domain.jobs.offer import (
    Offer,
    fit,
    is_allowed,
    is_paid_for,
    is_safe,
    rescue_slots,
    slot_cost,
)
from spotline.domain.kernels import IntArray, kernel, part

REASON_POLICY = 0
REASON_SAFETY_NET = 1
REASON_BUDGET = 2
REASON_AFTER_DEADLINE = 3


class Settled(NamedTuple):
    """What a job holds for the rest of a slot, where that leads (`after`), and why."""

    after: Standing
    reason: int


@part
def settle(
    terms: Terms, standing: Standing, offer: Offer, wish: Held, netted: bool, by_count: IntArray
) -> Settled:
    """Cut a wish to a holding.

    Where on-demand costs nothing but its disks, a reservation, all of it is wished for: no policy has a reason to
    leave idle what is paid for. A wish is cut to what is available and allowed; a slot that can finish the job takes the cheapest
    holding that does; where the net guards the deadline (`netted`), it replaces a holding after
    which on-demand alone could no longer meet it; the budget is never exceeded.
    """
    if is_paid_for(offer):
        wish = Held(0, offer.on_demand)
    held = fit(by_count, offer, wish)
    after = hold(terms, standing, held, offer.left_s, by_count)
    settled = Settled(after, REASON_POLICY)
    # Most slots need nothing more: neither finish, net nor budget.
    usual = after.progress < terms.work_quanta and not terms.budget_micro_usd
    if usual and netted:
        usual = is_safe(terms, standing, offer, after, by_count)
    if not usual:
        settled = resettle(terms, standing, offer, after, netted, by_count)
    return settled


@kernel
def resettle(
    terms: Terms,
    standing: Standing,
    offer: Offer,
    after: Standing,
    netted: bool,
    by_count: IntArray,
) -> Settled:
    """Finish, save the deadline or keep to the budget, where what fits (`after`) does not do."""
    reason = REASON_POLICY
    finishes = after.progress >= terms.work_quanta
    safe = True
    sure = offer.firm and not terms.lost_s
    if (netted and not finishes) or (finishes and after.held.spot and not sure):
        safe = is_safe(terms, standing, offer, after, by_count)
    if finishes and safe:
        held = cheapest_finish(terms, standing, offer, after.held, by_count)
        after = hold(terms, standing, held, offer.left_s, by_count)
    elif netted and not safe:
        held = safest(terms, standing, offer, by_count)
        after = hold(terms, standing, held, offer.left_s, by_count)
        reason = REASON_SAFETY_NET
    if terms.budget_micro_usd:
        return within_budget(terms, standing, offer, Settled(after, reason), by_count)
    return Settled(after, reason)


@kernel
def settle_late(
    terms: Terms, standing: Standing, offer: Offer, by_count: IntArray, values: IntArray
) -> Settled:
    """Decide a slot after the deadline: the largest on-demand count while that pays."""
    most = by_count.shape[1] - 1
    held = Held(0, most)
    if offer.on_demand < most:
        held = fit(by_count, offer, Held(0, offer.on_demand))
    else:
        change = change_s(terms, standing.held, held, standing.interrupted)
        left = terms.work_quanta - standing.progress
        first_s = max(standing.pending_s, change)
        slots = slots_at(terms.slot_s, by_count[RATE, most], left, first_s)
        finish = standing.elapsed + slots
        full_slot = cost(offer.on_demand_price, most, terms.slot_s)
        if finish > terms.end_slots or values[finish] <= slots * full_slot:
            held = Held(0, 0)
    after = hold(terms, standing, held, offer.left_s, by_count)
    late = Settled(after, REASON_AFTER_DEADLINE)
    if terms.budget_micro_usd:
        return within_budget(terms, standing, offer, late, by_count)
    return late


@kernel
def within_budget(
    terms: Terms, standing: Standing, offer: Offer, settled: Settled, by_count: IntArray
) -> Settled:
    """Hold what was settled, or what gets furthest on the money left."""
    left = terms.budget_micro_usd - standing.spent
    if slot_cost(offer, settled.after.held) <= left:
        return settled
    best = hold(terms, standing, Held(0, 0), offer.left_s, by_count)
    most = standing.progress
    for count in range(1, by_count.shape[1]):
        if not is_allowed(by_count, count):
            continue
        for spot in range(min(count, offer.spot), max(0, count - offer.on_demand) - 1, -1):
            held = Held(spot, count - spot)
            if slot_cost(offer, held) > left:
                continue
            after = hold(terms, standing, held, offer.left_s, by_count)
            if after.progress > most:
                most = after.progress
                best = after
    return Settled(best, REASON_BUDGET)


# --- splits of a count ------------------------------------------------------------------------


@part
def spot_is_cheaper(terms: Terms, offer: Offer) -> bool:
    """Whether one instance more on spot and one less on demand never costs more, rounded."""
    ordered = terms.shrink_s <= terms.grow_s
    least_saved = offer.on_demand_price * offer.left_s // 3600
    return ordered and -(-offer.spot_price * offer.left_s // 3600) <= least_saved


@part
def next_split(cheaper: bool, spot: int, count: int, held: Held) -> int:
    """The next fewer spot of `count` instances that could beat those before it.

    Where spot is cheaper, only the most spot of each kind of change can: of all, of those inside
    what is held, and none, after which nothing can be reclaimed.
    """
    if not cheaper:
        return spot - 1
    if spot > held.spot and count - held.spot <= held.on_demand:
        return held.spot
    return 0 if spot > 0 else -1


@part
def least_cost(offer: Offer, count: int) -> int:
    """What no split of `count` instances costs less than.

    Two roundings lose less than two micro-dollars on one.
    """
    return cost(min(offer.spot_price, offer.on_demand_price), count, offer.left_s) - 2


@part
def furthest(terms: Terms, standing: Standing, offer: Offer, count: int, by_count: IntArray) -> int:
    """The most progress that any split of `count` instances can make."""
    productive_s = min(max(0, offer.left_s - standing.pending_s), by_count[CAP_S, count])
    return progress_after(terms, by_count[RATE, count], productive_s, standing.progress)


@kernel
def cheapest_finish(
    terms: Terms, standing: Standing, offer: Offer, chosen: Held, by_count: IntArray
) -> Held:
    """The cheapest holding that ends the job in this slot, as the chosen one does.

    Where work may be lost without notice it must be safe too, as the chosen one is.
    """
    cheaper = not terms.lost_s and spot_is_cheaper(terms, offer)
    best = chosen
    least = slot_cost(offer, chosen)
    for count in range(1, by_count.shape[1]):
        if not is_allowed(by_count, count):
            continue
        if least_cost(offer, count) >= least:
            break
        if furthest(terms, standing, offer, count, by_count) < terms.work_quanta:
            continue
        spot = min(count, offer.spot)
        lowest = max(0, count - offer.on_demand)
        while spot >= lowest:
            held = Held(spot, count - spot)
            paid = slot_cost(offer, held)
            if paid < least:
                after = hold(terms, standing, held, offer.left_s, by_count)
                sure = not terms.lost_s or is_safe(terms, standing, offer, after, by_count)
                if sure and after.progress >= terms.work_quanta:
                    least = paid
                    best = held
            spot = next_split(cheaper, spot, count, standing.held)
    return best


@kernel
def safest(terms: Terms, standing: Standing, offer: Offer, by_count: IntArray) -> Held:
    """The cheapest way through this slot that keeps the deadline safe, else the fastest."""
    rate = by_count[RATE, offer.rescue]
    full_slot = cost(offer.on_demand_price, offer.rescue, terms.slot_s)
    # Fewer spot can be safer where a launch of on-demand may have to wait.
    plain = offer.reserve_slots == 0 and offer.rescue == by_count.shape[1] - 1
    # And where work can be lost, what a kept set has not saved counts against it.
    cheaper = plain and not terms.lost_s and spot_is_cheaper(terms, offer)
    slots_left = terms.deadline_slots - standing.elapsed - 1
    reachable = rate * min(max(0, slots_left * terms.slot_s), by_count[CAP_S, offer.rescue])
    best = Held(0, 0)
    least = -1
    for count in range(1, by_count.shape[1]):
        if not is_allowed(by_count, count):
            continue
        # What is left after the best that this count can do bounds all its splits.
        left = terms.work_quanta - furthest(terms, standing, offer, count, by_count)
        if left > reachable:
            continue
        later = slots_at(terms.slot_s, rate, left, 0) * full_slot
        if least >= 0 and least_cost(offer, count) + later >= least:
            continue
        spot = min(count, offer.spot)
        lowest = max(0, count - offer.on_demand)
        while spot >= lowest:
            held = Held(spot, count - spot)
            paid = slot_cost(offer, held)
            if least < 0 or paid + later < least:
                after = hold(terms, standing, held, offer.left_s, by_count)
                if is_safe(terms, standing, offer, after, by_count):
                    paid += rescue_slots(terms, offer, after, by_count) * full_slot
                    if least < 0 or paid < least:
                        least = paid
                        best = held
            spot = next_split(cheaper, spot, count, standing.held)
    return best if least >= 0 else fastest(terms, standing, offer, by_count)


@part
def fastest(terms: Terms, standing: Standing, offer: Offer, by_count: IntArray) -> Held:
    """What makes the most progress of all that is certain to stay."""
    best = Held(0, 0)
    most = -1
    for count in range(1, by_count.shape[1]):
        if not is_allowed(by_count, count):
            continue
        for spot in range(min(count, offer.spot), max(0, count - offer.on_demand) - 1, -1):
            if spot and not offer.firm:
                continue
            held = Held(spot, count - spot)
            after = hold(terms, standing, held, offer.left_s, by_count)
            if after.progress > most:
                most = after.progress
                best = held
    return best
