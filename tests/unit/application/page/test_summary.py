"""What a written report says of a period: the same sums as the pages, to the micro-dollar."""

from __future__ import annotations

import pytest

from spotline.application.page.summary import CalendarMonth, period_summary
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S, rfc3339_of_ns
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job, slot_opened
from tests.fakes.paged import paid_story


def finished_story():
    story = paid_story()
    story.slot = 2
    story.tell(slot_opened(2)).advanced(1_000_000, (Lot(offering_id=EAST, spot=2),)).charged(
        2, slot=1
    )
    return story.closed(JobOutcome.COMPLETED)


def test_all_of_a_log_is_every_charge_and_every_job():
    story = finished_story()
    mine = story.job.job_id
    story.other(job("r2", tenant="search"))

    told = period_summary(story.state)
    assert told.cost_micro_usd == 2_000_000 == told.waterfall.actual_micro_usd
    assert [one.job_id for one in told.jobs] == [mine, story.job.job_id]
    assert [one.on_time for one in told.jobs] == [True, None]
    assert (told.kept, told.missed) == (1, 0)
    assert sum(row.cost_micro_usd for row in told.by_tenant) == told.cost_micro_usd
    assert (told.from_ns, told.to_ns) == (START_NS, START_NS + 3 * SLOT_S * NS_PER_S)


def test_a_missed_deadline_is_none_that_was_kept_and_a_cancelled_one_is_neither():
    for outcome, kept, missed in (
        (JobOutcome.MISSED_DEADLINE, 0, 1),
        (JobOutcome.CANCELLED, 0, 0),
    ):
        story = paid_story().closed(outcome)
        told = period_summary(story.state)
        assert (told.kept, told.missed) == (kept, missed)


def test_a_month_has_the_slots_that_open_in_it():
    story = paid_story().charged(1, slot=1)
    month = CalendarMonth.read(rfc3339_of_ns(START_NS)[:7])

    whole = period_summary(story.state, month)
    assert whole.cost_micro_usd == period_summary(story.state).cost_micro_usd
    after_first = CalendarMonth(from_ns=START_NS + 1, to_ns=month.to_ns)
    assert period_summary(story.state, after_first).cost_micro_usd == 500_000
    until_second = CalendarMonth(from_ns=month.from_ns, to_ns=START_NS + SLOT_S * NS_PER_S)
    assert period_summary(story.state, until_second).cost_micro_usd == 1_000_000
    assert not period_summary(story.state, CalendarMonth.read("2001-01")).jobs


def test_one_job_is_told_without_the_others():
    story = paid_story()
    first = story.job.job_id
    story.other(job("r2", tenant="search")).charged(6)

    told = period_summary(story.state, job_id=first)
    assert [one.job_id for one in told.jobs] == [first]
    assert told.cost_micro_usd == 1_000_000


def test_what_no_decision_explains_is_told():
    story = paid_story().charged(1, kind=CapacityType.ON_DEMAND)

    told = period_summary(story.state)
    (charge,) = told.unexplained
    assert told.unexplained_micro_usd == charge.cost_micro_usd > 0


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "November"])
def test_what_is_no_month_is_refused(text):
    with pytest.raises(ValueError, match=r"does not match format|unconverted data"):
        CalendarMonth.read(text)
