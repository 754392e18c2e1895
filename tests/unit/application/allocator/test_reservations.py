"""Plans and answers to submissions count on a reservation until it ends, and no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.admission import check_job
from spotline.application.allocator.messages import PlanRequest
from spotline.application.allocator.planning import market_of_request, plan
from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.market_view import MarketFold, MarketView
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.forecasting.registry import forecaster_factory
from spotline.domain.jobs.job import Job
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S
from spotline.replay.course import slots_of
from tests.fakes.actuator import CTX
from tests.fakes.allocator import job
from tests.fakes.recorded_run import small_market
from tests.fakes.reserved import with_one

NOW = 10
OPEN = small_market(slots=60)


def seen(market: Market, slot: int = NOW) -> MarketView:
    fold = MarketFold()
    fold.fold(
        MarketOpened(
            offerings=market.offerings,
            slot_s=market.slot_s,
            first_slot_start_ns=market.start_ns,
            source="",
        )
    )
    for opened in slots_of(market)[: slot + 1]:
        fold.fold(opened)
    view = fold.view()
    assert view is not None
    return view


def asked(*, hours: float = 8.0, slots: int = 20, only: str = "", name: str = "r") -> Job:
    made = job(name, instance_hours=hours, counts=(4,), offerings=(only,) if only else ())
    at_ns = OPEN.start_ns + (NOW + 1 + slots) * OPEN.slot_s * NS_PER_S
    return replace(made, deadline=replace(made.deadline, at_ns=at_ns, expires_ns=at_ns))


def test_a_plan_chooses_the_reservation_and_names_it():
    market = with_one(OPEN, instances=4, slots=40)
    reserved = market.offerings[-1].offering_id

    asked_for = PlanRequest(job=asked(), policy_ids=("msu", "on_demand_only"))
    answer = plan(asked_for, seen(market))

    best = answer.options[0]
    assert (best.chosen, best.offering_id, best.expected_cost_micro_usd) == (True, reserved, 0)
    assert all(step.lot.on_demand == 4 for step in best.steps)


def test_a_plan_counts_on_nothing_after_its_end():
    market = with_one(OPEN, instances=4, slots=NOW + 3)
    reserved = market.offerings[-1].offering_id

    answer = plan(PlanRequest(job=asked(), policy_ids=("msu", "on_demand_only")), seen(market))

    there = [option for option in answer.options if option.offering_id == reserved]
    assert answer.options[0].offering_id != reserved
    assert [option.on_time_probability_ppm for option in there] == [0, 0]


def test_a_joint_plan_uses_it_until_its_end_and_keeps_the_deadlines():
    market = with_one(OPEN, instances=4, slots=NOW + 4)
    reserved = market.offerings[-1].offering_id

    answer = plan(PlanRequest(jobs=(asked(name="a"), asked(name="b"))), seen(market))

    assert answer.joint is not None
    by_slot: dict[int, int] = {}
    for schedule in answer.joint.schedules:
        for step in schedule.steps:
            if step.lot.offering_id == reserved:
                by_slot[step.slot] = by_slot.get(step.slot, 0) + step.lot.on_demand
    assert by_slot == {NOW + 1: 4, NOW + 2: 4, NOW + 3: 4}


@pytest.mark.parametrize(("lasts", "instances"), [(NOW + 2, 4), (50, 3)])
def test_a_job_that_may_only_run_there_is_refused_where_it_cannot_be_done(lasts, instances):
    market = with_one(OPEN, instances=instances, slots=lasts)
    only = market.offerings[-1].offering_id

    refused = check_job(seen(market), asked(only=only))

    assert refused is not None
    assert refused.field == "job.offerings"
    assert "end before its work can be done" in refused.message
    assert check_job(seen(with_one(OPEN, instances=4, slots=50)), asked(only=only)) is None


def test_the_market_is_forecast_as_if_there_were_no_reservation():
    def issued(market: Market) -> list:
        handler = ForecastHandler(forecaster_factory("mixture"), horizon_slots=3)
        state = handler.initial()
        events = []
        for opened in slots_of(market)[:9]:
            handler.evolve(state, opened)
            events += handler.decide(state, opened, CTX).events
        return events

    with_it, without = issued(with_one(OPEN, instances=4)), issued(OPEN)

    reserved = with_one(OPEN, instances=4).offerings[-1].offering_id
    for mine, open_ones in zip(
        [event for event in with_it if getattr(event, "offering_id", "") != reserved],
        without,
        strict=True,
    ):
        if hasattr(mine, "forecasts"):
            *others, last = mine.forecasts
            assert last.offering_id == reserved
            assert [count.instances for step in last.steps for count in step.counts] == [0, 0, 0]
            assert replace(mine, forecasts=tuple(others)) == open_ones
        else:
            assert mine == open_ones


def test_a_law_book_keeps_reservations_apart_when_it_is_loaded_again():
    book = LawBook()
    for opened in slots_of(with_one(OPEN, instances=4))[:8]:
        book.observe(opened)

    again = LawBook.load(book.dump())

    assert again == book
    assert again.learn() == book.learn()
    traded = LawBook()
    for opened in slots_of(OPEN)[:8]:
        traded.observe(opened)
    assert {name: book.learn()[name] for name in traded.counts} == traded.learn()


def test_a_request_with_a_free_offering_that_is_no_reservation_is_refused():
    opened: SlotOpened = slots_of(with_one(OPEN, instances=4))[NOW]
    *_, free = opened.quotes
    base = OPEN.offerings[0]
    quotes = (replace(free, quote=replace(free.quote, offering_id=base.offering_id)),)
    request = PlanRequest(job=asked(), offerings=(base,), quotes=quotes, slot_s=1800)

    with pytest.raises(ValueError, match=r"^quotes\[0\].quote.on_demand_price_micro_usd must be"):
        market_of_request(request)
