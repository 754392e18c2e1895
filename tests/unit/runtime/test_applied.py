"""Callers wait until a host has applied what they wait for, and no longer."""

import asyncio

import pytest

from spotline.runtime.applied import AppliedFeed
from tests.fakes.events import cancelled, envelope, overdue


class Board:
    """The jobs that were cancelled, as a host's state would hold them."""

    def __init__(self):
        self.cancelled = set()
        self.feed = AppliedFeed(lambda event: getattr(event, "job_id", None))

    def apply(self, event):
        self.cancelled.add(getattr(event, "job_id", ""))
        self.feed.on_applied(event, envelope(event), 1)

    def until(self, number):
        job_id = f"job-{number}"
        return self.feed.until(job_id, lambda: job_id in self.cancelled)


async def test_what_was_applied_before_is_not_waited_for():
    board = Board()
    board.apply(cancelled(1))

    await asyncio.wait_for(board.until(1), 30)


async def test_all_who_wait_for_it_go_on_and_the_others_wait():
    board = Board()
    first, second, other = (asyncio.ensure_future(board.until(n)) for n in (1, 1, 2))
    await asyncio.sleep(0)

    board.apply(overdue(1))
    board.apply(cancelled(1))
    await asyncio.wait_for(asyncio.gather(first, second), 30)

    assert not other.done()
    board.apply(cancelled(2))
    await asyncio.wait_for(other, 30)


async def test_an_event_that_does_not_suffice_is_waited_on():
    board = Board()
    waiting = asyncio.ensure_future(
        board.feed.until("job-1", lambda: {"job-1", "job-2"} <= board.cancelled)
    )
    await asyncio.sleep(0)
    board.apply(cancelled(1))
    await asyncio.sleep(0)
    assert not waiting.done()

    board.apply(cancelled(2))
    board.apply(cancelled(1))
    await asyncio.wait_for(waiting, 30)


async def test_a_caller_that_gives_up_stops_no_other():
    board = Board()
    patient = asyncio.ensure_future(board.until(1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(board.until(1), 0.01)

    board.apply(cancelled(1))

    await asyncio.wait_for(patient, 30)
