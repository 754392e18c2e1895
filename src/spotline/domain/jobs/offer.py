"""What a slot offers a job, and the rules about holding it: what fits, what it costs, what is safe.

`Offer` is the bundle that the rules share: what a job may take in a slot or the rest of one, at what
price, and how much is known of later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import (
    CAP_S,
    LARGEST,
    RATE,
    Held,
    Standing,
    Terms,
    change_s,
    cost,
    slots_at,
    unsaved_of,
)
from spotline.domain.kernels import IntArray, inlined, kernel, part, rule
from spotline.domain.market.offering import NO_SPOT_PRICE_MICRO_USD
from spotline.domain.units import PPM


class Offer(NamedTuple):
    """One slot of the market as one job meets it; see `PolicyView` for the meaning.

    `rescue` is the count that the safety net falls back on, an allowed one. `slot` is the column
    of the slot in the forecasts, `steps` how many slots these see ahead, -1 where none is there or
    trusted; `run_state` is where the market is in the law of the job's value table, -1 without.
    """

    spot_price: int
    on_demand_price: int
    spot: int
    on_demand: int
    left_s: int
    reserve_slots: int
    rescue: int
    firm: int
    slot: int
    steps: int
    run_state: int


# Length of a row of standing and offer.
ROW = 19


def row_of(standing: Standing, offer: Offer) -> IntArray:
    """Lay standing and offer out: an array passes faster to a kernel than a bundle."""
    elapsed, progress, held, *rest = standing
    return np.array((elapsed, progress, *held, *rest, *offer), dtype=np.int64)


@part
def standing_at(row: IntArray) -> Standing:
    """Read the standing of a row."""
    return Standing(row[0], row[1], Held(row[2], row[3]), row[4], row[5], row[6], row[7])


@part
def offer_at(row: IntArray) -> Offer:
    """Read the offer of a row."""
    return Offer(
        row[8], row[9], row[10], row[11], row[12], row[13], row[14], row[15], row[16], row[17], row[18]
    )  # fmt: skip


@part
def is_paid_for(offer: Offer) -> bool:
    """Whether it is of a reservation: it costs nothing more, or its disks, and has no spot."""
    return offer.on_demand_price == 0 or (
        offer.spot_price == NO_SPOT_PRICE_MICRO_USD and offer.spot == 0
    )


@part
def price_ppm(offer: Offer, spot_price: int) -> int:
    """A spot price as a share of on-demand's; where that is free there is no spot to be had."""
    return spot_price * PPM // max(1, offer.on_demand_price)


@inlined
def largest_allowed(by_count: IntArray, most: int) -> int:
    """The largest allowed count <= `most`, 0 where there is none."""
    return int(by_count[LARGEST, min(by_count.shape[1] - 1, most)])


@part
def is_allowed(by_count: IntArray, count: int) -> bool:
    """Whether this count > 0 is an allowed one."""
    return bool(by_count[LARGEST, count] == count)


@kernel
def rescue_count(by_count: IntArray, rescue_instances: int) -> int:
    """What the safety net falls back on: the largest count that on-demand can be had for."""
    rescue = largest_allowed(by_count, rescue_instances)
    return rescue if rescue else by_count.shape[1] - 1


@part
def fit(by_count: IntArray, offer: Offer, wish: Held) -> Held:
    """Cut `wish` to what is available, then to the largest allowed count it still covers."""
    spot = min(wish.spot, offer.spot)
    on_demand = min(wish.on_demand, offer.on_demand)
    count = largest_allowed(by_count, spot + on_demand)
    # Instances beyond the count are dropped from the dearer side.
    on_demand = min(on_demand, max(0, count - spot)) if count else 0
    return Held(count - on_demand, on_demand)


@rule
def on_demand_to_hold(available: int, held: int, reserve_slots: int) -> int:
    """How much on-demand may be held: a stock-out hits launches, never what is held."""
    return max(available, held) if reserve_slots > 0 else available


@part
def spot_first(spot_available: int, count: int) -> Held:
    """Hold `count` instances, as many of them spot as there are, on-demand for the rest."""
    spot = min(count, spot_available)
    return Held(spot, count - spot)


@part
def slot_cost(offer: Offer, held: Held) -> int:
    """What holding this for the rest of the slot costs."""
    on_demand = cost(offer.on_demand_price, held.on_demand, offer.left_s)
    return cost(offer.spot_price, held.spot, offer.left_s) + on_demand


@part
def waits(offer: Offer, held: Held) -> bool:
    """Whether the rescue must be launched, and its launch may have to wait."""
    return offer.reserve_slots > 0 and held.on_demand < offer.rescue


@part
def rescue_s(terms: Terms, offer: Offer, after: Standing) -> int:
    """Seconds that moving to the rescue costs next slot at worst: spot may be taken by then."""
    if waits(offer, after.held):
        # While a launch waits, whatever is held comes and goes.
        change = max(max(terms.launch_s, terms.grow_s), max(terms.shrink_s, terms.interrupted_s))
    else:
        change = change_s(terms, after.held, Held(0, offer.rescue), 0)
        if after.held.spot:
            change = max(change, terms.interrupted_s)
    return max(after.pending_s, change)


@part
def left_at_worst(terms: Terms, after: Standing) -> int:
    """Work left next slot if the spot that is held is taken without notice."""
    return terms.work_quanta - after.progress + (after.unsaved if after.held.spot else 0)


@part
def rescue_slots(terms: Terms, offer: Offer, after: Standing, by_count: IntArray) -> int:
    """Slots of on-demand that the work left takes, moving there included."""
    left = left_at_worst(terms, after)
    first_s = rescue_s(terms, offer, after)
    return slots_at(terms.slot_s, by_count[RATE, offer.rescue], left, first_s)


@part
def finish_s(terms: Terms, standing: Standing, held: Held, by_count: IntArray) -> int:
    """Seconds until `held` has done all work."""
    change = change_s(terms, standing.held, held, standing.interrupted)
    rate = by_count[RATE, held.spot + held.on_demand]
    left = terms.work_quanta - standing.progress
    busy_s = -(-left // rate) if left > 0 else 0
    return max(standing.pending_s, change) + busy_s


@inlined
def is_safe(
    terms: Terms, standing: Standing, offer: Offer, after: Standing, by_count: IntArray
) -> bool:
    """Whether on-demand alone can still meet the deadline after this slot.

    Where work may be lost without notice, spot goes in the worst moment, and with it what is not
    saved: when the slot is over, as a later loss leaves less time, or when the job is about to be
    done. Spot that is not firm counts as lost at once: no progress, and the overhead of an interruption. Until the
    rescue is held, its launch may have to wait for `reserve_slots`.
    """
    if after.held.spot and not offer.firm:
        progress = standing.progress - unsaved_of(standing, after.held)
        after = Standing(
            after.elapsed, progress, after.held, terms.interrupted_s, after.spent, 0, 0
        )
    slots_left = terms.deadline_slots - standing.elapsed - 1
    if waits(offer, after.held):
        slots_left -= offer.reserve_slots
    spare_s = slots_left * terms.slot_s - rescue_s(terms, offer, after)
    left = left_at_worst(terms, after)
    if after.progress >= terms.work_quanta:
        if not terms.lost_s or not after.held.spot:
            return True
        # At worst it is lost just before the work is done.
        spare_s += offer.left_s - finish_s(terms, standing, after.held, by_count)
        left = after.unsaved
    # A job that is done and has nothing to lose needs no second more.
    spare_s = max(0, min(spare_s, by_count[CAP_S, offer.rescue]))
    return bool(left <= by_count[RATE, offer.rescue] * spare_s)
