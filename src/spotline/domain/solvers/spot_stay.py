"""What it is worth to a job to run where it has no value table, as long as spot lasts there.

A value table of a job on another offering is a tenth of a second and five megabytes: nobody has one
for each of a thousand jobs on each of a dozen offerings. But where spot is there now, and its law
says how long it lasts, the table that the job has at home says what the work left is then worth:

    worth = sum over k of P(spot lasts k slots) * (value at home, k slots later, with the work that
            k slots do) less what they cost

This is rollout: one decision is tried, and what follows is valued by the policy at hand (Bertsekas,
Tsitsiklis and Wu, Journal of Heuristics 3, 1997). The job is taken to stay until the spot is gone or
the work is done, and then to be idle as at home. Both forgo what could be done better, so the worth is
no more than that of a job which goes on deciding, as far as home is no better than where it ran.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import (
    RATE,
    Held,
    Standing,
    Terms,
    cost,
    hold,
    lay_out,
    terms_at,
)
from spotline.domain.jobs.offer import Offer, offer_at, price_ppm, row_of, standing_at
from spotline.domain.jobs.program import JobProgram
from spotline.domain.kernels import FloatArray, IntArray, kernel, part
from spotline.domain.solvers.table_look import (
    OpenTable,
    Position,
    cell_of,
    open_table,
    price_place,
    value_at,
)
from spotline.domain.solvers.table_stage import level_of
from spotline.domain.solvers.value_table import NO_TABLE, ValueTable

# Slots of a stay that are looked at; what is worth more goes on at home's value after them.
STAY_SLOTS = 16


class Stay(NamedTuple):
    """A stay elsewhere: so many instances of spot, at what price now and in the slots to come.

    `lasts[k]` is the chance that they are there in slot k + 1, given slot k; prices are micro-USD per
    instance-hour.
    """

    instances: int
    price: int
    later_price: int
    lasts: FloatArray


class HomeValue(NamedTuple):
    """What a job that is idle at home is worth: by its table there, else less what on-demand costs it.

    `chances[k]` are those of home's run states in slot k from now, `own_worth` is what a job is worth
    more than its table says.
    """

    table: ValueTable | None
    chances: FloatArray


def stay_worth(
    program: JobProgram, standing: Standing, home: Offer, value: HomeValue, stay: Stay
) -> float:
    """What the rest of a job's life is worth if it goes now and stays while spot lasts, micro-USD.

    Parameters
    ----------
    program
        The job where it goes.
    standing
        The job as it arrives: it holds nothing, and the way is pending.
    home
        What its home offers in the open slot.
    """
    layout = lay_out(program)
    table = value.table
    row = np.append(
        row_of(standing, home), (stay.instances, stay.price, stay.later_price, table is not None)
    )
    worth = _worth(
        row,
        (layout.row, layout.by_count),
        NO_TABLE if table is None else table.arrays,
        value.chances,
        stay.lasts,
    )
    return worth + (0 if table is None else table.own_worth)


@kernel
def _worth(
    row: IntArray,
    job: tuple[IntArray, IntArray],
    arrays: tuple[Any, ...],
    chances: FloatArray,
    lasts: FloatArray,
) -> float:
    terms, by_count = terms_at(job[0]), job[1]
    table = open_table(arrays)
    standing, home = standing_at(row), offer_at(row)
    count, has_table = row[-4], row[-1]
    begun = standing.elapsed
    worth, there = 0.0, 1.0
    most_slots = min(lasts.shape[0], terms.deadline_slots - begun)
    for slot in range(most_slots):
        price = row[-3] if slot == 0 else row[-2]
        standing = hold(terms, standing, Held(count, 0), terms.slot_s, by_count)
        worth -= there * cost(price, count, terms.slot_s)
        if standing.progress >= terms.work_quanta:
            if has_table:
                worth += there * table.values[begun + slot + 1]
            return float(worth)
        goes_on = lasts[slot] if slot + 1 < most_slots else 0.0
        lost = there * (1.0 - goes_on)
        if lost > 0.0:
            over = slot + 1 == most_slots
            left_s = 0 if over else terms.interrupted_s + terms.lost_s
            rest = _idle(terms, standing, home, left_s, by_count)
            if has_table:
                rest = _idle_by_table(
                    table,
                    begun + slot,
                    terms.work_quanta - standing.progress,
                    home,
                    left_s,
                    chances[slot],
                )
            worth += lost * rest
        there *= goes_on
        if there <= 0.0:
            break
    return float(worth)


@part
def _idle(terms: Terms, standing: Standing, home: Offer, lost_s: int, by_count: IntArray) -> float:
    """What the work left costs on demand: less than nothing."""
    most = by_count.shape[1] - 1
    needed_s = lost_s - (standing.progress - terms.work_quanta) // by_count[RATE, most]
    return -float(cost(home.on_demand_price, most, needed_s))


@part
def _idle_by_table(
    table: OpenTable, slot: int, left: int, home: Offer, lost_s: int, chances: FloatArray
) -> float:
    """What a job is worth that is idle at home behind a slot, with work left, after a loss."""
    terms, pending_s = table.terms, table.pending_s
    low, share = price_place(table.centres_ppm, price_ppm(home, home.spot_price))
    # The table knows a launch; what a loss takes longer is more work, or pends if that is longer still.
    level = level_of(pending_s, max(0, lost_s - terms.slot_s))
    most = table.by_count.shape[1] - 1
    longer_s = max(0, lost_s - pending_s[level] - terms.launch_s)
    left = min(left + table.by_count[RATE, most] * longer_s, terms.work_quanta)
    j, within = cell_of(left, table.cell, 1.0 / table.cell)
    position = Position(low, share, left, 0, table.cell)
    worth = 0.0
    for state in range(chances.shape[0]):
        if chances[state] > 0.0:
            worth += chances[state] * value_at(
                table.after[slot, state], position, 0, level, j, within
            )
    return worth
