"""`spotline.client` against a real gRPC server, from a program with an event loop and without."""

from __future__ import annotations

import asyncio
import tarfile
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from spotline.adapters.files.mistake import BadFile
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.application.allocator.messages import JobState
from spotline.client import AsyncClient, Client, RpcFailed
from spotline.domain.events.lifecycle import JobClosed, JobOutcome, JobUpdated
from tests.fakes.allocator import FakeJobsHost, opened_host, slot_opened

pytestmark = pytest.mark.integration

FIELDS = {
    "tenant": "research",
    "work": {"amount": 8, "unit": "instance_hours"},
    "deadline": {"hard": "2026-03-03T18:00:00Z"},
    "value_usd": 400,
    "instances": {"min": 1, "max": 4},
    "throughput": {"*": {"alpha_per_hour": 1}},
}


@asynccontextmanager
async def served(host: FakeJobsHost):
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address="127.0.0.1:0", await_admission=host.admits)
    try:
        yield await server.start()
    finally:
        await server.stop(grace_s=0.2)


def closed(job_id: str) -> JobClosed:
    return JobClosed(
        job_id=job_id,
        tenant="research",
        slot=1,
        outcome=JobOutcome.COMPLETED,
        policy_id="sdp",
        cost_micro_usd=1,
        value_micro_usd=2,
        progress_ppm=1_000_000,
    )


async def test_a_job_is_submitted_changed_listed_and_withdrawn() -> None:
    host = opened_host(slot_opened(0))

    async with served(host) as address, AsyncClient(address) as spotline:
        job_id = (await spotline.submit(FIELDS)).job_id
        again = await spotline.submit(FIELDS)
        await spotline.update(
            job_id, budget_usd=9.5, deadline=datetime(2026, 3, 4, tzinfo=UTC), value_usd=350
        )
        listed = await spotline.jobs(tenant="research", state=JobState.PENDING)
        was_over = await spotline.cancel(job_id)
        market = await spotline.market()

    assert again.already_submitted
    assert again.job_id == job_id
    (changed,) = [event.job for _, event in host.stored.values() if isinstance(event, JobUpdated)]
    assert (changed.budget_micro_usd, changed.value_micro_usd) == (9_500_000, 350_000_000)
    assert changed.deadline.at_ns == changed.deadline.expires_ns == 1_772_582_400 * 10**9
    assert [status.job.job_id for status in listed] == [job_id]
    assert not was_over
    assert market.clock is not None


async def test_a_plain_program_follows_a_job_to_its_end(tmp_path) -> None:
    host = opened_host(slot_opened(0))
    file = tmp_path / "job.yaml"
    file.write_text(
        "tenant: research\nwork: {amount: 8, unit: instance_hours}\n"
        "deadline: {hard: 2026-03-03T18:00:00Z}\nvalue_usd: 400\n"
        'instances: {min: 1, max: 4}\nthroughput: {"*": {alpha_per_hour: 1}}\n'
    )
    loop = asyncio.get_running_loop()

    def program(address: str) -> tuple[list[str], JobState]:
        with Client(address) as spotline:
            job_id = spotline.submit(file).job_id
            changes = []
            for update in spotline.watch(job_id):
                changes.append(update.change)
                if len(changes) == 1:
                    over = host.publish_observation(
                        closed(job_id), event_id="closed", correlation_id=job_id
                    )
                    asyncio.run_coroutine_threadsafe(over, loop).result()
            return changes, spotline.wait(job_id).state

    async with served(host) as address:
        changes, state = await asyncio.to_thread(program, address)

    assert changes == ["", "job.closed"]
    assert state is JobState.COMPLETED


async def test_a_job_file_brings_its_program_and_counts_its_deadline_from_market_time(
    tmp_path,
) -> None:
    host = opened_host(slot_opened(0))
    (tmp_path / "train.py").write_text("print('trained')\n")
    file = tmp_path / "job.yaml"
    file.write_text(
        "tenant: research\nwork: {amount: 8, unit: instance_hours}\n"
        "deadline: {hard: 36h}\nvalue_usd: 400\n"
        'instances: {min: 1, max: 4}\nthroughput: {"*": {alpha_per_hour: 1}}\n'
        "run: {command: python train.py, workdir: .}\ncheckpoint: {location: checkpoints}\n"
    )

    async with served(host) as address, AsyncClient(address) as spotline:
        planned = await spotline.plan(file)
        assert not (tmp_path / "checkpoints").exists()
        job = (await spotline.get((await spotline.submit(file)).job_id)).job
        again = await spotline.submit(str(file))
        clock = (await spotline.market()).clock
        absent = {"run": {"command": "true", "workdir": str(tmp_path / "nowhere")}}
        kept = {"checkpoint": {"location": str(tmp_path / "checkpoints")}}
        for ask in (spotline.plan, spotline.submit):
            with pytest.raises(BadFile, match=r"run\.workdir: expected a folder"):
                await ask({**FIELDS, **absent, **kept})

    assert planned.feasible
    assert job.run is not None
    assert job.run.package is not None
    with tarfile.open(job.run.package.uri) as stored:
        assert {"job.yaml", "train.py"} <= {*stored.getnames()}
    assert clock is not None
    assert job.deadline.at_ns == clock.market_ns + 36 * 3600 * 10**9
    assert again.already_submitted


async def test_a_watch_that_is_left_early_ends() -> None:
    host = opened_host(slot_opened(0))

    def program(address: str) -> str:
        with Client(address) as spotline:
            job_id = spotline.submit(FIELDS).job_id
            for update in spotline.watch(job_id):
                return update.change
        return "nothing came"

    async with served(host) as address:
        async with asyncio.timeout(60):
            first = await asyncio.to_thread(program, address)

    assert first == ""


async def test_refusals_name_their_fields() -> None:
    async with served(opened_host(slot_opened(0))) as address, AsyncClient(address) as spotline:
        with pytest.raises(BadFile, match=r"work\.unit"):
            await spotline.submit({**FIELDS, "work": {"amount": 8, "unit": "parsecs"}})
        with pytest.raises(RpcFailed) as refused:
            await spotline.submit({**FIELDS, "deadline": {"hard": "2026-03-01T00:10:00Z"}})
        with pytest.raises(RpcFailed) as unknown:
            await spotline.get("0" * 32)
        job_id = (await spotline.submit(FIELDS)).job_id
        with pytest.raises(ValueError, match="UTC offset"):
            await spotline.update(job_id, deadline=datetime(2026, 3, 4))  # noqa: DTZ001 - the fault
        with pytest.raises(ValueError, match="must be given"):
            await spotline.update(job_id)

    assert refused.value.field == "job.deadline"
    assert unknown.value.code == "NOT_FOUND"


def test_nothing_answers() -> None:
    with Client("127.0.0.1:1") as spotline, pytest.raises(RpcFailed) as failed:
        spotline.market()

    assert failed.value.unreachable


def test_it_must_be_opened() -> None:
    with pytest.raises(RuntimeError, match="with"):
        Client().market()
