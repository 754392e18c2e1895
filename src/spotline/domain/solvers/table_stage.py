"""Backward induction over a job's life on a market whose law is known: how a value table is built.

Bundles that building a table and going through forecasts share:

Gains
    What a slot gains by class of change, overhead pending and held set.
Goal
    What a slot is played for.
LawArrays
    A market's law, laid out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.accounting import (
    BROKEN,
    CHANGES,
    GROW,
    KEEP,
    LAUNCH,
    RATE,
    SHRINK,
    Held,
    Terms,
    change_kind,
    planned_s,
)
from spotline.domain.jobs.offer import Offer, slot_cost
from spotline.domain.kernels import FloatArray, IntArray, kernel, part, rule
from spotline.domain.solvers.window_grid import Sets

TableArray = npt.NDArray[np.float32]

_NEVER = -1e18
# More work than there is.
_ALL = 1 << 62


class Gains(NamedTuple):
    """By class of change, level pending and set: quanta gained, and the same in cells.

    `quanta`, `whole` and `part` have shape (5, levels, sets), the next two (5, levels).
    `same_kind` is the first class that loses as much time. `rescue_s` (sets, levels) and `waits`
    (sets,) are the seconds lost and the slots to wait on the way to the rescue, `forced` the set
    of it, which makes `rescue_rate` quanta per second.
    """

    quanta: IntArray
    whole: IntArray
    part: FloatArray
    next_level: IntArray
    same_kind: IntArray
    rescue_s: IntArray
    waits: IntArray
    forced: int
    rescue_rate: int
    cell: int
    slot_s: int


class Goal(NamedTuple):
    """What a slot is played for: the worth of finishing in it, and the slots left after it."""

    finish: int
    slots_left: int
    hard: int


class LawArrays(NamedTuple):
    """Spot counts and surcharges by run state, prices by level, and the chances of what follows."""

    counts: IntArray
    surcharges: IntArray
    prices: IntArray
    run_matrix: FloatArray
    price_matrix: FloatArray


@part
def level_of(pending_s: IntArray, left_s: int) -> int:
    """The least level that is not below what is pending."""
    for level in range(pending_s.shape[0]):
        if pending_s[level] >= left_s:
            return level
    return int(pending_s.shape[0] - 1)


@part
def forced_set(sets: Sets, on_demand_available: int) -> int:
    """The largest on-demand set there is."""
    forced = 0
    for c in range(sets.spot.shape[0]):
        if sets.spot[c] == 0 and sets.on_demand[c] <= on_demand_available:
            forced = c
    return forced


@kernel
def lay_gains(
    terms: Terms,
    sets: Sets,
    pending_s: IntArray,
    by_count: IntArray,
    on_demand_available: int,
    cell: int,
    reserve_slots: int,
) -> Gains:
    """Lay out what a slot gains."""
    count, levels = sets.spot.shape[0], pending_s.shape[0]
    forced = forced_set(sets, on_demand_available)
    # Where there is never enough for the largest count, the net falls back on what there is.
    rescue = sets.on_demand[forced] if forced else by_count.shape[1] - 1
    quanta = np.zeros((CHANGES, levels, count), dtype=np.int64)
    whole = np.zeros((CHANGES, levels, count), dtype=np.int64)
    part = np.zeros((CHANGES, levels, count))
    next_level = np.zeros((CHANGES, levels), dtype=np.int64)
    same_kind = np.zeros((CHANGES, levels), dtype=np.int64)
    for level in range(levels):
        for kind in range(CHANGES):
            lost_s = max(planned_s(terms, kind), pending_s[level])
            next_level[kind, level] = level_of(pending_s, max(0, lost_s - terms.slot_s))
            same_kind[kind, level] = kind
            for other in range(kind):
                if max(planned_s(terms, other), pending_s[level]) == lost_s:
                    same_kind[kind, level] = other
                    break
            for c in range(count):
                rate = by_count[RATE, sets.spot[c] + sets.on_demand[c]]
                gained = rate * max(0, terms.slot_s - lost_s)
                quanta[kind, level, c] = gained
                whole[kind, level, c] = gained // cell
                part[kind, level, c] = (gained % cell) / cell
    rescue_s, waits = _rescues(terms, sets, pending_s, rescue, reserve_slots)
    return Gains(
        quanta,
        whole,
        part,
        next_level,
        same_kind,
        rescue_s,
        waits,
        forced,
        by_count[RATE, rescue],
        cell,
        terms.slot_s,
    )


@part
def _rescues(
    terms: Terms, sets: Sets, pending_s: IntArray, rescue: int, reserve_slots: int
) -> tuple[IntArray, IntArray]:
    """`Gains.rescue_s` and `Gains.waits`, on the way to `rescue` on-demand."""
    count, levels = sets.spot.shape[0], pending_s.shape[0]
    rescue_s = np.zeros((count, levels), dtype=np.int64)
    waits = np.zeros(count, dtype=np.int64)
    broken_s = planned_s(terms, BROKEN)
    longest_s = max(max(terms.shrink_s, terms.grow_s), max(terms.launch_s, broken_s))
    for c in range(count):
        held = Held(sets.spot[c], sets.on_demand[c])
        lost_s = planned_s(terms, change_kind(held, Held(0, rescue), int(held.spot > 0)))
        if reserve_slots > 0 and held.on_demand < rescue:
            waits[c] = reserve_slots
            # While a launch waits, whatever is held comes and goes.
            lost_s = longest_s
        for level in range(levels):
            rescue_s[c, level] = max(pending_s[level], lost_s)
    return rescue_s, waits


@kernel
def stage(
    sets: Sets, gains: Gains, offer: Offer, goal: Goal, after: TableArray, value: FloatArray
) -> None:
    """One slot backwards: from what is expected after it to what its beginning is worth.

    `after` and `value` have shape (sets, levels, cells); all cells are computed.
    """
    count = sets.spot.shape[0]
    # Below 0 where a set cannot be held.
    paid = np.full(count, -1.0)
    for c in range(count):
        if sets.spot[c] <= offer.spot and sets.on_demand[c] <= offer.on_demand:
            paid[c] = slot_cost(offer, Held(sets.spot[c], sets.on_demand[c]))
    worth = np.empty((CHANGES, count, after.shape[2]))
    for level in range(gains.next_level.shape[1]):
        _weigh(level, gains, goal, paid, after, worth)
        _take_best(gains.same_kind[:, level], sets, offer.spot, worth, value[:, level])


# Whole rows of cells at a time, without a branch: this is the innermost loop of all planning.


@part
def _weigh(
    level: int, gains: Gains, goal: Goal, paid: FloatArray, after: TableArray, worth: FloatArray
) -> None:
    """What holding each set leads to; cell `j` stands for j + 1 cells of work left.

    Of classes of change that lose as much time only the first is weighed.
    """
    for kind in range(CHANGES):
        to = gains.next_level[kind, level]
        if gains.same_kind[kind, level] != kind:
            continue
        for c in range(paid.shape[0]):
            row = worth[kind, c]
            if paid[c] < 0.0:
                row[:] = _NEVER
            elif c == 0:
                row[:] = after[0, 0]
                _forbid_late(row, 0, 0, _rescued_quanta(0, 0, gains, goal), gains.cell)
            else:
                whole, part = gains.whole[kind, level, c], gains.part[kind, level, c]
                _weigh_set(row, after[c, to], whole, part, paid[c], goal.finish)
                if c != gains.forced:
                    saved = _rescued_quanta(c, to, gains, goal)
                    _forbid_late(row, whole, gains.quanta[kind, level, c], saved, gains.cell)


@part
def _weigh_set(
    row: FloatArray,
    after: npt.NDArray[np.float32],
    whole: int,
    part: float,
    paid: float,
    finish: int,
) -> None:
    """What holding a set leads to that does `whole` cells of work and `part` of one more."""
    cells = row.shape[0]
    row[: min(whole, cells)] = finish - paid
    if whole < cells:
        row[whole] = after[0] - paid
    if part == 0.0:
        for j in range(whole + 1, cells):
            row[j] = after[j - whole] - paid
    else:
        for j in range(whole + 1, cells):
            row[j] = (1.0 - part) * after[j - whole] + part * after[j - whole - 1] - paid


@part
def _rescued_quanta(c: int, level: int, gains: Gains, goal: Goal) -> int:
    """The most work that the rescue, from this set and level pending, does by a hard deadline."""
    if not goal.hard:
        return _ALL
    waits, lost_s = int(gains.waits[c]), int(gains.rescue_s[c, level])
    return ((goal.slots_left - waits) * gains.slot_s - lost_s) * gains.rescue_rate


@part
def _forbid_late(row: FloatArray, first: int, gained: int, saved: int, cell: int) -> None:
    """No cell, from the `first` on, of which more is left than can be `saved`, once this is gained."""
    if saved < _ALL:
        row[min(row.shape[0], max(first, (saved + gained) // cell)) :] = _NEVER


@part
def _take_best(
    same_kind: IntArray, sets: Sets, spot_available: int, worth: FloatArray, value: FloatArray
) -> None:
    """The best that can follow on each set held; `value` has shape (sets, cells)."""
    spot, cover_start, covers = sets.spot, sets.cover_start, sets.covers
    count, cells = value.shape
    most = np.full((CHANGES, cells), _NEVER)
    for kind in range(CHANGES):
        if same_kind[kind] == kind:
            for c in range(count):
                _raise_to(most[kind], worth[kind, c])
    shrunk = np.empty((count, cells))
    for c in range(count):
        shrunk[c] = worth[same_kind[SHRINK], c]
        for k in range(cover_start[c], cover_start[c + 1]):
            _raise_to(shrunk[c], shrunk[covers[k]])
        best = value[c]
        if c == 0:
            best[:] = most[same_kind[LAUNCH]]
        elif spot[c] > spot_available:
            best[:] = most[same_kind[BROKEN]]
        else:
            best[:] = worth[same_kind[KEEP], c]
            _raise_to(best, most[same_kind[GROW]])
            _raise_to(best, shrunk[c])
        for j in range(cells):
            best[j] = best[j] if best[j] > _NEVER else 0.0


@part
def _raise_to(row: FloatArray, other: FloatArray) -> None:
    for j in range(row.shape[0]):
        row[j] = max(row[j], other[j])


@part
def solve_life(
    terms: Terms,
    sets: Sets,
    gains: Gains,
    law: LawArrays,
    offer: Offer,
    values: IntArray,
    terminal: IntArray,
) -> TableArray:
    """Backward induction; returns `ValueTable.after`.

    `offer` says what on-demand costs and how much there is; `terminal` is the worth at the
    deadline by cell of work left.
    """
    runs, prices = law.counts.shape[0], law.prices.shape[0]
    shape = (runs, prices, sets.spot.shape[0], gains.next_level.shape[1], terminal.shape[0])
    slots = max(1, terms.deadline_slots)
    after = np.zeros((slots, *shape), dtype=np.float32)
    for j in range(terminal.shape[0]):
        after[slots - 1, :, :, :, :, j] = terminal[j]
    now = np.zeros(shape)
    mixed = np.zeros(shape)
    flat_now, flat_mixed = now.reshape(runs, prices, -1), mixed.reshape(runs, prices, -1)
    for t in range(slots - 1, 0, -1):
        finish = values[t + 1] if t + 1 <= terms.end_slots else 0
        goal = Goal(finish, slots - t - 1, terms.hard)
        for r in range(runs):
            for p in range(prices):
                price = max(1, law.prices[p] + law.surcharges[r])
                met = slot_offer(
                    price, law.counts[r], offer.on_demand_price, offer.on_demand, terms
                )
                stage(sets, gains, met, goal, after[t, r, p], now[r, p])
        for r in range(runs):
            for p in range(prices):
                _mix(law.price_matrix[p], flat_now[r], flat_mixed[r, p])
        for r in range(runs):
            for p in range(prices):
                _mix(law.run_matrix[r], flat_mixed[:, p], flat_now[r, p])
                after[t - 1, r, p] = now[r, p]
    return after


@part
def _mix(chances: FloatArray, values: FloatArray, mean: FloatArray) -> None:
    """The mean of rows of `values`, in the order of `chances`."""
    mean[:] = 0.0
    for at in range(chances.shape[0]):
        chance = chances[at]
        if chance > 0.0:
            row = values[at]
            for j in range(mean.shape[0]):
                mean[j] += chance * row[j]


@rule
def slot_offer(
    spot_price: int, spot: int, on_demand_price: int, on_demand: int, terms: Terms
) -> Offer:
    """What a whole slot offers where nothing more is known of it."""
    return Offer(spot_price, on_demand_price, spot, on_demand, terms.slot_s, 0, 0, 1, 0, -1, -1)
