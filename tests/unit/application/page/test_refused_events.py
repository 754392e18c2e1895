"""What services refuse to take is no part of a page either: the page says so, and goes on."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.page.applied import Applied
from spotline.application.page.book import PageBook
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobCancelled, JobSubmitted
from tests.fakes.allocator import START_NS, job, market_opened, of_tenant, slot_opened


def told(seq: int, event: Event) -> Applied:
    return Applied(event=event, seq=seq, kind="of-a-test", event_id=f"event-{seq}")


def test_a_slot_that_cannot_follow_and_a_strangers_word_are_left_out_and_told() -> None:
    own = of_tenant(job(), "research")
    book = PageBook()
    far = replace(slot_opened(0), slot=10**6)
    for seq, event in enumerate(
        (
            market_opened(),
            slot_opened(0),
            JobSubmitted(job=own, ts_event_ns=START_NS),
            far,
            JobCancelled(job_id=own.job_id, tenant="rival", ts_event_ns=START_NS),
        ),
        start=1,
    ):
        book.apply(told(seq, event))

    state = book.head
    assert [left.seq for left in state.left_out] == [4, 5]
    assert (state.slot, state.seq) == (0, 5)
    assert own.job_id not in state.jobs.cancelled
