import asyncio

from spotline.adapters.grpc.agent.client import AgentCallFailed
from spotline.adapters.grpc.agent.messages import (
    CheckpointNews,
    NoticeNews,
    RanksNews,
    RestartNews,
    WorkNews,
)
from spotline.agent.reports import MOST_TRIES, NewsQueue
from spotline.agent.timing import RetryPauses
from spotline.domain.events.training import CheckpointKind, NoticeAction
from tests.fakes.agent_parts import BrokenCalls, SteppedClock, refused, unknown_caller, unreachable


def checkpoint(step: int) -> CheckpointNews:
    return CheckpointNews(
        generation=1,
        step=step,
        done=1.0,
        uri="u",
        sha256="s",
        size_bytes=1,
        kind=CheckpointKind.PERIODIC,
        save_s=1,
    )


def notice(number: int) -> NoticeNews:
    return NoticeNews(notice_id=f"n-{number}", action=NoticeAction.FORWARDED, after_s=0)


async def deliver(queue: NewsQueue, tell: BrokenCalls) -> None:
    pauses = RetryPauses(lambda: 0.0)
    async with asyncio.TaskGroup() as tasks:
        delivering = tasks.create_task(queue.deliver(tell, SteppedClock(), pauses))
        await queue.emptied()
        delivering.cancel()


async def test_news_is_told_in_order_once_the_control_plane_is_back():
    queue, tell = NewsQueue(), BrokenCalls(unreachable(), unknown_caller(), unreachable())
    news = [RanksNews(generation=1), checkpoint(1), notice(1), RanksNews(generation=1, exit_code=0)]
    for piece in news:
        queue.post(piece)

    await deliver(queue, tell)

    assert tell.done == news
    assert tell.tried == [news[0]] * 3 + news


async def test_newer_work_overtakes_what_waits_but_never_a_restart():
    queue, tell = NewsQueue(), BrokenCalls()
    first = WorkNews(generation=1, done=1.0, restart=RestartNews(restart_s=5))
    queue.post(first)
    for done in (2.0, 3.0, 4.0):
        queue.post(WorkNews(generation=1, done=done))
    queue.post(WorkNews(generation=2, done=1.0))

    await deliver(queue, tell)

    assert tell.done == [
        first,
        WorkNews(generation=1, done=4.0),
        WorkNews(generation=2, done=1.0),
    ]


async def test_a_refused_piece_does_not_hold_back_the_others():
    queue, tell = NewsQueue(), BrokenCalls(refused())
    queue.post(notice(1))
    queue.post(notice(2))

    await deliver(queue, tell)

    assert tell.done == [notice(2)]


async def test_what_fails_without_a_reason_is_given_up():
    bug = AgentCallFailed("UNKNOWN", "a bug")
    queue, tell = NewsQueue(), BrokenCalls(*[bug] * (MOST_TRIES + 3))
    queue.post(notice(1))

    await deliver(queue, tell)

    assert tell.tried == [notice(1)] * MOST_TRIES
    assert tell.done == []


async def test_a_full_queue_drops_what_is_told_again_and_keeps_checkpoints_and_ends():
    queue, tell = NewsQueue(most=3), BrokenCalls()
    kept = [checkpoint(1), RanksNews(generation=1, exit_code=0), checkpoint(2), checkpoint(3)]
    for number, piece in enumerate(kept):
        queue.post(notice(number))
        queue.post(piece)

    await deliver(queue, tell)

    assert tell.done == kept
    assert queue.dropped == 4
