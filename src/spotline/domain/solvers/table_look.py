"""Looking into a value table: what is best for this slot and, by the table, for all that follows.

Bundles that looking shares:

OpenTable
    A value table as kernels read it.
Position
    Where a look ahead begins in what is to come.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import (
    GROW,
    KEEP,
    RATE,
    SHRINK,
    Held,
    Standing,
    Terms,
    change_kind,
    hold,
    kind_s,
    terms_at,
)
from spotline.domain.jobs.offer import Offer, is_allowed, price_ppm, slot_cost
from spotline.domain.kernels import IntArray, inlined, kernel, part
from spotline.domain.solvers.table_stage import (
    Goal,
    TableArray,
    lay_gains,
    level_of,
    slot_offer,
    stage,
)
from spotline.domain.solvers.window_grid import Sets


class OpenTable(NamedTuple):
    """A value table laid out; see `ValueTable` and, for the last three, `StateSpace`."""

    terms: Terms
    cell: int
    taken: int
    reserve_slots: int
    after: TableArray
    by_count: IntArray
    values: IntArray
    nearest: IntArray
    pending_s: IntArray
    sets: Sets
    centres_ppm: IntArray
    level_starts: IntArray
    age_starts: IntArray


@part
def open_table(arrays: tuple[Any, ...]) -> OpenTable:
    """Open what `ValueTable.arrays` laid out."""
    return OpenTable(
        terms_at(arrays[0]),
        arrays[1][0],
        arrays[1][1],
        arrays[1][2],
        arrays[2],
        arrays[3],
        arrays[4],
        arrays[5],
        arrays[6],
        Sets(arrays[7], arrays[8], arrays[9], arrays[10]),
        arrays[11],
        arrays[12],
        arrays[13],
    )


class Position(NamedTuple):
    """Work left, and where the price lies: between level `low` and the next by `share`.

    `finish` is the worth of finishing in this slot, `cell` quanta of work stand in one cell.
    """

    low: int
    share: float
    left: int
    finish: int
    cell: int


class Paces(NamedTuple):
    """Seconds of progress, and the level pending after, by kind of change from what is held."""

    keep_s: int
    keep_to: int
    shrink_s: int
    shrink_to: int
    grow_s: int
    grow_to: int


@inlined
def look_ahead(
    terms: Terms,
    standing: Standing,
    offer: Offer,
    position: Position,
    to_come: TableArray,
    by_count: IntArray,
    nearest: IntArray,
    pending_s: IntArray,
) -> Held:
    """The holding of greatest value less cost for this slot and all to come after it.

    `to_come` is `ValueTable.after` at a slot and run state. Considered is every allowed count with
    as much spot as there is, with the spot that is held, and with none. Ties go to what is held,
    then to more instances: progress made now is progress that cannot be taken.
    """
    held = standing.held
    paces = _paces(terms, standing, offer, pending_s)
    keeps = held.spot + held.on_demand > 0 and not standing.interrupted
    per_quantum = 1.0 / position.cell
    j, part = cell_of(position.left, position.cell, per_quantum)
    best_value = value_at(to_come, position, 0, 0, j, part)
    best = Held(0, 0)
    for count in range(1, by_count.shape[1]):
        if not is_allowed(by_count, count):
            continue
        known_s = -1  # splits of one count mostly differ in cost alone
        most_spot = min(count, offer.spot)
        for option in range(3):
            spot = _split(option, most_spot, held.spot)
            if spot < 0 or count - spot > offer.on_demand:
                continue
            wanted = Held(spot, count - spot)
            productive_s, to = paces.grow_s, paces.grow_to
            stays = False
            if wanted.spot == held.spot and wanted.on_demand == held.on_demand:
                productive_s, to = paces.keep_s, paces.keep_to
                stays = keeps
            elif wanted.spot <= held.spot and wanted.on_demand <= held.on_demand:
                productive_s, to = paces.shrink_s, paces.shrink_to
            left = position.left - by_count[RATE, count] * productive_s
            paid = slot_cost(offer, wanted)
            if left <= 0:
                value = float(position.finish - paid)
            else:
                if productive_s != known_s:
                    j, part = cell_of(left, position.cell, per_quantum)
                    known_s = productive_s
                at = nearest[wanted.spot, wanted.on_demand]
                value = value_at(to_come, position, at, to, j, part) - paid
            ties = stays or count >= best.spot + best.on_demand
            if value > best_value or (value == best_value and ties):
                best_value = value
                best = wanted
    return best


@part
def _split(option: int, most_spot: int, held_spot: int) -> int:
    """The spot of an option: all there is, none, or what is held; -1 where it was had before."""
    if option == 0:
        return most_spot
    if option == 1:
        return 0 if most_spot else -1
    return held_spot if 0 < held_spot < most_spot else -1


@part
def _paces(terms: Terms, standing: Standing, offer: Offer, pending_s: IntArray) -> Paces:
    """What each kind of change costs in time, once for all candidates."""
    keep, shrink, grow = KEEP, SHRINK, GROW
    # Less spot than is held does not say that it was reclaimed: another job may be served first.
    broken = standing.interrupted
    if standing.held.spot + standing.held.on_demand == 0 or broken:
        # Launching, or regrouping: all changes cost the same.
        keep = change_kind(standing.held, Held(0, 0), int(broken))
        shrink, grow = keep, keep
    keep_s = max(kind_s(terms, keep), standing.pending_s)
    shrink_s = max(kind_s(terms, shrink), standing.pending_s)
    grow_s = max(kind_s(terms, grow), standing.pending_s)
    return Paces(
        max(0, offer.left_s - keep_s),
        level_of(pending_s, max(0, keep_s - offer.left_s)),
        max(0, offer.left_s - shrink_s),
        level_of(pending_s, max(0, shrink_s - offer.left_s)),
        max(0, offer.left_s - grow_s),
        level_of(pending_s, max(0, grow_s - offer.left_s)),
    )


@part
def cell_of(left: int, cell: int, per_quantum: float) -> tuple[int, float]:
    """The cell that `left` > 0 fills at least in part, and the part; `per_quantum` is 1 / cell."""
    # Divided as floats, which is faster, and mended.
    j = int(np.float64(left - 1) * per_quantum)
    if j * cell >= left:
        j -= 1
    elif (j + 1) * cell < left:
        j += 1
    return j, (left - j * cell) / cell


@part
def value_at(
    to_come: TableArray, position: Position, c: int, level: int, j: int, part: float
) -> float:
    """Table entry of a set and a level pending, between two prices and two cells."""
    v = to_come[position.low, c, level, j] + 0.0
    if j > 0:
        v = part * v + (1.0 - part) * to_come[position.low, c, level, j - 1]
    if position.share > 0.0:
        u = to_come[position.low + 1, c, level, j] + 0.0
        if j > 0:
            u = part * u + (1.0 - part) * to_come[position.low + 1, c, level, j - 1]
        v = (1.0 - position.share) * v + position.share * u
    return float(v)


@part
def value_with(
    table: OpenTable,
    standing: Standing,
    offer: Offer,
    position: Position,
    to_come: TableArray,
    held: Held,
) -> float:
    """What the rest of a job's life is worth if `held` is held for this slot, micro-USD.

    The slot is counted exactly, all after it by the table. Overhead longer than any that the table
    knows, as a migration's may be, is taken for as much more work.
    """
    terms, by_count, pending_s = table.terms, table.by_count, table.pending_s
    paid = slot_cost(offer, held)
    work = terms.work_quanta
    begun = Standing(
        standing.elapsed,
        0,
        standing.held,
        standing.pending_s,
        standing.spent,
        standing.interrupted,
        0,
    )
    after = hold(terms, begun, held, offer.left_s, by_count)
    left = position.left - after.progress
    if left <= 0:
        return float(position.finish - paid)
    level = level_of(pending_s, after.pending_s)
    excess_s = max(0, after.pending_s - pending_s[level])
    left = min(left + by_count[RATE, held.spot + held.on_demand] * excess_s, work)
    j, part = cell_of(left, position.cell, 1.0 / position.cell)
    at = table.nearest[held.spot, held.on_demand]
    return value_at(to_come, position, at, level, j, part) - paid


@part
def look_up(
    table: OpenTable, standing: Standing, offer: Offer, left: int
) -> tuple[Position, TableArray]:
    """Where this slot is in the table: position, and what is to come after it."""
    ppm = price_ppm(offer, offer.spot_price)
    low, share = price_place(table.centres_ppm, ppm)
    finish = table.values[standing.elapsed + 1]
    position = Position(low, share, left, finish, table.cell)
    return position, table.after[standing.elapsed, offer.run_state]


# --- through a forecast -----------------------------------------------------------------------


@kernel
def bucket_of(starts: IntArray, number: int) -> int:
    """The last bucket that begins at or below `number`; -1 where none does."""
    bucket = -1
    for i in range(starts.shape[0]):
        if starts[i] > number:
            break
        bucket = i
    return bucket


@part
def price_place(centres_ppm: IntArray, price_ppm: int) -> tuple[int, float]:
    """Where a price lies between the centres: the lower one, and the share of the next."""
    last = centres_ppm.shape[0] - 1
    if price_ppm <= centres_ppm[0]:
        return 0, 0.0
    if price_ppm >= centres_ppm[last]:
        return last, 0.0
    low = bucket_of(centres_ppm, price_ppm)
    return low, (price_ppm - centres_ppm[low]) / (centres_ppm[low + 1] - centres_ppm[low])


@part
def run_after(table: OpenTable, offer: Offer, predicted: IntArray, window: int) -> int:
    """The run state in the last of the forecast slots, if they come true: a level grows older."""
    ages = table.age_starts.shape[0]
    level = offer.run_state // ages
    lasted = table.age_starts[offer.run_state % ages]
    for step in range(window):
        count = predicted[1, offer.slot, step] + table.taken
        after = bucket_of(table.level_starts, count)
        lasted = lasted + 1 if after == level else 1
        level = after
    return int(level * ages + bucket_of(table.age_starts, lasted))


@kernel
def through(
    table: OpenTable, standing: Standing, offer: Offer, predicted: IntArray, window: int
) -> TableArray:
    """What is to come after this slot, by the forecast slots and by the table from there.

    Shape (1, sets, levels, cells). `predicted` is price and spot count by (slot, step ahead).
    """
    terms = table.terms
    run = run_after(table, offer, predicted, window)
    last_ppm = price_ppm(offer, predicted[0, offer.slot, window - 1])
    low, share = price_place(table.centres_ppm, last_ppm)
    end = table.after[standing.elapsed + window, run]
    gains = lay_gains(
        terms,
        table.sets,
        table.pending_s,
        table.by_count,
        offer.on_demand,
        table.cell,
        table.reserve_slots,
    )
    later = np.empty((1, end.shape[1], end.shape[2], end.shape[3]), dtype=np.float32)
    later[0] = end[low]
    if share > 0.0:
        later[0] = (1.0 - share) * end[low] + share * end[low + 1]
    now = np.empty(later.shape[1:])
    for step in range(window - 1, -1, -1):
        t = standing.elapsed + 1 + step
        met = slot_offer(
            predicted[0, offer.slot, step],
            predicted[1, offer.slot, step],
            offer.on_demand_price,
            offer.on_demand,
            terms,
        )
        goal = Goal(table.values[t + 1], terms.deadline_slots - t - 1, terms.hard)
        stage(table.sets, gains, met, goal, later[0], now)
        later[0] = now
    return later
