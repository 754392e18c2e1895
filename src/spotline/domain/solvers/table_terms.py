"""What a value table is made of, its name, and the class of jobs that share one.

Backward induction knows nothing of where a job stands: a table that is solved from a later deadline
and for more work holds the one of every job with less time and less work whose program is the same
after scaling. So a class has a program of its own: the deadline rounded up to a rung, all the work
that can be done in that time, in units of what the largest count does in a second, and of a soft
job what a slot of lateness costs, rounded. Counts stay as they are: a job of 4, 8 instances is not
one of 1, 2 on a quarter of the market.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

from spotline.domain.canonical import canonical_as, canonical_v1
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import MarketLaw
from spotline.domain.units import cost_micro_usd

# Quanta per second of a class's largest count: rates of other counts are known to 1 in 100,000.
CLASS_RATE = 100_000
# Deadlines are rounded up to numbers of two binary digits and zeros (8, 12, 16, 24): a table from
# a later deadline is larger, not another. What lateness costs is rounded to one digit, in
# sixteenths of a slot on demand: a third more or less moved no mean utility that could be measured.
_DEADLINE_DIGITS = 2
_LATENESS_DIGITS = 1
_LATENESS_STEPS = 16
# A hard job must finish: how much more than all of its work on demand it is worth moves no plan.
_HARD_WORTH = 2


@canonical_as(
    "TableTerms",
    "program law on_demand_price on_demand_available taken reserve_slots",
    later="spot_surcharge shared even_cells surcharge_by_count",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class TableTerms:
    """All that a value table depends on; equal terms, equal table.

    `on_demand_price` is micro-USD per instance-hour, `on_demand_available` what may be counted
    on. `taken` instances of spot are held by jobs that are served earlier and are expected to
    stay so. A launch of on-demand may have to wait for `reserve_slots`. Spot of the slots to come is
    taken to cost `spot_surcharge` micro-USD per instance-hour more than its price: the shadow price
    of what other jobs could do with it. The present slot is decided at its price. By count, that is
    the mean, and an instance costs the more the fewer there are (`surcharges.by_count`).

    A `shared` table is that of the job's class, see `class_terms`. One of `even_cells` counts work
    left in cells that what a slot brings and what a change loses are whole numbers of, where such
    cells are fine enough and few enough (see `value_table.even_cell_quanta`); logs of before had none.
    """

    program: JobProgram
    law: MarketLaw
    on_demand_price: int
    on_demand_available: int
    taken: int = 0
    reserve_slots: int = 0
    spot_surcharge: int = 0
    shared: bool = False
    even_cells: bool = False
    surcharge_by_count: bool = False


def table_id(terms: TableTerms) -> str:
    """Name a table by what it is made of: SHA-256, hexadecimal; a shared one by its class."""
    if terms.shared:
        return class_id(class_terms(terms))
    return _named(terms)


@lru_cache(maxsize=4096)
def class_id(terms: TableTerms) -> str:
    """Name the table of a class, whose terms these are."""
    return _named(terms)


def _named(terms: TableTerms) -> str:
    return hashlib.sha256(canonical_v1(terms).encode()).hexdigest()


# Every decision asks for the class of each of its jobs.
@lru_cache(maxsize=16_384)
def class_terms(terms: TableTerms) -> TableTerms:
    """The terms of the class of jobs that `terms` are of, which are their own class.

    Of what is `taken`, and of what there is on demand, only what the largest count notices counts.
    """
    program = terms.program
    most = program.max_instances
    return replace(
        terms,
        program=_class_program(program, terms.on_demand_price),
        on_demand_available=min(terms.on_demand_available, most),
        taken=_noticed(terms.law.level_counts, terms.taken, most),
        shared=True,
    )


def _class_program(program: JobProgram, on_demand_price: int) -> JobProgram:
    fastest = program.rate_quanta_per_s[program.max_instances]
    deadline = rounded_up(program.deadline_slots, _DEADLINE_DIGITS)
    # What can be done in time, and as often that as a job still has to do that will be late.
    full = max(1, deadline) * program.slot_s * fastest
    times = rounded_up(max(1, -(-program.work_quanta // full)), _DEADLINE_DIGITS)
    slots = times * max(1, deadline)
    cost = max(1, cost_micro_usd(on_demand_price, program.max_instances, program.slot_s))
    late, worth = 0, _HARD_WORTH * slots * cost
    if not program.hard:
        late, worth = _lateness(program, cost)
    return replace(
        program,
        work_quanta=slots * program.slot_s * CLASS_RATE,
        rate_quanta_per_s=tuple(
            (2 * rate * CLASS_RATE + fastest) // (2 * fastest) for rate in program.rate_quanta_per_s
        ),
        deadline_slots=deadline,
        end_slots=deadline + late,
        value_micro_usd=(
            *(worth for _ in range(deadline + 1)),
            *(worth * (late - slot) // late for slot in range(1, late + 1)),
        ),
        budget_micro_usd=0,
    )


def _lateness(program: JobProgram, cost: int) -> tuple[int, int]:
    """Slots after the deadline in which a soft job of the class is worth something, and its worth.

    What counts is what a slot of lateness costs, beside the `cost` of a slot on demand. The slots
    are more than the job's: they say when to give up, which is far beyond where plans go.
    """
    late = program.end_slots - program.deadline_slots
    per_slot = program.value_micro_usd[0] * _LATENESS_STEPS // (max(1, late) * cost)
    reach = rounded_up(max(1, late, program.deadline_slots), _DEADLINE_DIGITS)
    return reach, rounded(per_slot, _LATENESS_DIGITS) * reach * cost // _LATENESS_STEPS


def _noticed(level_counts: tuple[int, ...], taken: int, most: int) -> int:
    """The least number taken that leaves as much of every level, as far as `most` instances."""

    def left(taken: int) -> list[int]:
        return [min(most, max(0, count - taken)) for count in level_counts]

    wanted = left(taken)
    low, high = 0, taken
    while low < high:
        middle = (low + high) // 2
        if left(middle) == wanted:
            high = middle
        else:
            low = middle + 1
    return low


def rounded_up(number: int, digits: int) -> int:
    """The least number of at most `digits` binary digits, and zeros, that is >= `number` >= 0."""
    zeros = max(0, number.bit_length() - digits)
    return -(-number >> zeros) << zeros


def rounded(number: int, digits: int) -> int:
    """The nearest number of at most `digits` binary digits, and zeros, the greater of two."""
    zeros = max(0, number.bit_length() - digits)
    return (number + (1 << zeros >> 1)) >> zeros << zeros
