"""The sentence about a job, in cases of which a person would read it aloud."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.domain.events.lifecycle import JobCancelled, JobExited, JobOutcome, JobRetryScheduled
from spotline.domain.policies.answer import Yielded
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import EAST, SLOT_NS, START_NS, job
from tests.fakes.board import NO_LOTS, BoardStory, awaiting, outlook, spot


@pytest.mark.parametrize(
    ("finish_slot", "said"),
    [
        (30, "expected 05:00 UTC, at its deadline"),
        (27, "expected 04:30 UTC, 30 min before its deadline"),
        (33, "expected 05:30 UTC, 30 min after its deadline"),
    ],
)
def test_an_expected_finish_is_told_against_the_deadline(finish_slot, said):
    view = BoardStory().running().view(outlook=outlook(finish_ns=START_NS + finish_slot * SLOT_NS))

    assert said in view.headline


def test_where_most_futures_do_not_finish_it_only_names_the_deadline():
    view = BoardStory().running().view(outlook=outlook(on_time_ppm=0, finish_ns=0))

    assert "deadline 05:00 UTC, at risk: on time in 0 % of the futures" in view.headline


def test_a_late_job_says_how_late():
    late = job(instance_hours=5.0, deadline_slots=3, late_slots=12)
    story = BoardStory(late).running().opened(6).closed(JobOutcome.COMPLETED_LATE)

    assert story.view().headline.startswith("done at 01:00 UTC, 30 min after its deadline")


def test_a_failed_job_says_why_and_after_how_many_tries():
    story = BoardStory(replace(job(), retries=1)).running()
    story.of_job(
        JobRetryScheduled, slot=0, retry=1, not_before_ns=START_NS + 60 * NS_PER_S, detail="bad"
    )
    story.opened(1).decided(spot(2)).reported(spot(2))
    story.of_job(
        JobExited, generation=2, exit_code=1, detail="worse", ts_event_ns=START_NS + SLOT_NS
    )
    story.opened(2).closed(JobOutcome.FAILED).reported(NO_LOTS).billed(1_230_000)

    assert story.view().headline == ("failed at 00:20 UTC: worse, after a retry; 1.23 USD billed")


def test_what_was_taken_back_is_told_of_a_job_that_is_over():
    story = BoardStory().running().lost("i-0", "i-1").reported(NO_LOTS)
    story.opened(1).closed(JobOutcome.MISSED_DEADLINE, progress_ppm=100_000)

    assert story.view().headline == (
        "not done in time: 0.5 of 5 instance-hours done at 00:10 UTC; 0.00 USD billed, "
        "2 instances taken back"
    )


def test_a_withdrawal_is_told_before_it_takes_effect():
    story = BoardStory().running()
    story.of_job(JobCancelled, ts_event_ns=START_NS + NS_PER_S)

    assert story.view().headline == (
        "withdrawn by its owner: ends with the next decision, holds 2 spot in use1-az1, "
        "0 of 5 instance-hours done"
    )


def test_a_finishing_job_says_what_it_holds_until_its_program_ends():
    story = BoardStory(awaiting(job(instance_hours=5.0))).running()
    story.opened(1).advanced(1_000_000, spot(2))

    assert story.view().headline == (
        "its work is done since 00:10 UTC, its program has not ended yet, holds 2 spot in "
        "use1-az1, 5 of 5 instance-hours done"
    )


def yielding(to_job_id, gain=3_100_000):
    return Yielded(offering_id=EAST, spot=2, to_job_id=to_job_id, gain_micro_usd=gain)


def test_spot_left_to_another_job_is_told_with_what_it_is_worth_there():
    other = job("other")
    story = BoardStory().running().opened(1)
    entry = story.board.entries[story.job.job_id]
    story.board.entries[other.job_id] = replace(entry, name="nightly")
    story.decided(spot(2), cleared=True, yielded=yielding(other.job_id))

    view = story.view()

    assert "; yielded 2 spot in use1-az1 to job nightly: worth 3.10 USD more there" in view.why
    assert view.yielded == yielding(other.job_id)


def test_a_job_of_another_tenant_is_not_named_where_spot_was_yielded_to_it():
    story = BoardStory().running().opened(1)
    story.decided(spot(2), cleared=True, yielded=yielding("", gain=0))

    assert "2 spot in use1-az1 to a job of another tenant: worth no less there" in story.view().why


def test_what_was_yielded_once_is_not_told_of_the_next_decision():
    story = BoardStory().running().opened(1)
    story.decided(spot(2), cleared=True, yielded=yielding("")).opened(2)
    story.decided(spot(2), cleared=True)

    assert "yielded" not in story.view().why
    assert story.view().yielded is None
