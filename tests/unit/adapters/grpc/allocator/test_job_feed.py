"""What watchers of a job are told of, and in which words of the log."""

from __future__ import annotations

import pytest

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.contracts.build import envelope_for
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.lot import JobHolding, Lot
from tests.fakes.allocator import EAST, START_NS, job
from tests.fakes.board import BoardStory, spot

JOB = job()


def told(feed: JobFeed, *events) -> None:
    for event in events:
        seq = feed.seq_of(JOB.job_id) + 10
        envelope = envelope_for(
            event, event_id=f"e{seq}", source="test", causation_id="", correlation_id="c"
        )
        feed.on_applied(event, envelope, seq)


def recording_of(tell) -> list:
    """The events of a story's chapter."""
    story = BoardStory(JOB).running()
    events: list = []
    story.tell = lambda *more: events.extend(more) or story
    tell(story)
    return events


@pytest.mark.parametrize(
    ("chapter", "change"),
    [
        (lambda story: story.noticed("i-0"), "capacity.noticed"),
        (lambda story: story.withdrawn("i-0"), "capacity.withdrawn"),
        (lambda story: story.lost("i-0"), "capacity.lost"),
        (lambda story: story.refused(), "capacity.refused"),
        (lambda story: story.decided(spot(1)), "decision"),
    ],
)
async def test_what_providers_do_is_told(chapter, change):
    feed = JobFeed()
    watch = feed.watch(JOB.job_id)

    told(feed, *recording_of(chapter))

    assert (await watch.next())[0] == change


async def test_a_report_is_told_where_what_is_held_has_changed():
    feed = JobFeed()
    told(feed, JobSubmitted(job=JOB, ts_event_ns=START_NS))
    watch = feed.watch(JOB.job_id)

    def report(count: int) -> CapacityReported:
        lots = (Lot(offering_id=EAST, spot=count),)
        other = JobHolding(job_id="other", lots=lots)
        own = JobHolding(job_id=JOB.job_id, lots=lots)
        return CapacityReported(
            slot=0,
            revision=0,
            offset_s=0,
            settled=True,
            holdings=(other, own) if count else (other,),
        )

    told(feed, report(2), report(2), report(3), report(0))

    assert [await watch.next() for _ in range(3)] == [
        ("capacity.report", 20, False),
        ("capacity.report", 30, False),
        ("capacity.report", 40, False),
    ]
    assert feed.seq_of("other") == 0


async def test_bills_are_not_told_one_by_one():
    feed = JobFeed()
    watch = feed.watch(JOB.job_id)

    told(feed, *recording_of(lambda story: story.billed(5).refused()))

    assert (await watch.next())[0] == "capacity.refused"
