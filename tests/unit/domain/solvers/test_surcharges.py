"""A shadow price by count: the mean is what it is said to be, and scarce spot costs more than plenty."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.jobs.accounting import Held, Standing
from spotline.domain.jobs.offer import Offer
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.market.law import choose_space, learn_law
from spotline.domain.solvers.surcharges import by_count, surcharges_of
from spotline.domain.solvers.table_terms import TableTerms, table_id
from spotline.domain.solvers.value_table import holding_value, solve

DEAREST = 3_000_000
PRICE = 600_000
# Little spot for a while, then much of it for a while, then none.
COUNTS = ([2] * 6 + [8] * 6 + [0] * 3) * 12


PROGRAM = JobProgram(
    slot_s=1_800,
    work_quanta=10 * 1_800 * 8,
    rate_quanta_per_s=tuple(range(9)),
    allowed_counts=(2, 4, 8),
    launch_s=60,
    grow_s=60,
    shrink_s=30,
    interrupted_s=120,
    deadline_slots=40,
    end_slots=60,
    hard=False,
    value_micro_usd=(10**9,) * 41 + tuple(10**9 * left // 20 for left in range(19, -1, -1)),
    budget_micro_usd=0,
)


def law_of(counts):
    prices = [PRICE * 1_000_000 // DEAREST] * len(counts)
    return learn_law(counts, prices, choose_space(counts, prices, most_instances=8))


def terms_with(**options):
    return TableTerms(
        program=PROGRAM,
        law=law_of(COUNTS),
        on_demand_price=DEAREST,
        on_demand_available=8,
        **options,
    )


@given(
    mean=st.integers(0, 10**7),
    states=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 1000)), min_size=1, max_size=12),
)
def test_an_instance_costs_the_mean_and_a_slot_with_spot_costs_the_same(mean, states):
    counts = np.array([count for count, _ in states])
    chances = np.array([chance for _, chance in states], dtype=float)
    chances /= chances.sum()

    prices = by_count(mean, counts, chances, dearest=10**18)

    there = counts > 0
    assert (prices[~there] == 0).all()
    if there.any():
        # Rounded, each price is at most half a micro-dollar off.
        paid, instances = (chances * counts * prices).sum(), (chances * counts).sum()
        assert paid / instances == pytest.approx(mean, abs=0.5)
        a_slot = (counts * prices)[there]
        assert np.ptp(a_slot) <= counts.max()


def test_no_instance_costs_more_than_the_dearest():
    prices = by_count(1_000, np.array([1, 100]), np.array([0.5, 0.5]), dearest=5_000)

    assert prices.tolist() == [5_000, 505]


def test_spot_that_the_law_never_meets_costs_the_mean_and_no_more_than_the_dearest():
    counts, chances = np.array([0, 4]), np.array([1.0, 0.0])

    assert by_count(700, counts, chances, dearest=5_000).tolist() == [0, 700]
    assert by_count(7_000, counts, chances, dearest=5_000).tolist() == [0, 5_000]


def test_where_the_law_knows_one_count_all_cost_the_mean():
    terms = replace(
        terms_with(spot_surcharge=400_000, surcharge_by_count=True), law=law_of([8, 0] * 40)
    )

    counts = terms.law.run_counts()
    assert set(surcharges_of(terms)[counts > 0].tolist()) == {400_000}


def test_a_flat_surcharge_is_that_of_every_count():
    assert set(surcharges_of(terms_with(spot_surcharge=400_000)).tolist()) == {400_000}


def test_a_table_by_count_has_a_name_of_its_own_and_others_keep_theirs():
    flat = terms_with(spot_surcharge=400_000)

    assert table_id(flat) != table_id(replace(flat, surcharge_by_count=True))


def test_what_waits_for_plenty_is_worth_more_than_by_the_mean():
    """Where there is little spot now, and plenty soon that costs less than the mean."""
    worth = {}
    for named, chosen in (("flat", False), ("by count", True)):
        table = solve(terms_with(spot_surcharge=800_000, surcharge_by_count=chosen))
        scarce = next(
            run for run, count in enumerate(table.terms.law.run_counts()) if 0 < count < 8
        )
        offer = Offer(PRICE, DEAREST, 2, 8, 1_800, 0, 0, 1, 0, -1, scarce)
        standing = Standing(0, 0, Held(0, 0), 0, 0, 0, 0)
        left = table.terms.program.work_quanta
        worth[named] = [
            holding_value(table, standing, offer, left, Holding(spot=spot, on_demand=0))
            for spot in (0, 2)
        ]

    idle, held = 0, 1
    assert worth["by count"][idle] > worth["flat"][idle]
    gained = {named: found[held] - found[idle] for named, found in worth.items()}
    assert gained["by count"] < gained["flat"]
