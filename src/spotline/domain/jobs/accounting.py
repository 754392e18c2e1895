"""A job's accounting in the integers of its program: overheads of a change, progress, money.

Bundles that the rules share:

Terms
    The scalars of a job's program.
Held
    Instances of spot and on demand.
Standing
    Where a job stands when a slot, or the rest of one, begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.program import JobProgram
from spotline.domain.kernels import IntArray, inlined, part, rule
from spotline.domain.remembered import BySelf
from spotline.domain.units import cost_micro_usd

# What a change costs in time: the classes, in the order in which planners lay them out.
KEEP, SHRINK, GROW, LAUNCH, BROKEN = range(5)
CHANGES = 5

# Rows of `ProgramLayout.by_count`.
RATE = 0  # quanta per second
CAP_S = 1  # seconds after which the whole work is done: more would only overflow
LARGEST = 2  # the largest allowed count up to this one

# The one rounding of money, for kernels too.
cost = rule(cost_micro_usd)


class Terms(NamedTuple):
    """What a job's program says in scalars; see `JobProgram` for their meaning."""

    slot_s: int
    work_quanta: int
    deadline_slots: int
    end_slots: int
    hard: int
    budget_micro_usd: int
    launch_s: int
    grow_s: int
    shrink_s: int
    interrupted_s: int
    lost_s: int


class Held(NamedTuple):
    """Instances of one offering, as kernels count them."""

    spot: int
    on_demand: int


class Standing(NamedTuple):
    """Where a job stands after `elapsed` whole slots of its life.

    `pending_s` is what is left of the last overhead, `spent` micro-USD so far; `interrupted` says
    that spot of `held` is gone: then `progress` is what that left. `unsaved` is the part of
    `progress` that a loss without notice would throw away.
    """

    elapsed: int
    progress: int
    held: Held
    pending_s: int
    spent: int
    interrupted: int
    unsaved: int


@rule
def change_kind(before: Held, after: Held, interrupted: int) -> int:
    """Class of a change to a set that is not idle.

    A change of the held set is never free, as a swap of spot for on-demand at an equal count is
    in arXiv:2512.20967, which this follows in its seconds form (mu = 1 - overhead_s / slot_s).
    """
    if before.spot + before.on_demand == 0:
        return LAUNCH
    if interrupted:
        # Whatever is held next has to be regrouped, even the survivors alone.
        return BROKEN
    if after.spot == before.spot and after.on_demand == before.on_demand:
        return KEEP
    if after.spot <= before.spot and after.on_demand <= before.on_demand:
        return SHRINK
    return GROW


@rule
def kind_s(terms: Terms, kind: int) -> int:
    """Seconds without progress that a change of this class costs."""
    if kind == KEEP:
        return 0
    if kind == SHRINK:
        return terms.shrink_s
    if kind == GROW:
        return terms.grow_s
    if kind == LAUNCH:
        return terms.launch_s
    return terms.interrupted_s


@rule
def planned_s(terms: Terms, kind: int) -> int:
    """Seconds that a change of this class costs later: lost work is work of as many seconds."""
    return kind_s(terms, kind) + (terms.lost_s if kind == BROKEN else 0)


@rule
def change_s(terms: Terms, before: Held, after: Held, interrupted: int) -> int:
    """Seconds without progress that follow from changing `before` into `after`."""
    if after.spot + after.on_demand == 0:
        return 0
    return kind_s(terms, change_kind(before, after, interrupted))


@rule
def progress_after(terms: Terms, rate: int, productive_s: int, progress: int) -> int:
    """Progress after these seconds at `rate`; never more than the work."""
    return min(terms.work_quanta, progress + rate * productive_s)


@rule
def unsaved_of(standing: Standing, held: Held) -> int:
    """Work that a loss right after taking `held` throws away: a change of ours saves first."""
    same = held.spot == standing.held.spot and held.on_demand == standing.held.on_demand
    return standing.unsaved if same and not standing.interrupted else 0


@rule
def advance(
    terms: Terms, rate: int, cap_s: int, standing: Standing, held: Held, held_s: int
) -> Standing:
    """Hold `held` for `held_s` seconds, at `rate` quanta per second, and say where the job stands.

    A change sets the pending overhead to the full value of that change, unless more is still
    pending; overheads never add up. `cap_s` is when the whole work would be done. The slots that
    have passed and what was spent stay as they are.
    """
    if held.spot + held.on_demand == 0:
        return Standing(standing.elapsed, standing.progress, held, 0, standing.spent, 0, 0)
    pending_s = max(standing.pending_s, change_s(terms, standing.held, held, standing.interrupted))
    productive_s = min(max(0, held_s - pending_s), cap_s)
    progress = progress_after(terms, rate, productive_s, standing.progress)
    unsaved = 0
    if terms.lost_s:
        made = progress - standing.progress + unsaved_of(standing, held)
        unsaved = min(made, rate * min(terms.lost_s, cap_s))
    pending_s = max(0, pending_s - held_s)
    return Standing(standing.elapsed, progress, held, pending_s, standing.spent, 0, unsaved)


@rule
def slots_at(slot_s: int, rate: int, work_quanta: int, first_s: int) -> int:
    """Slots that `work_quanta` take at `rate` quanta per second after `first_s` seconds."""
    if work_quanta <= 0:
        return 0
    return -(-(-(-work_quanta // rate) + first_s) // slot_s)


@inlined
def hold(terms: Terms, standing: Standing, held: Held, held_s: int, by_count: IntArray) -> Standing:
    """Say where the job stands when it has held an allowed count for `held_s` seconds."""
    count = held.spot + held.on_demand
    return advance(terms, by_count[RATE, count], by_count[CAP_S, count], standing, held, held_s)


# --- laying out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ProgramLayout:
    """A program as kernels read it.

    `terms` has the fields of `Terms`. `by_count` has the rows `RATE`, `CAP_S` and `LARGEST` and a
    column for every count up to the largest allowed one; `values` is the worth of finishing in
    slot T, micro-USD, shape (end_slots + 1,).
    """

    terms: Terms
    row: IntArray
    by_count: IntArray
    values: IntArray


def terms_of(program: JobProgram) -> Terms:
    """Return the scalars of a program."""
    return Terms(
        slot_s=program.slot_s,
        work_quanta=program.work_quanta,
        deadline_slots=program.deadline_slots,
        end_slots=program.end_slots,
        hard=int(program.hard),
        budget_micro_usd=program.budget_micro_usd,
        launch_s=program.launch_s,
        grow_s=program.grow_s,
        shrink_s=program.shrink_s,
        interrupted_s=program.interrupted_s,
        lost_s=program.lost_s,
    )


@part
def terms_at(row: IntArray) -> Terms:
    """Read `ProgramLayout.row`: an array passes from Python to a kernel faster than a bundle."""
    return Terms(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9],
        row[10],
    )  # fmt: skip


def lay_out(program: JobProgram) -> ProgramLayout:
    """Lay a program out for kernels."""
    return _layouts.of(program)


@lru_cache(maxsize=16_384)
def _laid_out(program: JobProgram) -> ProgramLayout:
    terms = terms_of(program)
    by_count = np.zeros((3, program.max_instances + 1), dtype=np.int64)
    for count in program.allowed_counts:
        rate = program.rate_quanta_per_s[count]
        by_count[RATE, count] = rate
        by_count[CAP_S, count] = cap_s(program.work_quanta, rate)
        by_count[LARGEST, count:] = count
    return ProgramLayout(
        terms=terms,
        row=np.array(terms, dtype=np.int64),
        by_count=by_count,
        values=np.array(program.value_micro_usd, dtype=np.int64),
    )


# Like programs share a layout. But thousands of jobs of one class have programs that hash alike: to compare
# two of them takes longer than to know the one that was asked for before.
_layouts = BySelf(_laid_out, 16_384)


def cap_s(work_quanta: int, rate: int) -> int:
    """Seconds after which `work_quanta` are certainly done."""
    return work_quanta // rate + 2 if rate else 0
