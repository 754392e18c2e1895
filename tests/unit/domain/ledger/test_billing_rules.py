"""What an instance costs in the end: laws of the sum, minimum, first hour, rounding."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.ledger.billing_rules import (
    BILLED_BY_THE_SECOND,
    BilledLife,
    PriceChange,
    costs_nothing_if_taken_at,
    life_cost_micro_usd,
)
from spotline.domain.market.offering import AWS_BILLING, BillingRules, CapacityType
from spotline.domain.units import NS_PER_S, cost_micro_usd

BEGIN_S = 1_767_225_600


def life(ran_s: int, *, taken_back: bool = False, kind: CapacityType = CapacityType.SPOT):
    return BilledLife(
        capacity_type=kind, begin_s=BEGIN_S, end_s=BEGIN_S + ran_s, taken_back=taken_back
    )


def changes(*pairs: tuple[int, int]) -> tuple[PriceChange, ...]:
    return tuple(PriceChange(from_s=BEGIN_S + at_s, micro_usd=price) for at_s, price in pairs)


PRICES = changes((-500, 1_000_001))


def test_a_life_at_one_price_is_the_price_times_its_seconds():
    cost = life_cost_micro_usd(BILLED_BY_THE_SECOND, life(5000), PRICES)

    assert cost == cost_micro_usd(1_000_001, 1, 5000)


@given(
    ran_s=st.integers(1, 400),
    steps=st.lists(st.tuples(st.integers(-50, 450), st.integers(0, 10**8)), max_size=8),
    first=st.integers(0, 10**8),
)
def test_each_second_costs_the_price_in_force_and_all_is_rounded_once(ran_s, steps, first):
    ordered = changes((-100, first), *sorted(steps))
    starts = [change.from_s for change in ordered]

    cost = life_cost_micro_usd(BILLED_BY_THE_SECOND, life(ran_s), ordered)

    by_second = [
        ordered[bisect_right(starts, at_s) - 1].micro_usd
        for at_s in range(BEGIN_S, BEGIN_S + ran_s)
    ]
    assert cost == (sum(by_second) + 1800) // 3600


@given(ran_s=st.integers(0, 300), least_s=st.integers(0, 300), price=st.integers(0, 10**9))
def test_a_short_life_costs_the_minimum_and_a_long_one_what_it_ran(ran_s, least_s, price):
    rules = BillingRules(least_s=least_s)

    cost = life_cost_micro_usd(rules, life(ran_s), changes((0, price)))

    assert cost == cost_micro_usd(price, 1, max(ran_s, least_s))


def test_what_a_minimum_adds_costs_the_prices_in_force():
    cost = life_cost_micro_usd(
        BillingRules(least_s=60), life(20), changes((0, 3_600_000), (30, 7_200_000), (60, 36))
    )

    assert cost == 30 * 1000 + 30 * 2000


@pytest.mark.parametrize(
    ("ran_s", "taken_back", "kind", "free"),
    [
        (3599, True, CapacityType.SPOT, True),
        (10, True, CapacityType.SPOT, True),
        (3600, True, CapacityType.SPOT, False),
        (3599, False, CapacityType.SPOT, False),
        (3599, True, CapacityType.ON_DEMAND, False),
    ],
)
def test_only_spot_that_is_taken_back_within_its_first_hour_is_free(ran_s, taken_back, kind, free):
    cost = life_cost_micro_usd(AWS_BILLING, life(ran_s, taken_back=taken_back, kind=kind), PRICES)

    assert (cost == 0) == free


def test_what_offerings_do_not_state_is_billed_by_the_second_alone():
    assert life_cost_micro_usd(BILLED_BY_THE_SECOND, life(1, taken_back=True), PRICES) == 278


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ((), "there is none"),
        (changes((1, 5)), "the first begins at"),
        (changes((-5, 1), (-9, 2)), "in order of time"),
    ],
)
def test_a_life_without_a_price_in_force_is_refused(prices, problem):
    with pytest.raises(ValueError, match=problem):
        life_cost_micro_usd(BILLED_BY_THE_SECOND, life(10), prices)


def test_a_life_does_not_end_before_it_begins():
    with pytest.raises(ValueError, match="end_s must be >= begin_s"):
        life(-1)


@given(begun_s=st.integers(0, 10**9), held_s=st.integers(0, 8000))
def test_to_be_left_to_the_provider_is_to_cost_nothing(begun_s, held_s):
    taken_ns = (begun_s + held_s) * NS_PER_S

    left = costs_nothing_if_taken_at(AWS_BILLING, begun_s * NS_PER_S, taken_ns)

    taken = BilledLife(
        capacity_type=CapacityType.SPOT, begin_s=begun_s, end_s=begun_s + held_s, taken_back=True
    )
    prices = (PriceChange(from_s=0, micro_usd=3600),)
    assert left == (life_cost_micro_usd(AWS_BILLING, taken, prices) == 0)
    assert not costs_nothing_if_taken_at(BILLED_BY_THE_SECOND, 0, taken_ns)
