"""Charges, the decision behind each, and the sums that pages of money show."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from spotline.application.operations.messages import SpendUse
from spotline.application.page import money
from spotline.application.page.spend import (
    ChargeFilter,
    chosen,
    cumulated,
    failed_spend,
    idle_reservations,
    spend_by,
    spend_forecasts,
    steps_of,
)
from spotline.application.page.waterfall import waterfall
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import CapacityType, Reservation
from spotline.domain.market.reservations import reserved_offering
from tests.fakes.allocator import EAST, WEST, job, market_opened, slot_opened
from tests.fakes.paged import PageStory, paid_story

ALL = ChargeFilter()


def test_a_charge_knows_the_decision_that_spent_it() -> None:
    story = paid_story()

    (charge,) = story.state.money.charges()
    assert (charge.kind, charge.instances, charge.cost_micro_usd) == ("spot", 2, 1_000_000)
    assert charge.on_demand_micro_usd == 3_333_333
    assert (charge.command_slot, charge.decided, charge.explained) == (0, True, True)


def test_a_charge_that_no_command_asked_for_is_not_explained() -> None:
    story = paid_story().charged(1, kind=CapacityType.ON_DEMAND)

    unexplained = chosen(story.state.money, ChargeFilter(unexplained=True))
    assert [charge.kind for charge in unexplained] == ["on_demand"]
    assert unexplained[0].command_slot == -1


def test_what_a_later_command_released_was_decided_by_the_one_before() -> None:
    story = paid_story().decided(()).commanded(Lot(offering_id=EAST)).charged(2)

    assert [charge.command_slot for charge in story.state.money.charges()] == [0, 0]


def test_a_copy_of_a_checkpoint_follows_from_the_command_that_moved_the_job() -> None:
    there = Lot(offering_id=WEST, spot=2)
    story = paid_story().decided((there,), move_from=EAST).commanded(there, transfer=280_000)
    story.charged(0, kind=CapacityType.ON_DEMAND, offering_id=WEST)

    copy = list(story.state.money.charges())[-1]
    assert (copy.kind, copy.command_slot, copy.explained) == ("egress", 1, True)


def test_spend_is_told_apart_by_tenant_with_shares_of_all() -> None:
    story = paid_story().other(job("r2", tenant="search")).charged(6)

    rows = spend_by(story.state.money.charges(), "tenant")
    assert [(row.name, row.cost_micro_usd, row.share_ppm) for row in rows] == [
        ("search", 3_000_000, 750_000),
        ("research", 1_000_000, 250_000),
    ]
    assert rows[1].instance_hours == pytest.approx(2 / 6)


def test_a_period_takes_both_its_ends() -> None:
    story = paid_story().charged(1, slot=1).charged(1, slot=2)

    found = chosen(story.state.money, ChargeFilter(first_slot=0, last_slot=1))
    assert [charge.slot for charge in found] == [0, 1]


def test_a_slot_without_progress_is_failed_spend() -> None:
    story = paid_story()
    story.slot = 2
    story.tell(slot_opened(2)).advanced(300_000, (Lot(offering_id=EAST, spot=2),)).charged(
        2, slot=1
    )

    money_told = story.state.money
    (failed,) = failed_spend(money_told.charges(), money_told.all_steps(), money_told.closed)
    assert (failed.cost_micro_usd, failed.slots) == (1_000_000, (1,))


def test_what_is_held_after_the_end_of_its_job_is_failed_spend() -> None:
    story = paid_story()
    story.slot = 2
    story.tell(slot_opened(2)).advanced(1_000_000, (Lot(offering_id=EAST, spot=2),))
    story.closed(JobOutcome.COMPLETED).charged(2, slot=2)

    told = story.state.money
    (failed,) = failed_spend(told.charges(), told.all_steps(), told.closed)
    assert failed.slots == (2,)


def test_the_waterfall_of_a_story_starts_at_the_share_of_its_quote() -> None:
    story = paid_story()

    told = story.state.money
    quote = told.quoted_micro_usd[story.job.job_id]
    found = waterfall(told.charges(), steps_of(story.state, ALL), told.quoted_micro_usd)
    assert quote > 0
    assert found.on_demand_micro_usd == quote * 3 // 10
    assert found.actual_micro_usd == 1_000_000


def test_cumulated_spend_ends_at_the_total_however_it_is_thinned() -> None:
    story = paid_story()
    for slot in range(1, 40):
        story.charged(1, slot=slot)

    points = cumulated(story.state.money.charges(), (), most=10)
    assert len(points) <= 10
    assert points[-1].spent_micro_usd == 1_000_000 + 39 * 500_000


def test_old_charges_are_counted_together_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(money, "MOST_CHARGES", 20)
    story = paid_story()
    for slot in range(1, 25):
        story.charged(1, slot=slot)

    told = story.state.money
    kept = sum(charge.cost_micro_usd for charge in told.charges())
    assert told.count <= 20
    assert kept + told.forgotten_micro_usd == 1_000_000 + 24 * 500_000


def test_a_copied_state_goes_on_as_the_first() -> None:
    story = paid_story()
    copy = pickle.loads(pickle.dumps(story.state))

    assert list(copy.money.charges()) == list(story.state.money.charges())


def test_spend_at_the_rate_of_the_last_hour_says_when_a_limit_is_full() -> None:
    hour = SpendUse(what="total", span="hour", used_micro_usd=10, limit_micro_usd=None)
    day = SpendUse(what="total", span="day", used_micro_usd=100, limit_micro_usd=110)
    full = SpendUse(what="total", span="month", used_micro_usd=120, limit_micro_usd=110)

    found = spend_forecasts((hour, day, full))
    assert [each.full_in_s for each in found] == [None, 3600, 0]
    assert [each.expected_micro_usd for each in found] == [10, 240, 7200]


def test_a_savings_plan_is_paid_for_once_whatever_offerings_share_it() -> None:
    plan = Reservation(
        instances=2, sunk_price_micro_usd=3_000_000, plan="sp", plan_micro_usd_per_hour=7_000_000
    )
    opened = market_opened()
    planned = tuple(reserved_offering(offering, "sp", plan) for offering in opened.offerings)
    story = PageStory().tell(replace(opened, offerings=(*opened.offerings, *planned)))
    hours = 4 * opened.slot_s / 3600

    (row,) = idle_reservations((), story.state.jobs.recent, 0, 3)

    assert len(planned) > 1
    assert (row.offering_id, row.used_micro_usd) == ("sp", 0)
    assert row.idle_micro_usd == row.paid_micro_usd == round(7_000_000 * hours)


def test_a_market_without_reservations_has_none_that_are_idle() -> None:
    story = PageStory().tell(market_opened(), slot_opened(0))

    assert idle_reservations((), story.state.jobs.recent, 0, 9) == []
