"""The read model as a process of its own: killed, it comes back, and its readers miss nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any

import pytest

from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.market.generate import generate
from tests.eventually import PATIENCE_S
from tests.fakes.allocator import START_NS, job, market_opened, slot_opened
from tests.fakes.ports import free_port
from tests.fakes.processes import ServiceProcesses
from tests.fakes.scripted_agent import WrittenLog
from tests.fakes.web import EventReader

pytestmark = pytest.mark.integration

JOB = job()


def advanced(progress_ppm: int) -> JobAdvanced:
    return JobAdvanced(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=0,
        lots=(),
        progress_ppm=progress_ppm,
        slot_cost_micro_usd=1,
        cost_micro_usd=progress_ppm,
    )


def closed() -> JobClosed:
    return JobClosed(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=0,
        outcome=JobOutcome.COMPLETED,
        policy_id="p",
        cost_micro_usd=3_000_000,
        value_micro_usd=200_000_000,
        progress_ppm=1_000_000,
    )


def asked(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def shown(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


async def answering(services: ServiceProcesses, port: int) -> None:
    """Wait until the service is up to date and answers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert services.dead() == [], services.said()
            try:
                await asyncio.to_thread(asked, port, "/healthz")
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return


async def read(reader: EventReader, count: int) -> list[dict[str, str]]:
    return [await asyncio.to_thread(reader.next) for _ in range(count)]


@pytest.mark.timeout(200)
async def test_a_killed_read_model_folds_again_and_its_reader_misses_nothing(
    broker, event_stream, tmp_path
):
    log, port = WrittenLog(event_stream), free_port()
    market = generate("mixed", seed=1, slots=2, slot_s=600, start_ns=START_NS)
    await log.write(market_opened(), slot_opened(0), source="market_ingest")
    await log.write(JobSubmitted(job=JOB, ts_event_ns=START_NS), source="allocator")
    settings = {"SPOTLINE_HTTP_ADDRESS": f"127.0.0.1:{port}"}

    async with ServiceProcesses(broker.url, tmp_path, market) as services:
        await services.start("read_model", **settings)
        await answering(services, port)
        reader = await asyncio.to_thread(EventReader, port, "/v1/watch?after=0")
        await log.write(advanced(250_000), source="selector")
        before = await read(reader, 4)
        first = await asyncio.to_thread(asked, port, f"/v1/jobs/{JOB.job_id[:8]}")

        await services.kill("read_model")
        reader.close()
        await log.write(advanced(500_000), closed(), source="selector")
        await services.start("read_model", **settings)
        await answering(services, port)

        told = {"Last-Event-ID": before[-1]["id"]}
        reader = await asyncio.to_thread(EventReader, port, "/v1/watch", told)
        after = await read(reader, 2)
        reader.close()
        second = await asyncio.to_thread(asked, port, f"/v1/jobs/{JOB.job_id}")
        happened = await asyncio.to_thread(asked, port, f"/v1/jobs/{JOB.job_id}/events")
        page = await asyncio.to_thread(shown, port, "/jobs")

    changes = [json.loads(event["data"])["change"] for event in (*before, *after)]
    assert changes == [
        *("market.opened", "market.slot", "job.submitted", "job.advanced"),
        *("job.advanced", "job.closed"),
    ]
    assert first["job"]["progress_ppm"] == 250_000
    assert first["clock"]["wall"] is not None
    # The pages beside it are folded of the same log.
    assert f'href="/jobs/{JOB.job_id}"' in page
    assert second["job"]["view"]["phase"] == "completed"
    assert second["job"]["cost_micro_usd"] == 3_000_000
    assert [event["kind"] for event in happened["events"]] == ["job.submitted", "job.closed"]
    assert all(event["wall"] for event in happened["events"])
