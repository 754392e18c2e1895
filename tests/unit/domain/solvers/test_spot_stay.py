"""A stay elsewhere: worth what its courses are worth, and no more than a table that goes on deciding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.application.allocation.tasks import program_of
from spotline.domain.jobs.accounting import Held, Standing
from spotline.domain.jobs.offer import Offer
from spotline.domain.jobs.program import Holding
from spotline.domain.market.lasting import lasting_of
from spotline.domain.market.law import MarketLaw, StateSpace, quantised_rows
from spotline.domain.solvers.spot_stay import STAY_SLOTS, HomeValue, Stay, stay_worth
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable, build_table, holding_value
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job, offering

SPOT, ON_DEMAND = 3_000_000, 10_000_000
LAW = MarketLaw(
    space=StateSpace(level_starts=(0, 3), age_starts=(1,), price_centres_ppm=(300_000,)),
    level_counts=(0, 4),
    run_ppb=quantised_rows(np.array([[0.8, 0.2], [0.3, 0.7]])),
    price_ppb=quantised_rows(np.ones((1, 1))),
)
GANG = job("gang", instance_hours=3.7, deadline_slots=14, counts=(4,))
PROGRAM = program_of(GANG, EAST, offering(EAST).instance_type, SLOT_S, START_NS, None)
TERMS = TableTerms(program=PROGRAM, law=LAW, on_demand_price=ON_DEMAND, on_demand_available=100)
TABLE: ValueTable = build_table(TERMS)
EVEN: ValueTable = build_table(replace(TERMS, even_cells=True))
TABLES = pytest.mark.parametrize("table", [TABLE, EVEN], ids=["cells", "even cells"])


def standing(pending_s: int = 0) -> Standing:
    return Standing(2, 0, Held(0, 0), pending_s, 0, 0, 0)


def home(run_state: int) -> Offer:
    return Offer(SPOT, ON_DEMAND, 0, 100, SLOT_S, 0, 4, 1, 0, -1, run_state)


def worth(
    lasts: np.ndarray[tuple[int], np.dtype[np.float64]],
    *,
    table: ValueTable | None = TABLE,
    later: int = SPOT,
    pending_s: int = 0,
) -> float:
    chances = lasting_of(LAW).chances(0, STAY_SLOTS)
    return stay_worth(
        PROGRAM,
        standing(pending_s),
        home(0),
        HomeValue(table=table, chances=chances),
        Stay(instances=4, price=SPOT, later_price=later, lasts=lasts),
    )


def test_the_tables_differ_in_their_cells() -> None:
    assert EVEN.cell_quanta != TABLE.cell_quanta


@TABLES
def test_a_stay_of_one_slot_is_what_the_table_says_of_that_slot(table: ValueTable) -> None:
    # Where spot is sure to go, the job is idle at home a slot later, with what it did.
    stays = worth(np.zeros(STAY_SLOTS), table=table)
    offer = home(1)._replace(spot=4)
    at_home = holding_value(table, standing(), offer, PROGRAM.work_quanta, Holding(spot=4))
    idle = holding_value(table, standing(), home(0), PROGRAM.work_quanta, Holding())

    assert idle < stays <= at_home


@TABLES
def test_the_longer_spot_lasts_the_more_a_stay_is_worth(table: ValueTable) -> None:
    found = [worth(np.full(STAY_SLOTS, lasts), table=table) for lasts in (0.0, 0.3, 0.6, 0.9, 1.0)]

    assert found == sorted(found)
    assert found[-1] > found[0]


@TABLES
def test_spot_that_never_goes_does_all_the_work_at_its_price(table: ValueTable) -> None:
    busy_s = -(-PROGRAM.work_quanta // PROGRAM.rate_quanta_per_s[4]) + PROGRAM.launch_s
    slots = -(-busy_s // SLOT_S)
    paid = slots * 4 * SPOT * SLOT_S // 3600

    assert worth(np.ones(STAY_SLOTS), table=table) == pytest.approx(
        GANG.value_micro_usd - paid, abs=slots
    )


def test_a_shadow_price_is_paid_from_the_next_slot_on() -> None:
    lasts = np.ones(STAY_SLOTS)
    dearer = worth(lasts) - worth(lasts, later=SPOT + 900_000)
    busy_s = -(-PROGRAM.work_quanta // PROGRAM.rate_quanta_per_s[4]) + PROGRAM.launch_s
    later_slots = -(-busy_s // SLOT_S) - 1

    assert dearer == pytest.approx(later_slots * 4 * 900_000 * SLOT_S / 3600, abs=16)


def test_the_way_there_takes_from_the_stay() -> None:
    lasts = np.full(STAY_SLOTS, 0.8)

    assert worth(lasts, pending_s=SLOT_S // 2) < worth(lasts)


def test_without_a_table_work_is_worth_the_on_demand_that_it_spares() -> None:
    slot = 4 * (ON_DEMAND - SPOT) * (SLOT_S - PROGRAM.launch_s) / 3600
    launch = 4 * SPOT * PROGRAM.launch_s / 3600
    needed_s = -(-PROGRAM.work_quanta // PROGRAM.rate_quanta_per_s[4])
    all_bought = 4 * ON_DEMAND * (needed_s + PROGRAM.interrupted_s + PROGRAM.lost_s) / 3600

    found = worth(np.zeros(STAY_SLOTS), table=None)

    assert found == pytest.approx(slot - launch - all_bought, abs=100)
