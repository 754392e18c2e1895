"""The best life of one job that may change its offering, on a market that is known.

Backward induction over (progress, held set, pending overhead) as in `schedule`, on every offering
at once. A move costs one overhead and a fee wherever it leads, so that the best of all places to
begin anew is one row per overhead: what a job can do costs no more than its single programs do.

Spot and on-demand carry surcharges beside their prices: those of `joint_bound`.

Bundles that the kernels share:

LifePlaces
    What a job is, and what it may hold, on each offering.
Quotes
    Prices, surcharges and counts by slot and offering.
Plane
    Gains and changes on the grid of progress.
ValueRows
    Values by slot: where the row of each state lies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import BROKEN, GROW, KEEP, LAUNCH, SHRINK, cost
from spotline.domain.kernels import BoolArray, IntArray, inlined, kernel
from spotline.domain.solvers.schedule import copy_row, raise_row
from spotline.domain.solvers.window_grid import gcd, index_of

# Beside the changes of `accounting`: another offering, and that after an interruption.
MOVE, FLEE = 5, 6
KINDS = 7

IDLE = -1
LEAST = -(2**62)


class LifePlaces(NamedTuple):
    """A job on every offering.

    `rate` is in quanta per second by (offering, set), 0 where a set cannot be held; `kind_s`
    seconds without progress by (offering that is left, kind). Sets as in `window_grid.Sets`,
    without the idle one: `spot`, `on_demand` and the covering relation. `finish[t]` is the worth
    of finishing in slot t of the life.
    """

    slot_s: int
    work_quanta: int
    fee: int
    rate: IntArray
    kind_s: IntArray
    spot: IntArray
    on_demand: IntArray
    cover_start: IntArray
    covers: IntArray
    finish: IntArray


class Quotes(NamedTuple):
    """Of each slot and offering; prices per instance-hour, surcharges per slot by the count held."""

    spot_price: IntArray
    on_demand_price: IntArray
    spot_extra: IntArray
    on_demand_extra: IntArray
    spot: IntArray
    on_demand: IntArray


class Plane(NamedTuple):
    """The grid: `gain[offering, effect, set]` in cells, `next_level[effect]`.

    An effect is a number of seconds lost in a slot; `effect[offering, kind, level]` names it, and
    `fresh[effect]` says that a change has it which can lead to any set.
    """

    done: int
    largest: int
    levels: int
    exact: bool
    gain: IntArray
    next_level: IntArray
    effect: IntArray
    fresh: BoolArray


class ValueRows(NamedTuple):
    """Values before slot t: `row[t, level, offering, set]` of the block of t, row 0 is idle.

    Cells `low[t]` to `high[t]` are reached and can still finish; below, nothing is worth holding.
    """

    low: IntArray
    high: IntArray
    start: IntArray
    row: IntArray
    width: int
    values: IntArray


@kernel
def best_moving_life(
    places: LifePlaces, quotes: Quotes, cell_limit: int
) -> tuple[int, bool, IntArray, IntArray]:
    """Return the worth of the best life, whether it is exact, and offering and set by slot.

    Where the exact grid would have more than `cell_limit` cells, gains are rounded up: no schedule
    is worth more than what is returned.
    """
    plane = lay_plane(places, cell_limit)
    paid, usable = lay_paid(places, quotes)
    rows = lay_rows(places, quotes, plane, usable)
    induce(places, quotes, plane, paid, usable, rows)
    value, offering, held = retrace(places, quotes, plane, paid, usable, rows)
    return value, plane.exact, offering, held


@inlined
def lay_plane(places: LifePlaces, cell_limit: int) -> Plane:
    """Lay the grid out; gains are rounded up where it is coarser than exact."""
    offerings, sets = places.rate.shape
    slot_s = places.slot_s
    bound = 2
    for o in range(offerings):
        for kind in range(KINDS):
            bound += places.kind_s[o, kind] // slot_s + 1
    pending = np.zeros(bound, dtype=np.int64)
    levels = 1
    for o in range(offerings):
        for kind in range(KINDS):
            level_s = max(0, places.kind_s[o, kind] - slot_s)
            while index_of(pending[:levels], level_s) < 0:
                pending[levels] = level_s
                levels += 1
                level_s = max(0, level_s - slot_s)
    effect = np.zeros((offerings, KINDS, levels), dtype=np.int64)
    seconds = np.empty(offerings * KINDS * levels, dtype=np.int64)
    fresh = np.zeros(offerings * KINDS * levels, dtype=np.bool_)
    effects = 0
    common_s = 0
    for o in range(offerings):
        for kind in range(KINDS):
            for level in range(levels):
                lost_s = max(places.kind_s[o, kind], pending[level])
                found = index_of(seconds[:effects], lost_s)
                if found < 0:
                    found = effects
                    seconds[found] = lost_s
                    effects += 1
                    common_s = gcd(common_s, max(0, slot_s - lost_s))
                effect[o, kind, level] = found
                fresh[found] |= kind not in (KEEP, SHRINK)
    common_rate = 0
    for o in range(offerings):
        for c in range(sets):
            common_rate = gcd(common_rate, places.rate[o, c])
    cell = max(1, common_rate * common_s)
    exact = places.work_quanta <= cell * cell_limit
    if not exact:
        cell = -(-places.work_quanta // cell_limit)
    up = 0 if exact else cell - 1
    done = -(-places.work_quanta // cell)
    gain = np.empty((offerings, effects, sets), dtype=np.int64)
    next_level = np.empty(effects, dtype=np.int64)
    largest = 0
    for e in range(effects):
        next_level[e] = index_of(pending[:levels], max(0, seconds[e] - slot_s))
        for o in range(offerings):
            for c in range(sets):
                made = places.rate[o, c] * max(0, slot_s - seconds[e])
                gain[o, e, c] = min(done, (made + up) // cell)
                largest = max(largest, gain[o, e, c])
    return Plane(done, largest, levels, exact, gain, next_level, effect, fresh)


@inlined
def lay_paid(places: LifePlaces, quotes: Quotes) -> tuple[IntArray, BoolArray]:
    """What every set costs, surcharges included, and whether it can be held."""
    slots = places.finish.shape[0]
    offerings, sets = places.rate.shape
    paid = np.zeros((slots, offerings, sets), dtype=np.int64)
    usable = np.zeros((slots, offerings, sets), dtype=np.bool_)
    for t in range(slots):
        for o in range(offerings):
            for c in range(sets):
                spot, on_demand = places.spot[c], places.on_demand[c]
                stocked = spot <= quotes.spot[t, o] and on_demand <= quotes.on_demand[t, o]
                if not (stocked and places.rate[o, c] > 0):
                    continue
                usable[t, o, c] = True
                paid[t, o, c] = (
                    cost(quotes.spot_price[t, o], spot, places.slot_s)
                    + cost(quotes.on_demand_price[t, o], on_demand, places.slot_s)
                    + quotes.spot_extra[t, o, spot]
                    + quotes.on_demand_extra[t, o, on_demand]
                )
    return paid, usable


@inlined
def lay_rows(places: LifePlaces, quotes: Quotes, plane: Plane, usable: BoolArray) -> ValueRows:
    """Find a row for every state that can come up; interrupted sets of an offering share one."""
    slots, offerings, sets = usable.shape
    low = np.zeros(slots + 1, dtype=np.int64)
    high = np.zeros(slots + 1, dtype=np.int64)
    start = np.zeros(slots + 1, dtype=np.int64)
    row = np.full((slots + 1, plane.levels, offerings, sets), -1, dtype=np.int64)
    width = plane.done + plane.largest + 1
    total = 0
    for t in range(slots + 1):
        low[t] = max(0, plane.done - (slots - t) * plane.largest)
        high[t] = min(plane.done - 1, t * plane.largest)
        start[t] = total
        count = 1
        for level in range(plane.levels):
            for o in range(offerings):
                broken = -1
                for c in range(sets):
                    if t == 0 or not usable[t - 1, o, c]:
                        continue
                    if t == slots:
                        # Beyond the life every row is the same: only what is done counts.
                        row[t, level, o, c] = 0
                    elif places.spot[c] > quotes.spot[t, o]:
                        if broken < 0:
                            broken = count
                            count += 1
                        row[t, level, o, c] = broken
                    else:
                        row[t, level, o, c] = count
                        count += 1
        total += count * width
    return ValueRows(low, high, start, row, width, np.empty(total, dtype=np.int64))


@inlined
def induce(
    places: LifePlaces,
    quotes: Quotes,
    plane: Plane,
    paid: IntArray,
    usable: BoolArray,
    rows: ValueRows,
) -> None:
    """Fill all rows, from the last slot to the first."""
    slots, offerings, sets = usable.shape
    effects = plane.next_level.shape[0]
    begun = np.empty((offerings, effects, rows.width), dtype=np.int64)
    anywhere = np.empty((effects, rows.width), dtype=np.int64)
    shrunk = np.empty((sets, rows.width), dtype=np.int64)
    frame(places, plane, rows, slots)
    for t in range(slots - 1, -1, -1):
        low, high = rows.low[t], rows.high[t] + 1
        if low < high:
            begin(plane, paid, usable, rows, t, begun, anywhere)
            idle = rows.values[rows.start[t] + low : rows.start[t] + high]
            at = rows.start[t + 1]
            copy_row(idle, rows.values[at + low : at + high])
            raise_row(idle, anywhere[plane.effect[0, LAUNCH, 0], low:high], 0)
            for o in range(offerings if t else 0):
                for level in range(plane.levels):
                    shrink(places, plane, paid, usable, rows, (t, o, level), shrunk)
                    settle(
                        places, quotes, plane, paid, usable, rows, (t, o, level),
                        (begun, anywhere, shrunk),
                    )  # fmt: skip
        if t:
            frame(places, plane, rows, t)


@inlined
def frame(places: LifePlaces, plane: Plane, rows: ValueRows, t: int) -> None:
    """Write into the rows before slot t what finishing in the one before earns, and hopelessness."""
    end = rows.start[t + 1] if t + 1 < rows.start.shape[0] else rows.values.shape[0]
    for at in range(rows.start[t], end, rows.width):
        for p in range(rows.low[t - 1], rows.low[t]):
            rows.values[at + p] = 0
        for p in range(plane.done, rows.width):
            rows.values[at + p] = places.finish[t - 1]


@inlined
def begin(
    plane: Plane,
    paid: IntArray,
    usable: BoolArray,
    rows: ValueRows,
    t: int,
    begun: IntArray,
    anywhere: IntArray,
) -> None:
    """Find what taking the best set in slot t is worth at every effect, by offering and anywhere."""
    offerings, effects = begun.shape[0], begun.shape[1]
    low, high = rows.low[t], rows.high[t] + 1
    for e in range(effects):
        if not plane.fresh[e]:
            continue
        anywhere[e, low:high] = LEAST
        for o in range(offerings):
            into = begun[o, e, low:high]
            into[:] = LEAST
            for c in range(usable.shape[2]):
                if usable[t, o, c]:
                    at = rows.start[t + 1] + plane.gain[o, e, c]
                    at += rows.row[t + 1, plane.next_level[e], o, c] * rows.width
                    raise_row(into, rows.values[at + low : at + high], paid[t, o, c])
            raise_row(anywhere[e, low:high], into, 0)


@inlined
def shrink(
    places: LifePlaces,
    plane: Plane,
    paid: IntArray,
    usable: BoolArray,
    rows: ValueRows,
    where: tuple[int, int, int],
    shrunk: IntArray,
) -> None:
    """Find what the best set inside each one is worth, the set itself too, at what shrinking costs."""
    t, o, level = where
    e = plane.effect[o, SHRINK, level]
    low, high = rows.low[t], rows.high[t] + 1
    for c in range(usable.shape[2]):
        into = shrunk[c, low:high]
        into[:] = LEAST
        if usable[t, o, c]:
            at = rows.start[t + 1] + plane.gain[o, e, c]
            at += rows.row[t + 1, plane.next_level[e], o, c] * rows.width
            raise_row(into, rows.values[at + low : at + high], paid[t, o, c])
        for k in range(places.cover_start[c], places.cover_start[c + 1]):
            raise_row(into, shrunk[places.covers[k], low:high], 0)


@inlined
def settle(
    places: LifePlaces,
    quotes: Quotes,
    plane: Plane,
    paid: IntArray,
    usable: BoolArray,
    rows: ValueRows,
    where: tuple[int, int, int],
    found: tuple[IntArray, IntArray, IntArray],
) -> None:
    """Write the values of an offering's sets before a slot, at one level pending."""
    t, o, level = where
    begun, anywhere, shrunk = found
    low, high = rows.low[t], rows.high[t] + 1
    idle = rows.values[rows.start[t + 1] + low : rows.start[t + 1] + high]
    written = 0
    for c in range(usable.shape[2]):
        row = rows.row[t, level, o, c]
        if row < 0 or row == written:
            continue
        at = rows.start[t] + row * rows.width
        into = rows.values[at + low : at + high]
        copy_row(into, idle)
        if places.spot[c] > quotes.spot[t, o]:
            written = row
            raise_row(into, begun[o, plane.effect[o, BROKEN, level], low:high], 0)
            raise_row(into, anywhere[plane.effect[o, FLEE, level], low:high], places.fee)
            continue
        raise_row(into, begun[o, plane.effect[o, GROW, level], low:high], 0)
        raise_row(into, anywhere[plane.effect[o, MOVE, level], low:high], places.fee)
        raise_row(into, shrunk[c, low:high], 0)
        if usable[t, o, c]:
            e = plane.effect[o, KEEP, level]
            at = rows.start[t + 1] + plane.gain[o, e, c]
            at += rows.row[t + 1, plane.next_level[e], o, c] * rows.width
            raise_row(into, rows.values[at + low : at + high], paid[t, o, c])


@inlined
def retrace(
    places: LifePlaces,
    quotes: Quotes,
    plane: Plane,
    paid: IntArray,
    usable: BoolArray,
    rows: ValueRows,
) -> tuple[int, IntArray, IntArray]:
    """Go forward from the first slot: the value of the best life, and offering and set by slot."""
    slots, offerings, sets = usable.shape
    offering = np.full(slots, IDLE, dtype=np.int64)
    held = np.full(slots, IDLE, dtype=np.int64)
    value = 0
    progress, home, inside, level = 0, IDLE, IDLE, 0
    for t in range(slots):
        if progress < rows.low[t]:
            # It can no longer be done: nothing more is worth holding.
            break
        best = rows.values[rows.start[t + 1] + progress]
        chosen, chosen_set, next_level, next_cell = IDLE, IDLE, 0, progress
        broken = home != IDLE and places.spot[inside] > quotes.spot[t, home]
        for o in range(offerings):
            for c in range(sets):
                if not usable[t, o, c]:
                    continue
                kind = kind_of(places, home, inside, o, c, broken)
                e = plane.effect[max(home, 0), kind, level]
                cell = progress + plane.gain[o, e, c]
                at = rows.start[t + 1] + cell
                at += rows.row[t + 1, plane.next_level[e], o, c] * rows.width
                worth = rows.values[at] - paid[t, o, c] - (places.fee if kind >= MOVE else 0)
                if worth > best:
                    best, chosen, chosen_set = worth, o, c
                    next_level, next_cell = plane.next_level[e], cell
        if t == 0:
            value = best
        offering[t], held[t] = chosen, chosen_set
        progress, home, inside, level = next_cell, chosen, chosen_set, next_level
        if progress >= plane.done:
            break
    return value, offering, held


@inlined
def kind_of(
    places: LifePlaces, home: int, inside: int, offering: int, new: int, broken: bool
) -> int:
    """Class of taking a set on an offering, from one held at `home` or from nothing."""
    if home == IDLE:
        return LAUNCH
    if offering != home:
        return FLEE if broken else MOVE
    if broken:
        return BROKEN
    if new == inside:
        return KEEP
    less = places.spot[new] <= places.spot[inside]
    if less and places.on_demand[new] <= places.on_demand[inside]:
        return SHRINK
    return GROW
