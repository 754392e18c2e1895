"""One phase at a time, and the reason why a job waits, from what happened to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.board.messages import JobPhase, WaitingFor
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import (
    JobCancelled,
    JobExited,
    JobOutcome,
    JobProgressReported,
    JobRetryScheduled,
)
from spotline.domain.events.training import GenerationFormed, TrainingRestarted
from spotline.domain.ledger.cooldowns import Cooldown, CoolingScope
from spotline.domain.ledger.crash_loops import loop_freeze
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import SLOT_NS, SLOT_S, START_NS, WEST, job, market_opened
from tests.fakes.board import NO_LOTS, BoardStory, awaiting, spot
from tests.fakes.training_story import run_job


def shown(story: BoardStory) -> tuple[JobPhase, WaitingFor | None]:
    view = story.view()
    return view.phase, view.waiting_for


def restarted(story: BoardStory, generation: int, ts_ns: int) -> BoardStory:
    return story.of_job(
        TrainingRestarted,
        generation=generation,
        restart_s=30,
        load_s=1,
        resumed_done=0.0,
        resumed_sha256="",
        ts_event_ns=ts_ns,
    )


def formed(story: BoardStory, generation: int, ts_ns: int = START_NS) -> BoardStory:
    return story.of_job(
        GenerationFormed,
        generation=generation,
        instance_ids=("i-0", "i-1"),
        detail="",
        ts_event_ns=ts_ns,
    )


# --- waiting ------------------------------------------------------------------------------------


def test_before_the_first_slot_it_waits_for_the_market():
    assert shown(BoardStory().submitted()) == (JobPhase.WAITING, WaitingFor.MARKET)


def test_before_its_start_it_waits_for_that():
    later = job(start_ns=START_NS + 3 * SLOT_NS)
    story = BoardStory(later).submitted().opened(0)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.START)
    assert "waits for its start at 00:30 UTC" in story.view().headline


def test_one_that_comes_within_a_slot_waits_for_the_next_slot():
    story = BoardStory().submitted().opened(0)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.SLOT)
    assert shown(story.admitted()) == (JobPhase.WAITING, WaitingFor.SLOT)


def test_one_that_a_slot_has_not_taken_up_waits_for_capacity():
    story = BoardStory().submitted().opened(0).opened(1)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.CAPACITY)
    assert "nowhere can it run now" in story.view().headline


def test_what_was_decided_and_not_yet_reported_it_waits_for():
    story = BoardStory().submitted().opened(0).admitted().decided(spot(2))

    assert shown(story) == (JobPhase.WAITING, WaitingFor.INSTANCES)
    assert "waits for 2 spot in use1-az1" in story.view().headline


def test_where_its_policy_takes_nothing_it_waits_for_the_price():
    story = BoardStory().submitted().opened(0).admitted().decided(NO_LOTS).reported(NO_LOTS)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.PRICE)


@pytest.mark.parametrize("reason", [DecisionReason.NO_CAPACITY, DecisionReason.LAUNCH_REFUSED])
def test_where_nothing_is_to_be_had_it_waits_for_capacity(reason):
    story = BoardStory().submitted().opened(0).admitted().decided(NO_LOTS, reason)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.CAPACITY)


def test_a_refused_launch_makes_it_wait_for_capacity():
    story = BoardStory().submitted().opened(0).admitted().decided(spot(2)).refused()

    assert shown(story) == (JobPhase.WAITING, WaitingFor.CAPACITY)
    assert "refused once" in story.view().headline
    assert story.view().counts.refusals == 1


@pytest.mark.parametrize("refusal", [RefusalClass.QUOTA, RefusalClass.LIMIT])
def test_a_launch_that_a_limit_refuses_makes_it_wait_for_that(refusal):
    story = BoardStory().submitted().opened(0).admitted().decided(spot(2)).refused(refusal)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.LIMIT)
    assert "a cap or quota" in story.view().headline


def test_a_budget_that_allows_no_more_makes_it_wait_for_that():
    story = BoardStory(replace(job(), budget_micro_usd=9_000_000)).submitted().opened(0).admitted()
    story.decided(NO_LOTS, DecisionReason.BUDGET)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.LIMIT)
    assert "its budget of 9.00 USD allows no more" in story.view().headline


def test_after_its_program_failed_it_waits_for_the_retry():
    story = BoardStory().running()
    story.of_job(JobExited, generation=1, exit_code=3, detail="out of memory", ts_event_ns=START_NS)
    story.of_job(
        JobRetryScheduled,
        slot=0,
        retry=1,
        not_before_ns=START_NS + 60 * NS_PER_S,
        detail="out of memory",
    )
    story.reported(NO_LOTS)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.RETRY)
    assert "out of memory" in story.view().headline
    assert "tried again at 00:01 UTC" in story.view().headline
    assert story.view().counts.retries == 1
    again = story.opened(1).decided(spot(2)).reported(spot(2))
    assert shown(again) == (JobPhase.RUNNING, None)


def test_a_program_of_ours_is_awaited_on_the_instances_that_were_bought():
    story = BoardStory(run_job()).running()

    assert shown(story) == (JobPhase.WAITING, WaitingFor.INSTANCES)
    assert "waits for its program" in story.view().headline
    assert shown(formed(story, 1)) == (JobPhase.WAITING, WaitingFor.INSTANCES)
    assert shown(restarted(story, 1, START_NS + 40 * NS_PER_S)) == (JobPhase.RUNNING, None)
    assert story.view().since_ns == START_NS + 40 * NS_PER_S


# --- running, and what comes between ------------------------------------------------------------


def test_one_that_holds_what_it_should_runs():
    story = BoardStory().running()

    assert shown(story) == (JobPhase.RUNNING, None)
    assert story.view().since_ns == START_NS
    assert story.view().held == spot(2)


def test_a_notice_makes_it_save_until_it_is_withdrawn():
    story = BoardStory().running().noticed("i-0")

    assert shown(story) == (JobPhase.SAVING, None)
    assert "1 instance will be taken back at 00:03 UTC" in story.view().headline
    assert shown(story.withdrawn("i-0")) == (JobPhase.RUNNING, None)


def test_lost_instances_interrupt_it_until_it_has_trained_again():
    story = BoardStory().running().noticed("i-0", "i-1").lost("i-0", "i-1").reported(NO_LOTS)

    view = story.view()
    assert view.phase is JobPhase.INTERRUPTED
    assert view.since_ns == START_NS + 180 * NS_PER_S
    assert (view.counts.interruptions, view.counts.noticed) == (2, 2)
    story.opened(1).advanced(100_000, NO_LOTS).decided(spot(1)).reported(spot(1))
    assert story.view().phase is JobPhase.INTERRUPTED
    story.opened(2).advanced(200_000, spot(1))
    assert shown(story) == (JobPhase.RUNNING, None)


def test_a_loss_of_some_interrupts_those_that_are_left():
    story = BoardStory().running().lost("i-0").reported(spot(1), offset_s=180)

    assert shown(story) == (JobPhase.INTERRUPTED, WaitingFor.INSTANCES)
    assert story.opened(1).advanced(100_000, spot(1)).view().phase is JobPhase.RUNNING


def test_spot_that_the_count_of_a_new_slot_no_longer_covers_was_taken():
    story = BoardStory().running().noticed("i-0", "i-1", lead_s=540)
    story.opened(1, spot=0).decided(NO_LOTS).reported(NO_LOTS)

    view = story.view()
    assert (view.phase, view.waiting_for) == (JobPhase.INTERRUPTED, WaitingFor.PRICE)
    assert (view.counts.interruptions, view.counts.noticed) == (2, 2)
    assert "interrupted: 2 spot in use1-az1 taken back at 00:10 UTC" in view.headline


def test_spot_that_its_policy_gives_up_is_no_interruption():
    story = BoardStory().running().opened(1).decided(NO_LOTS).reported(NO_LOTS)

    assert shown(story) == (JobPhase.WAITING, WaitingFor.PRICE)
    assert story.view().counts.interruptions == 0


def test_a_loss_that_is_told_is_not_counted_again_by_the_count_of_the_slot():
    story = BoardStory().running().opened(1, spot=1).lost("i-0", offset_s=0)
    story.decided(spot(1)).reported(spot(1))

    assert story.view().counts.interruptions == 1


def test_an_interrupted_job_says_how_often_since_when_and_what_it_waits_for():
    story = BoardStory().running(4)
    for slot in range(1, 5):
        story.opened(slot, spot=0).advanced(slot * 10_000, spot(4))
        story.decided(NO_LOTS).reported(NO_LOTS)
        story.opened(slot, spot=4).decided(spot(4)).reported(spot(4))
    story.opened(5, spot=0).decided(NO_LOTS).reported(NO_LOTS)

    view = story.view()
    assert view.phase is JobPhase.INTERRUPTED
    assert view.counts.interruptions == 20
    assert view.headline.startswith(
        "interrupted 5 times (20 instances), last at 00:50 UTC (4 spot in use1-az1), "
        "holds nothing and waits for more or cheaper spot in use1-az1"
    )


def test_a_move_lasts_until_it_has_trained_there():
    story = BoardStory().running().opened(1).advanced(100_000, spot(2))
    story.decided(spot(3, WEST), move_from=story.view().held[0].offering_id)

    assert story.view().phase is JobPhase.MOVING
    story.reported(spot(3, WEST))
    assert story.view().phase is JobPhase.MOVING
    assert "moves from use1-az1 to usw2-az1" in story.view().headline
    story.opened(2).advanced(200_000, spot(3, WEST))
    assert shown(story) == (JobPhase.RUNNING, None)
    assert story.view().counts.moves == 1


def test_another_place_before_its_first_launch_is_no_move():
    story = BoardStory().submitted().opened(0).admitted().decided(NO_LOTS).opened(1)
    story.decided(spot(2, WEST), move_from="elsewhere")

    assert shown(story) == (JobPhase.WAITING, WaitingFor.INSTANCES)
    assert story.view().counts.moves == 0


def test_done_work_is_finishing_until_the_program_ends():
    story = BoardStory(awaiting(job())).running().opened(1).advanced(1_000_000, spot(2))

    assert shown(story) == (JobPhase.FINISHING, None)
    assert shown(story.closed(JobOutcome.COMPLETED)) == (JobPhase.COMPLETED, None)


# --- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "phase", "word"),
    [
        (JobOutcome.COMPLETED, JobPhase.COMPLETED, "before its deadline"),
        (JobOutcome.COMPLETED_LATE, JobPhase.LATE, "its deadline"),
        (JobOutcome.MISSED_DEADLINE, JobPhase.MISSED, "not done in time"),
        (JobOutcome.EXPIRED, JobPhase.MISSED, "not done in time"),
        (JobOutcome.CANCELLED, JobPhase.CANCELLED, "withdrawn by its owner"),
        (JobOutcome.FAILED, JobPhase.FAILED, "no retry is left"),
        (JobOutcome.STOPPED_BY_LIMIT, JobPhase.STOPPED_BY_LIMIT, "its budget"),
    ],
)
def test_a_job_that_is_over_says_how(outcome, phase, word):
    story = BoardStory().running().opened(1).closed(outcome, progress_ppm=500_000)

    assert shown(story) == (phase, None)
    assert phase.over
    assert word in story.view().headline
    assert story.view().since_ns == START_NS + SLOT_NS
    assert story.view().flags == ()


def test_when_its_market_has_ended_it_says_what_it_goes_on_holding():
    story = BoardStory().running().opened(1, last=True).advanced(100_000, spot(2))

    view = story.view()
    assert (view.phase, view.waiting_for) == (JobPhase.MARKET_ENDED, None)
    assert view.since_ns == START_NS + 2 * SLOT_NS
    assert not view.phase.over
    assert "nothing more is decided" in view.headline
    assert "goes on holding 2 spot in use1-az1 until it is cancelled" in view.headline


def test_a_job_cancelled_after_the_market_says_what_is_released():
    story = BoardStory().running().opened(1, last=True).advanced(100_000, spot(2))
    story.of_job(JobCancelled, ts_event_ns=START_NS + SLOT_NS)

    assert "withdrawn by its owner: 2 spot in use1-az1 to be released" in story.view().headline
    story.slot = 2
    story.closed(JobOutcome.CANCELLED, progress_ppm=200_000)
    assert story.view().since_ns == START_NS + 2 * SLOT_NS
    assert "2 spot in use1-az1 still to be released" in story.view().headline
    story.slot = 1
    story.reported(NO_LOTS, offset_s=SLOT_S)
    assert "all that it held was released" in story.view().headline


def test_an_end_of_the_market_does_not_change_how_a_job_ended():
    story = BoardStory().running().opened(1).closed(JobOutcome.COMPLETED).opened(2, last=True)

    assert story.view().phase is JobPhase.COMPLETED


def test_what_is_said_of_jobs_that_were_never_submitted_changes_nothing():
    story = BoardStory().running()
    before = story.view()
    story.tell(market_opened())
    for event in (JobProgressReported(job_id="other", tenant="t", done=1.0),):
        story.tell(event)

    assert story.view() == before


def stop(scope: FreezeScope, key: str = "", capacity_type: CapacityType | None = None):
    return BuyingFrozen(
        freeze=Freeze(
            freeze_id="f",
            scope=scope,
            key=key,
            reason=FreezeReason.PAUSED,
            detail="for a test",
            capacity_type=capacity_type,
            continue_with="spotline resume",
        )
    )


def test_under_a_pause_it_waits_for_buying_to_go_on_and_says_why():
    story = BoardStory().submitted().opened(0).admitted().decided(NO_LOTS).reported(NO_LOTS)
    before = shown(story)

    story.tell(stop(FreezeScope.JOB, story.job.job_id))
    assert shown(story) == (JobPhase.WAITING, WaitingFor.BUYING)
    headline = story.view().headline
    assert "buying is paused (for a test); it goes on with `spotline resume`" in headline

    story.tell(BuyingUnfrozen(freeze_id="f"))
    assert shown(story) == before


@pytest.mark.parametrize(
    "other", [stop(FreezeScope.JOB, "another"), stop(FreezeScope.SYSTEM, "", CapacityType.SPOT)]
)
def test_a_stop_that_leaves_it_something_to_buy_is_not_what_it_waits_for(other):
    story = BoardStory().submitted().opened(0).admitted().decided(NO_LOTS).reported(NO_LOTS)
    before = shown(story)

    story.tell(other)

    assert shown(story) == before


def crash_loop(story):
    """The stop that the actuator begins where a job's instances end again and again."""
    cooldown = Cooldown(
        scope=CoolingScope.JOB,
        key=story.job.job_id,
        refusal_class=RefusalClass.LIMIT,
        refusals=3,
        refused_ns=story.job.start_ns + 600 * 10**9,
        until_ns=story.job.start_ns + 900 * 10**9,
        epoch=0,
        detail="instances ended 3 times within 300 s of their start",
    )
    return BuyingFrozen(freeze=loop_freeze(cooldown, slot=0))


@pytest.mark.parametrize("holds", [False, True])
def test_a_crash_loop_is_named_with_its_beginning_and_the_command_that_continues(holds):
    story = BoardStory().running() if holds else BoardStory().submitted().opened(0).admitted()
    if not holds:
        story = story.decided(NO_LOTS).reported(NO_LOTS)
    assert "again and again" not in story.view().headline

    loop = crash_loop(story)
    story.tell(loop)

    headline = story.view().headline
    assert "its program ends again and again" in headline
    assert "instances ended 3 times within 300 s of their start" in headline
    assert ", since " in headline
    assert f"spotline resume --freeze crash-loop/{story.job.job_id}" in headline
    story.tell(BuyingUnfrozen(freeze_id=loop.freeze.freeze_id))
    assert "again and again" not in story.view().headline
