"""Marginal worths of a fluid: what one unit of spot more truly spares, found by another solver."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from spotline.domain.crowd.fluid import (
    MOST_PRICE_MICRO_USD,
    MOST_WORK,
    FluidWork,
    IntArray,
    Supply,
    marginal_worths,
)

SLOTS, OFFERINGS = 4, ("p/east/a/g", "p/north/a/g", "p/west/a/g")
PLENTY = 1_000


def supply_of(spot: Sequence[Sequence[int]], **changes: Sequence[int]) -> Supply:
    """So much spot by slot and offering, at 10, 20 and 30; on-demand costs 100."""
    given_: dict[str, Sequence[int]] = {
        "on_demand": (PLENTY,) * 3,
        "spot_price": (10, 20, 30),
        "on_demand_price": (100, 100, 100),
        **changes,
    }
    return Supply(
        offering_ids=OFFERINGS,
        spot=np.array(spot, dtype=np.int64),
        **{name: np.array(values, dtype=np.int64) for name, values in given_.items()},
    )


def least_cost(work: Sequence[FluidWork], supply: Supply, spot: IntArray) -> float:
    """What all work costs at least, by linear programming."""
    ways: list[tuple[int, int, int, int, float]] = []  # whose, slot, offering, kind, cost
    beyond = 3 * max(supply.on_demand_price.max(), supply.spot_price.max())
    for whose, each in enumerate(work):
        for slot in range(each.begins, each.due):
            for column, name in enumerate(OFFERINGS):
                if name in each.where:
                    ways.append((whose, slot, column, 0, float(supply.spot_price[column])))
                    ways.append((whose, slot, column, 1, float(supply.on_demand_price[column])))
        ways.append((whose, -1, -1, 2, float(beyond)))
    rows, most = [], []
    for kind in {(each.begins, each.due, each.where) for each in work}:
        alike = {at for at, each in enumerate(work) if (each.begins, each.due, each.where) == kind}
        for slot in range(SLOTS):
            rows.append([float(way[0] in alike and way[1] == slot) for way in ways])
            most.append(sum(work[at].most for at in alike))
    for slot in range(SLOTS):
        for column in range(len(OFFERINGS)):
            for bought, there in ((0, spot[slot, column]), (1, supply.on_demand[column])):
                rows.append([float(way[1:4] == (slot, column, bought)) for way in ways])
                most.append(int(there))
    whole = [[float(way[0] == whose) for way in ways] for whose in range(len(work))]
    found = linprog(
        [way[4] for way in ways],
        A_ub=rows,
        b_ub=most,
        A_eq=whole,
        b_eq=[each.amount for each in work],
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


@st.composite
def works(draw: st.DrawFn) -> FluidWork:
    begins = draw(st.integers(0, SLOTS - 1))
    return FluidWork(
        begins=begins,
        due=draw(st.integers(begins + 1, SLOTS)),
        most=draw(st.integers(1, 6)),
        amount=draw(st.integers(1, 14)),
        where=tuple(sorted(draw(st.sets(st.sampled_from(OFFERINGS), min_size=1)))),
    )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(works(), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=SLOTS, max_size=SLOTS),
    st.tuples(*[st.sampled_from((0, 3, PLENTY))] * 3),
    st.tuples(*[st.integers(1, 60)] * 3),
    st.tuples(*[st.integers(40, 120)] * 3),
)
def test_a_worth_is_what_one_unit_more_spares(
    work: list[FluidWork],
    spot: list[list[int]],
    on_demand: tuple[int, ...],
    spot_price: tuple[int, ...],
    on_demand_price: tuple[int, ...],
) -> None:
    supply = supply_of(
        spot, on_demand=on_demand, spot_price=spot_price, on_demand_price=on_demand_price
    )
    worths = marginal_worths(work, supply)
    before = least_cost(work, supply, supply.spot)
    for slot in range(SLOTS):
        for column in range(3):
            more = supply.spot.copy()
            more[slot, column] += 1
            spared = before - least_cost(work, supply, more)
            assert worths[slot, column] == pytest.approx(spared, abs=1e-6)


def test_scarce_spot_is_worth_what_on_demand_costs_beyond_it() -> None:
    work = [FluidWork(begins=0, due=1, most=8, amount=8, where=OFFERINGS)]
    worths = marginal_worths(work, supply_of([[4, 2, 0], [4, 4, 4], [4, 4, 4], [4, 4, 4]]))

    assert worths[0].tolist() == [90, 80, 70]
    assert not worths[1:].any()


def test_where_there_is_enough_only_the_cheaper_is_worth_anything() -> None:
    work = [FluidWork(begins=0, due=1, most=8, amount=8, where=OFFERINGS)]
    worths = marginal_worths(work, supply_of([[4, 9, 9], [0, 0, 0], [0, 0, 0], [0, 0, 0]]))

    assert worths[0].tolist() == [10, 0, 0]


def test_work_that_can_wait_takes_the_slots_that_others_leave() -> None:
    waits = FluidWork(begins=0, due=4, most=4, amount=4, where=OFFERINGS[:1])
    now = FluidWork(begins=0, due=1, most=4, amount=4, where=OFFERINGS[:1])
    spot = [[4, 0, 0], [4, 0, 0], [0, 0, 0], [0, 0, 0]]

    assert not marginal_worths([waits, now], supply_of(spot)).any()
    assert marginal_worths([waits, now, now], supply_of(spot))[:, 0].tolist() == [90, 0, 0, 0]


def test_without_work_nothing_is_worth_anything() -> None:
    spot = [[4, 0, 0]] * SLOTS
    idle = FluidWork(begins=0, due=4, most=4, amount=0, where=OFFERINGS)

    assert not marginal_worths([], supply_of(spot)).any()
    assert not marginal_worths([idle], supply_of(spot)).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"due": 5}, "begins and due must ascend in 0..4, were 0 and 5"),
        ({"begins": 2, "due": 2}, "begins and due must ascend in 0..4, were 2 and 2"),
        ({"where": ()}, "where must name offerings of the supply"),
        ({"where": ("p/south/a/g",)}, "where must name offerings of the supply"),
    ],
)
def test_work_that_does_not_fit_the_supply_is_refused(
    changes: dict[str, object], message: str
) -> None:
    work = FluidWork(begins=0, due=4, most=4, amount=4, where=OFFERINGS)._replace(**changes)

    with pytest.raises(ValueError, match=message):
        marginal_worths([work], supply_of([[4, 0, 0]] * SLOTS))


def test_what_could_overflow_is_refused() -> None:
    work = FluidWork(begins=0, due=4, most=8, amount=MOST_WORK, where=OFFERINGS)
    spot = [[4, 0, 0]] * SLOTS
    dear = supply_of(spot, on_demand_price=(100, 100, MOST_PRICE_MICRO_USD + 1))

    # One kind of work on the greatest prices there are still has its worths.
    dearest = supply_of(spot, on_demand_price=(MOST_PRICE_MICRO_USD,) * 3)
    assert marginal_worths([work], dearest)[0, 0] == MOST_PRICE_MICRO_USD - 10
    with pytest.raises(ValueError, match="prices must be <="):
        marginal_worths([work], dear)
    with pytest.raises(ValueError, match="amounts must sum to <="):
        marginal_worths([work, work], supply_of(spot))
