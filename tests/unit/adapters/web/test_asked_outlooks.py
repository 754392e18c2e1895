"""What is expected of jobs, asked of the allocator: not too often, and never in anybody's way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.web.asked_outlooks import AskedOutlooks
from spotline.application.allocator.messages import JobState, JobStatus
from spotline.application.board.messages import JobPhase, JobView
from spotline.domain.jobs.outlook import JobOutlook
from tests.fakes.allocator import START_NS, job

OUTLOOK = JobOutlook(
    slot=3,
    futures=64,
    on_time_probability_ppm=990_000,
    expected_cost_micro_usd=5_000_000,
    cost_p10_micro_usd=4_000_000,
    cost_p50_micro_usd=5_000_000,
    cost_p90_micro_usd=6_000_000,
    finish_p10_ns=START_NS,
    finish_p50_ns=START_NS,
    finish_p90_ns=START_NS,
    expected_utility_micro_usd=1,
)
JOB = job()


class Allocator:
    """Answers at once, once `answers` is set, or not at all."""

    def __init__(self) -> None:
        self.asked = 0
        self.outlook = OUTLOOK
        self.down = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def list_all(self, query=None):
        self.asked += 1
        await self.answers.wait()
        if self.down:
            raise RpcFailed("UNAVAILABLE", "nobody there", unreachable=True)
        if query.state is not JobState.RUNNING:
            return ()
        view = JobView(phase=JobPhase.RUNNING, outlook=self.outlook)
        return (JobStatus(job=JOB, state=JobState.RUNNING, submitted_ns=START_NS, view=view),)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_it_is_asked_while_somebody_reads_and_not_again_within_the_time():
    allocator, clock = Allocator(), Clock()
    outlooks = AskedOutlooks(allocator, fresh_s=2.0, clock=clock)
    assert outlooks.latest(JOB.job_id) is None

    await outlooks.refresh()
    await outlooks.refresh()
    assert outlooks.latest(JOB.job_id) == OUTLOOK
    assert allocator.asked == 3

    clock.now_s += 2.5
    allocator.outlook = replace(OUTLOOK, slot=4)
    await outlooks.refresh()
    assert outlooks.latest(JOB.job_id).slot == 4


async def test_those_who_read_at_once_ask_once():
    allocator = Allocator()
    outlooks = AskedOutlooks(allocator)

    await asyncio.gather(*(outlooks.refresh() for _ in range(5)))

    assert allocator.asked == 3


async def test_an_allocator_that_is_gone_leaves_what_it_said():
    allocator, clock = Allocator(), Clock()
    outlooks = AskedOutlooks(allocator, fresh_s=2.0, clock=clock)
    await outlooks.refresh()
    allocator.down = True
    clock.now_s += 3

    await outlooks.refresh()

    assert outlooks.latest(JOB.job_id) == OUTLOOK


async def test_an_allocator_that_does_not_answer_is_let_go_of(monkeypatch):
    monkeypatch.setattr("spotline.adapters.web.asked_outlooks._WAIT_S", 0.01)
    allocator = Allocator()
    allocator.answers.clear()
    outlooks = AskedOutlooks(allocator)

    await outlooks.refresh()
    assert outlooks.latest(JOB.job_id) is None
    asking = outlooks._asking
    outlooks.close()
    await asyncio.wait((asking,))

    assert asking.cancelled()
    assert outlooks._asking is None
