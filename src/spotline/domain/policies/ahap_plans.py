"""What AHAP plans: one window of one of its staggered plans, and the plans found so far.

`Planner` is the bundle of arrays that a caller of AHAP owns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import Standing, Terms
from spotline.domain.jobs.offer import Offer, is_allowed
from spotline.domain.kernels import IntArray, inlined, kernel
from spotline.domain.policies.params import Params
from spotline.domain.solvers.window import WindowEnd, plan_window
from spotline.domain.solvers.window_grid import Ahead, Precision, Sets

# A window's planner may round: its plan is executed on exact progress.
PLANNING_CELLS = 512

# Plans remembered at a time: all of them for jobs of some hundred slots.
MOST_PLANS = 65_536


class Planner(NamedTuple):
    """What AHAP plans with, and its plans.

    `predicted` is price and spot count by (slot, step ahead), shape (2, slots, steps). `lines` and
    `lates` are the worth of progress at the end of a window by on-demand price, of which `prices`
    says by slot which it is: before the deadline, shape (prices, ends, sigmas, 4), and at it,
    shape (prices, late slots). `values` is the worth of finishing by slot.

    `head` leads, by start, reach and sigma, to the last of `entries` (the place planned from, and
    the entry before); the first sigma is for windows that end at the deadline, where sigma plays
    no part. `plans` is what to hold, shape (room, slots, 2), `used` how many there are.
    """

    predicted: IntArray
    prices: IntArray
    lines: IntArray
    lates: IntArray
    values: IntArray
    head: IntArray
    entries: IntArray
    plans: IntArray
    used: IntArray


@inlined
def forget(planner: Planner) -> None:
    """Forget all plans: those of another job, or of another first slot."""
    planner.head[:] = -1
    planner.used[0] = 0


@kernel
def plan_of(
    params: Params,
    terms: Terms,
    track: Standing,
    offer: Offer,
    window: int,
    by_count: IntArray,
    planner: Planner,
) -> int:
    """The index of the plan from `track` over this slot and `window` more, made where missing."""
    late = track.elapsed + window + 1 >= terms.deadline_slots
    sigma = 0 if late else params.sigma + 1
    start = track.elapsed % planner.head.shape[0]
    found = planner.head[start, window, sigma]
    while found >= 0 and not _is_from(planner.entries, found, track):
        found = planner.entries[found, 4]
    if found >= 0:
        return int(found)
    if planner.used[0] == planner.entries.shape[0]:
        forget(planner)
    found = planner.used[0]
    _plan(params, terms, track, offer, window, by_count, planner)
    entry = planner.entries[found]
    entry[0] = track.progress
    entry[1] = track.held.spot
    entry[2] = track.held.on_demand
    entry[3] = track.pending_s
    entry[4] = planner.head[start, window, sigma]
    planner.head[start, window, sigma] = found
    planner.used[0] += 1
    return int(found)


@inlined
def _is_from(entries: IntArray, index: int, track: Standing) -> bool:
    return bool(
        entries[index, 0] == track.progress
        and entries[index, 1] == track.held.spot
        and entries[index, 2] == track.held.on_demand
        and entries[index, 3] == track.pending_s
    )


@inlined
def _plan(
    params: Params,
    terms: Terms,
    track: Standing,
    offer: Offer,
    window: int,
    by_count: IntArray,
    planner: Planner,
) -> None:
    """Plan one window into the next row of `plans`."""
    plan = planner.plans[planner.used[0]]
    if track.progress >= terms.work_quanta:
        plan[: window + 1] = 0
        return
    ahead = _ahead(offer, window, by_count.shape[1] - 1, planner.predicted)
    price = planner.prices[offer.slot]
    ends = track.elapsed + window + 1
    late = ends >= terms.deadline_slots
    line = planner.lines[price, min(ends, planner.lines.shape[1] - 1), params.sigma]
    ending = WindowEnd(planner.lates[price] if late else line, not late)
    sets = window_sets(track, ahead.spot, by_count)
    _, _, chosen = plan_window(
        terms, track, sets, ahead, Precision(PLANNING_CELLS, 0), by_count, planner.values, ending
    )
    for k in range(window + 1):
        plan[k, 0] = sets.spot[chosen[k]]
        plan[k, 1] = sets.on_demand[chosen[k]]


@inlined
def _ahead(offer: Offer, window: int, most: int, predicted: IntArray) -> Ahead:
    """Lay out this slot and the predicted ones; more than `most` instances are of no use."""
    slots = window + 1
    spot_price = np.empty(slots, dtype=np.int64)
    spot = np.empty(slots, dtype=np.int64)
    spot_price[0] = offer.spot_price
    spot[0] = min(most, offer.spot)
    for step in range(window):
        spot_price[step + 1] = predicted[0, offer.slot, step]
        spot[step + 1] = min(most, predicted[1, offer.slot, step])
    on_demand_price = np.empty(slots, dtype=np.int64)
    on_demand = np.empty(slots, dtype=np.int64)
    on_demand_price[:] = offer.on_demand_price
    on_demand[:] = min(most, offer.on_demand)
    return Ahead(spot_price, on_demand_price, spot, on_demand)


@inlined
def window_sets(track: Standing, available: IntArray, by_count: IntArray) -> Sets:
    """What a plan chooses from: idle, what is held, all on-demand, spot first."""
    most = by_count.shape[1] - 1
    wanted = np.zeros((most + 1, most + 1), dtype=np.bool_)
    wanted[0, 0] = True
    wanted[track.held.spot + track.held.on_demand, track.held.spot] = True
    for count in range(1, most + 1):
        if is_allowed(by_count, count):
            wanted[count, 0] = True
            for k in range(available.shape[0]):
                wanted[count, min(count, available[k])] = True
    total = 0
    for count in range(most + 1):
        for spots in range(count + 1):
            total += wanted[count, spots]
    spot = np.empty(total, dtype=np.int64)
    on_demand = np.empty(total, dtype=np.int64)
    at = 0
    for count in range(most + 1):
        for spots in range(count + 1):
            if wanted[count, spots]:
                spot[at] = spots
                on_demand[at] = count - spots
                at += 1
    cover_start, covers = _covers(spot, on_demand, total * (most + 1))
    return Sets(spot, on_demand, cover_start, covers)


@inlined
def _covers(spot: IntArray, on_demand: IntArray, room: int) -> tuple[IntArray, IntArray]:
    """The largest sets properly inside each; see `Configurations`."""
    total = spot.shape[0]
    cover_start = np.zeros(total + 1, dtype=np.int64)
    covers = np.empty(room, dtype=np.int64)
    edges = 0
    for c in range(total):
        cover_start[c] = edges
        # In reverse: a set inside one that was found is not covered directly.
        for k in range(c - 1, -1, -1):
            if spot[k] > spot[c] or on_demand[k] > on_demand[c]:
                continue
            direct = True
            for e in range(cover_start[c], edges):
                if spot[k] <= spot[covers[e]] and on_demand[k] <= on_demand[covers[e]]:
                    direct = False
                    break
            if direct:
                covers[edges] = k
                edges += 1
    cover_start[total] = edges
    return cover_start, covers
