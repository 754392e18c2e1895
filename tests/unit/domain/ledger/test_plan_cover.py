"""Savings plans by the hour: the order that AWS states, its own example, and laws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.ledger.plan_cover import PlanMoney, PlanUsage, at_list_s

HOUR = 3600


def usage(name, begin_s, end_s, *, listed=3_000_000, since_s=None, **rates):
    return PlanUsage(
        instance_id=name,
        since_s=begin_s if since_s is None else since_s,
        begin_s=begin_s,
        end_s=end_s,
        list_micro_usd=listed,
        rates=tuple(rates.items()),
    )


def plan(name, usd, until_s=0):
    return PlanMoney(plan_id=name, micro_usd_per_hour=usd * 1_000_000, until_s=until_s)


def test_the_highest_saving_comes_first_then_the_lowest_rate_then_who_began_first():
    """An hour's money for one of them each time; rates are of two types."""
    half = usage("half", 0, HOUR, listed=4_000_000, p=2_000_000)
    third = usage("third", 0, HOUR, listed=3_000_000, p=2_000_000)
    small = usage("small", 0, HOUR, listed=2_000_000, p=1_000_000)
    older = usage("older", HOUR, 2 * HOUR, listed=4_000_000, since_s=10, p=2_000_000)
    newer = usage("newer", HOUR, 2 * HOUR, listed=4_000_000, since_s=20, p=2_000_000)

    assert at_list_s([plan("p", 2)], [third, half]) == {"half": 0, "third": HOUR}
    assert at_list_s([plan("p", 1)], [half, small]) == {"half": HOUR, "small": 0}
    assert at_list_s([plan("p", 2)], [newer, older]) == {"older": 0, "newer": HOUR}


def test_money_of_an_hour_that_is_left_is_lost():
    one = usage("one", 0, 2 * HOUR, p=1_000_000)
    late = usage("late", HOUR, 2 * HOUR, p=1_000_000)

    assert at_list_s([plan("p", 1)], [one, late]) == {"one": 0, "late": HOUR}


def test_what_begins_as_another_has_ended_takes_the_money_that_is_left():
    first = usage("first", 0, 1200, p=1_000_000)
    then = usage("then", 1300, HOUR, p=1_000_000)

    assert at_list_s([plan("p", 1)], [first, then]) == {"first": 0, "then": 0}


def test_two_plans_one_after_the_other_and_a_plan_that_ends_within_an_hour():
    one = usage("one", 0, HOUR, p=2_000_000, q=4_000_000)

    assert at_list_s([plan("p", 1), plan("q", 1)], [one]) == {"one": 900}
    assert at_list_s([plan("p", 2, until_s=600)], [one]) == {"one": 3000}
    assert at_list_s([plan("p", 1), plan("q", 4, until_s=2000)], [one]) == {"one": 1600}


SPANS = st.tuples(st.integers(0, 3 * HOUR), st.integers(0, 3 * HOUR)).map(sorted)


@given(
    st.lists(st.tuples(SPANS, st.integers(1, 5), st.integers(1, 5)), max_size=6),
    st.integers(0, 12),
    st.integers(0, 3 * HOUR),
)
def test_no_hour_pays_more_than_its_money_and_no_second_twice(spans, usd, until_s):
    usages = [
        usage(str(n), *span, listed=(rate + saved) * 1_000_000, p=rate * 1_000_000)
        for n, (span, rate, saved) in enumerate(spans)
    ]
    left = at_list_s([plan("p", usd, until_s)], usages)

    paid = {one.instance_id: one.end_s - one.begin_s - left[one.instance_id] for one in usages}
    assert all(seconds >= 0 for seconds in paid.values())
    money = sum(paid[one.instance_id] * (one.rate("p") or 0) for one in usages)
    assert money <= 3 * usd * 1_000_000 * HOUR
    if until_s == 0 and usd >= 5 * len(usages):
        assert not any(left.values())
