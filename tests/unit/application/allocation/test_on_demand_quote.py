"""What a job would cost on on-demand alone, and the value of one whose owner states none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.allocation.on_demand_quote import (
    on_demand_quote_micro_usd,
    valued,
    with_margin,
)
from spotline.application.allocator.handler import JobsHandler
from spotline.application.market_view import MarketView
from spotline.domain.jobs.job import Job
from spotline.domain.market.offering import Reservation
from tests.depth import examples
from tests.fakes.allocator import EAST, SLOT_S, WEST, job, market_opened, slot_opened

PRICE = 10_000_000


def view(*, prices: dict[str, int] | None = None) -> MarketView:
    handler = JobsHandler()
    state = handler.initial()
    handler.evolve(state, market_opened())
    opened = slot_opened(0, on_demand_price=PRICE)
    if prices is not None:
        quotes = tuple(
            replace(
                slot,
                quote=replace(slot.quote, on_demand_price_micro_usd=prices[slot.quote.offering_id]),
            )
            for slot in opened.quotes
            if slot.quote.offering_id in prices
        )
        opened = replace(opened, quotes=quotes)
    handler.evolve(state, opened)
    market = state.market()
    assert market is not None
    return market


def unvalued(**changes: object) -> Job:
    return replace(job(), value_micro_usd=0, value_from_quote=True, **changes)


def by_hand(market: MarketView, one: Job) -> int:
    """The cheapest of all counts and offerings, slot by slot."""
    costs = []
    for offering, throughput in market.runnable(one):
        price = next(
            (
                slot.quote.on_demand_price_micro_usd
                for slot in market.quotes
                if slot.quote.offering_id == offering.offering_id
            ),
            0,
        )
        for count in one.allowed_counts:
            left_s = one.work.amount / throughput.rate_per_hour(count) * 3600
            busy_s, slots = left_s + one.overheads.launch_s, 0
            while busy_s > 1e-6:
                busy_s -= SLOT_S
                slots += 1
            finish_ns = market.next_slot_start_ns + slots * market.slot_ns
            if price and finish_ns <= one.deadline.at_ns:
                costs.append(slots * round(price * count * SLOT_S / 3600))
    return min(costs, default=0)


def test_the_cheapest_count_on_the_cheapest_offering_is_quoted_with_its_launch() -> None:
    # 8 instance-hours and a minute's launch: 49 slots of one instance end after the deadline of 30,
    # 25 slots of two (4 h 1 min) do not; three or four would pay for more instances that launch.
    market = view(prices={EAST: PRICE, WEST: 2 * PRICE})

    assert on_demand_quote_micro_usd(market, job()) == 25 * round(PRICE * 2 * SLOT_S / 3600)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(1, 200).map(lambda tenths: tenths / 10),
    st.integers(2, 120),
    st.sets(st.integers(1, 9), min_size=1),
    st.integers(1, 20) | st.none(),
    st.integers(1, 20) | st.none(),
)
def test_it_is_the_least_of_all_ways_by_hand(hours, slots, counts, east, west) -> None:
    prices = {EAST: east, WEST: west}
    market = view(prices={key: value * 10**6 for key, value in prices.items() if value})
    one = job(instance_hours=hours, deadline_slots=slots, counts=tuple(sorted(counts)))

    assert on_demand_quote_micro_usd(market, one) == by_hand(market, one)


def test_a_soft_deadline_that_cannot_be_met_is_taken_for_its_end() -> None:
    early = job(deadline_slots=2, late_slots=60, counts=(1,))

    assert on_demand_quote_micro_usd(view(), early) == 49 * round(PRICE * SLOT_S / 3600)


def test_nothing_is_quoted_where_nothing_is_in_time_or_has_a_price() -> None:
    assert on_demand_quote_micro_usd(view(), job(deadline_slots=3)) == 0
    assert on_demand_quote_micro_usd(view(prices={}), job()) == 0


def test_a_reservation_quotes_nothing() -> None:
    market = view()
    block = Reservation(instances=4, ends_ns=0, sunk_price_micro_usd=1)
    paid = replace(
        market, offerings=tuple(replace(one, reservation=block) for one in market.offerings)
    )

    assert on_demand_quote_micro_usd(paid, job()) == 0


@pytest.mark.parametrize(
    ("quote", "margin", "most"),
    [(12_340_000, 0.5, 18_510_000), (1, 0.5, 2), (3, 0.0, 3), (10, 1.0, 20), (0, 0.5, 0)],
)
def test_the_margin_is_on_top_and_rounded_up(quote, margin, most) -> None:
    assert with_margin(quote, margin) == most


def test_a_job_without_a_value_is_worth_and_may_cost_its_quote_and_the_margin() -> None:
    market = view()
    quote = on_demand_quote_micro_usd(market, job())

    found = valued(market, unvalued(), margin=0.25)

    assert found.on_demand_quote_micro_usd == quote
    assert found.value_micro_usd == found.budget_micro_usd == with_margin(quote, 0.25)
    assert found.value_from_quote


def test_a_stated_budget_stays_and_so_does_a_stated_value_or_a_former_quote() -> None:
    market = view()
    found = valued(market, unvalued(budget_micro_usd=7), margin=0.5)

    assert found.budget_micro_usd == 7
    assert valued(market, job(), margin=0.5) == job()
    assert valued(market, found, margin=9.0) == found


def test_where_nothing_has_a_price_the_value_must_be_stated() -> None:
    with pytest.raises(ValueError, match=r"jobs\[1\].value_micro_usd must be stated, was left to"):
        valued(view(prices={}), unvalued(), margin=0.5, field="jobs[1]")
