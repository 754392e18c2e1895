"""`spotline watch` on a real gRPC server: lines, and the live view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.cli.listing import listed_jobs
from spotline.cli.live.app import LiveView
from spotline.cli.live.feed import FeedBroken, RpcFeed
from spotline.cli.watching import watch_job
from spotline.domain.events.lifecycle import JobClosed, JobOutcome, JobSubmitted
from tests.fakes.allocator import EAST, START_NS, FakeJobsHost, job, opened_host, slot_opened
from tests.unit.cli.live.test_app import seen

pytestmark = pytest.mark.integration

JOB = job("r1")


@asynccontextmanager
async def served(host: FakeJobsHost) -> AsyncIterator[str]:
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address="127.0.0.1:0", await_admission=host.admits)
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(grace_s=0.2)


def closed() -> JobClosed:
    return JobClosed(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=4,
        outcome=JobOutcome.COMPLETED,
        policy_id="msu",
        cost_micro_usd=5_000_000,
        value_micro_usd=200_000_000,
        progress_ppm=1_000_000,
    )


async def test_lines_end_with_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    host = opened_host(JobSubmitted(job=JOB, ts_event_ns=START_NS), closed())
    async with served(host) as address:
        status = await watch_job(address, JOB.job_id[:8], as_json=False)

    (line,) = capsys.readouterr().out.splitlines()
    assert status.job.job_id == JOB.job_id
    assert line.startswith("2026-03-01T00:00:00Z")
    assert "completed" in line
    assert "5.00 USD" in line


async def test_the_live_view_shows_what_a_server_says_and_that_it_went_away() -> None:
    host = opened_host(JobSubmitted(job=JOB, ts_event_ns=START_NS))
    async with served(host) as address, JobClient(address) as client:
        feed = RpcFeed(client)
        app = LiveView(feed, await listed_jobs(client))
        async with app.run_test(size=(160, 40)) as pilot:
            await seen(pilot, app, lambda text: "waiting for" in text)
            host.record(slot_opened(1))
            host.record(closed())
            app.look()
            screen = await seen(pilot, app, lambda text: "completed" in text)
        quotes = await feed.quotes(EAST)

    assert JOB.job_id[:8] in screen
    assert "slot 1 of 10 min" in screen
    assert [quoted.quote.ts_event_ns for quoted in quotes] == [START_NS, START_NS + 600 * 10**9]
    async with JobClient(address) as client:
        for asked in (RpcFeed(client).board(), RpcFeed(client).events(JOB.job_id)):
            with pytest.raises(FeedBroken, match="cannot be reached"):
                await asked
