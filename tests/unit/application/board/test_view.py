"""Flags, slack, money and the fleet; why a job holds what it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.board.messages import FleetView, JobFlag, JobPhase
from spotline.application.board.otherwise import OtherCosts
from spotline.application.board.view import SilenceLimit, fleet_of
from spotline.domain.events.lifecycle import JobOutcome, JobProgressReported, JobQuoted
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import EAST, SLOT_NS, SLOT_S, START_NS, job
from tests.fakes.board import NO_LOTS, BoardStory, outlook, spot
from tests.fakes.training_story import run_job


def reporting(story: BoardStory, done: float, ts_ns: int) -> BoardStory:
    return story.of_job(JobProgressReported, done=done, ts_event_ns=ts_ns)


# --- at risk ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late_slots", "on_time_ppm", "at_risk"),
    [(0, 990_000, False), (0, 989_999, True), (6, 500_000, False), (6, 499_999, True)],
)
def test_less_likely_to_be_on_time_than_asked_for_is_at_risk(late_slots, on_time_ppm, at_risk):
    story = BoardStory(job(instance_hours=5.0, late_slots=late_slots)).running()

    view = story.view(outlook=outlook(on_time_ppm=on_time_ppm))

    assert (JobFlag.AT_RISK in view.flags) == at_risk
    assert ("at risk" in view.headline) == at_risk


def test_time_that_on_demand_no_longer_has_is_at_risk():
    # 5 instance-hours on 4: 1 h 15 min and a launch are 8 slots of the 30.
    story = BoardStory().submitted().opened(0).admitted().decided(NO_LOTS).reported(NO_LOTS)
    assert story.view().latest_on_demand_start_ns == START_NS + 22 * SLOT_NS
    assert story.view().slack_s == 22 * SLOT_S

    last = story.opened(22).view()
    assert (last.slack_s, last.flags) == (0, ())
    over = story.opened(23).view()
    assert over.slack_s == -SLOT_S
    assert over.flags == (JobFlag.AT_RISK,)
    assert "on-demand alone would be too late" in over.headline


def test_what_a_slot_brings_is_not_taken_for_lost_before_it_is_counted():
    # On 4 instances 5 instance-hours take 8 slots: it runs as late as it can.
    story = BoardStory(job(instance_hours=5.0, deadline_slots=8)).running(4)
    assert story.view().slack_s == 0

    story.opened(1)

    assert story.view().flags == ()
    assert story.advanced(120_000, spot(4)).view().slack_s == 0


def test_slack_counts_the_fastest_place_and_a_migration_to_it():
    fast = job(instance_hours=5.0, counts=(1,))
    fast = replace(
        fast,
        throughputs=(
            replace(fast.throughputs[0], offering="p4d.24xlarge"),
            replace(fast.throughputs[0], offering="p3.16xlarge", alpha=5.0),
        ),
    )
    story = BoardStory(fast).running(1)

    # One hour there, and 90 s to get there: 7 slots of 30.
    assert story.view().slack_s == 23 * SLOT_S


# --- stalled ------------------------------------------------------------------------------------


def test_a_program_of_ours_that_says_nothing_is_stalled():
    story = BoardStory(run_job()).running()

    assert story.opened(2).view().flags == ()
    view = story.opened(3).view()
    assert view.flags == (JobFlag.STALLED,)
    assert "stalled: no report since it got its instances" in view.headline


def test_a_platform_that_has_reported_once_must_go_on_to():
    story = BoardStory().running()
    assert story.opened(9).view().flags == ()

    reporting(story, 1.0, START_NS + 9 * SLOT_NS)

    assert story.opened(11).view().flags == ()
    view = story.opened(12).view(last_report_wall_ns=5)
    assert view.flags == (JobFlag.STALLED,)
    assert view.last_report_ns == START_NS + 9 * SLOT_NS
    assert view.last_report_wall_ns == 5
    assert "no report since 01:30 UTC" in view.headline
    assert reporting(story, 1.1, START_NS + 12 * SLOT_NS).view().flags == ()


def test_how_long_it_may_be_silent_can_be_said():
    story = reporting(BoardStory().running(), 1.0, START_NS).opened(1)

    assert story.view().flags == ()
    assert story.view(silence=SilenceLimit(slots=1, seconds=0)).flags == (JobFlag.STALLED,)
    with pytest.raises(ValueError, match="seconds of silence must be >= 0, was -1"):
        SilenceLimit(seconds=-1)


def test_one_that_holds_nothing_or_is_over_may_be_silent():
    idle = reporting(BoardStory().running(), 1.0, START_NS)
    idle.opened(1).decided(NO_LOTS).reported(NO_LOTS)

    assert JobFlag.STALLED not in idle.opened(20).view().flags
    over = reporting(BoardStory().running(), 1.0, START_NS).opened(1).closed(JobOutcome.COMPLETED)
    assert over.opened(20).view().flags == ()


# --- what is said -------------------------------------------------------------------------------


def test_a_running_job_says_what_it_holds_what_is_done_and_when_it_is_expected():
    story = BoardStory().running().opened(1).advanced(600_000, spot(2))

    view = story.view(outlook=outlook(finish_ns=START_NS + 18 * SLOT_NS))

    assert view.headline == (
        "holds 2 spot in use1-az1, 3 of 5 instance-hours done, expected 03:00 UTC, "
        "2 h before its deadline"
    )


def test_without_an_outlook_it_says_when_it_is_done_at_the_present_pace():
    story = BoardStory().running().opened(1).advanced(600_000, spot(2))

    assert "at this pace done 01:10 UTC, 3 h 50 min before its deadline" in story.view().headline


@pytest.mark.parametrize("reason", DecisionReason)
def test_every_reason_of_a_decision_is_said_in_words(reason):
    view = BoardStory().submitted().opened(0).admitted().decided(spot(2), reason).view()

    assert view.why.startswith("2 spot in use1-az1: ")
    assert "on-demand alone could wait 3 h 40 min more" in view.why
    assert "_" not in view.why


def test_the_reasons_differ():
    whys = [
        BoardStory().submitted().opened(0).admitted().decided(spot(2), reason).view().why
        for reason in DecisionReason
    ]

    assert len(set(whys)) == len(DecisionReason)


# --- money --------------------------------------------------------------------------------------


def test_money_is_told_by_its_accounts():
    story = BoardStory(replace(job(), budget_micro_usd=99)).running().opened(1)
    story.billed(500).billed(30, instances=0).advanced(100_000, spot(2), cost=510)

    money = story.view(otherwise=OtherCosts(on_demand_micro_usd=900, msu_micro_usd=600)).money

    assert (money.spent_micro_usd, money.billed_micro_usd, money.egress_micro_usd) == (510, 530, 30)
    assert (money.on_demand_micro_usd, money.msu_micro_usd) == (900, 600)
    assert money.budget_micro_usd == 99


def test_what_was_quoted_stays_beside_what_is_expected_now():
    story = BoardStory().running()
    story.of_job(JobQuoted, slot=0, outlook=outlook(slot=1))

    view = story.view(outlook=outlook(slot=5))

    assert (view.quoted.slot, view.outlook.slot) == (1, 5)


def test_the_fleet_is_what_all_jobs_hold_at_the_prices_of_the_slot():
    story = BoardStory(run_job()).running().billed(70)
    story.reported((Lot(offering_id=EAST, spot=2, on_demand=1),)).opened(3)
    view = story.view()
    assert view.flags == (JobFlag.STALLED,)

    assert fleet_of(story.board, story.market, [view]) == FleetView(
        spot=2,
        on_demand=1,
        micro_usd_per_hour=2 * 3_000_000 + 10_000_000,
        billed_micro_usd=70,
        open_jobs=1,
        at_risk=0,
        stalled=1,
    )


def test_a_clock_of_others_cannot_make_a_program_be_heard_of_later_than_now():
    story = reporting(BoardStory().running(), 1.0, START_NS + 10**6 * NS_PER_S)

    assert story.view().last_report_ns == START_NS + SLOT_NS
    assert story.opened(9).view().flags == (JobFlag.STALLED,)
    assert story.view().phase is JobPhase.RUNNING
