"""Outlooks in the background: every job handed over is quoted once, those that run come in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from spotline.adapters.grpc.allocator import outlooks
from spotline.adapters.grpc.allocator.outlooks import BackgroundOutlooks
from spotline.application.outlook.following import Following, SelectorSnapshot
from spotline.application.outlook.lives import Beginning, FutureCourse, LifeAhead, live_alone
from spotline.application.outlook.outlook import job_outlook
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobClosed,
    JobOutcome,
    JobQuoted,
    JobSubmitted,
)
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.runtime.telemetry import Telemetry
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.allocator import (
    EAST,
    START_NS,
    FakeJobsHost,
    forecast_issued,
    job,
    market_opened,
    slot_opened,
)


class Quoting:
    """A host that is followed, with its outlooks worked out beside it."""

    def __init__(self, *, slots: int = 1) -> None:
        self.host = FakeJobsHost()
        self.host.state.following = Following(SelectorOptions())
        self.host.record(market_opened())
        self.outlooks = BackgroundOutlooks(self.host, Telemetry("allocator"))
        self.host.listeners.append(self.outlooks.on_applied)
        for slot in range(slots):
            self.open(slot)

    def open(self, slot: int) -> None:
        self.host.record(slot_opened(slot))
        self.host.record(forecast_issued(slot))

    def submit(self, one: Job) -> None:
        self.host.record(JobSubmitted(job=one, ts_event_ns=START_NS))

    def quoted(self) -> list[JobQuoted]:
        return [event for _, event in self.host.stored.values() if isinstance(event, JobQuoted)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        working = asyncio.create_task(self.outlooks.run())
        try:
            yield
        finally:
            working.cancel()
            self.outlooks.close()


def admitted(one: Job, slot: int) -> JobAdmitted:
    return JobAdmitted(
        job_id=one.job_id,
        tenant=one.tenant,
        slot=slot,
        policy_id="msu",
        offering_id=EAST,
        deadline_slot=29,
        weight_ppb=1_000_000_000,
    )


async def test_a_job_that_was_handed_over_is_quoted_once_as_a_plan_would_say() -> None:
    quoting = Quoting()
    following = quoting.host.state.following
    assert following is not None
    known = following.snapshot()
    assert known is not None

    async with quoting.running():
        quoting.submit(job())
        quoting.submit(job())
        await quoting.host.asked(1)

    (quote,) = quoting.quoted()
    assert (quote.job_id, quote.slot) == (job().job_id, 0)
    assert quote.outlook == job_outlook(known, job())
    assert quoting.outlooks.latest(job().job_id) == quote.outlook


async def test_before_a_slot_has_opened_nothing_is_said_and_then_it_is() -> None:
    quoting = Quoting(slots=0)

    async with quoting.running():
        quoting.submit(job())
        assert quoting.outlooks.latest(job().job_id) is None
        quoting.open(0)
        await quoting.host.asked(1)

    assert [quote.slot for quote in quoting.quoted()] == [0]


async def test_an_outlook_that_fails_ends_nothing_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quoting = Quoting()
    broken, whole = job("broken"), job("whole")

    def failing(
        known: SelectorSnapshot, one: Job, *, wanted: Callable[[], bool]
    ) -> JobOutlook | None:
        if one.job_id == broken.job_id:
            raise IndexError("a slot that no future has")
        return job_outlook(known, one, wanted=wanted)

    monkeypatch.setattr(outlooks, "job_outlook", failing)
    async with quoting.running():
        quoting.submit(broken)
        quoting.submit(whole)
        await quoting.host.asked(1)

    assert [quote.job_id for quote in quoting.quoted()] == [whole.job_id]
    assert quoting.outlooks.latest(broken.job_id) is None
    assert quoting.outlooks.failed == 1


async def test_an_end_waits_for_no_more_than_one_future(monkeypatch: pytest.MonkeyPatch) -> None:
    quoting = Quoting()
    began, go_on, threads = threading.Event(), threading.Event(), set[threading.Thread]()
    lived = []

    def slow(course: FutureCourse, begins: Beginning, future: int) -> LifeAhead:
        lived.append(future)
        threads.add(threading.current_thread())
        began.set()
        assert go_on.wait(PATIENCE_S)
        return live_alone(course, begins, future)

    monkeypatch.setattr("spotline.application.outlook.outlook.live_alone", slow)

    async with quoting.running():
        quoting.submit(job())
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
    go_on.set()

    (thread,) = threads
    await asyncio.to_thread(thread.join, PATIENCE_S)
    assert not thread.is_alive()
    assert lived == [0]
    assert quoting.outlooks.failed == 0


async def test_the_oldest_gives_way_where_too_many_wait() -> None:
    quoting = Quoting()
    jobs = [job(f"r{k}") for k in range(66)]
    for one in jobs:
        quoting.submit(one)

    assert quoting.outlooks.dropped == 2
    async with quoting.running():
        await quoting.host.asked(1)
    assert quoting.quoted()[0].job_id == jobs[2].job_id


async def test_a_job_that_was_handed_over_long_ago_is_not_quoted() -> None:
    quoting = Quoting()
    quoting.submit(job("old"))
    for slot in range(1, 5):
        quoting.open(slot)
    quoting.submit(job("new"))

    async with quoting.running():
        await quoting.host.asked(1)

    assert [quote.job_id for quote in quoting.quoted()] == [job("new").job_id]
    assert quoting.outlooks.dropped == 1


async def test_what_is_over_is_forgotten() -> None:
    quoting = Quoting()
    async with quoting.running():
        quoting.submit(job())
        await quoting.host.asked(1)

    closed = JobClosed(
        job_id=job().job_id,
        tenant=job().tenant,
        slot=0,
        outcome=JobOutcome.CANCELLED,
        policy_id="",
        cost_micro_usd=0,
        value_micro_usd=0,
        progress_ppm=0,
    )
    quoting.host.record(closed)

    assert quoting.outlooks.latest(job().job_id) is None


def looked_ahead(quoting: Quoting) -> int:
    found = quoting.outlooks.latest(job().job_id)
    return -1 if found is None else found.slot


async def test_a_job_that_runs_is_looked_ahead_for_without_a_second_quote() -> None:
    quoting = Quoting()
    async with quoting.running():
        quoting.submit(job())
        await quoting.host.asked(1)
        quoting.open(1)
        quoting.host.record(admitted(job(), 1))
        quoting.open(2)
        await eventually(lambda: looked_ahead(quoting) == 3)
        found = quoting.outlooks.latest(job().job_id)

    assert found is not None
    assert [row.policy_id for row in found.policies] == ["msu"]
    assert len(quoting.quoted()) == 1
