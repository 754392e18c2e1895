"""update and market status against a real gRPC server; every field at fault is shown."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
import typer
from typer.testing import CliRunner

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.cli import jobs, market, market_status, updates
from spotline.domain.events.lifecycle import JobSubmitted, JobUpdated
from spotline.domain.jobs.job import OnLimit
from tests.fakes.allocator import START_NS, FakeJobsHost, job, opened_host

pytestmark = pytest.mark.integration

APP = typer.Typer()
for commands in (jobs, updates, market, market_status):
    commands.register(APP)
JOB = job(value_usd=400)


@asynccontextmanager
async def spotline(host: FakeJobsHost):
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address="127.0.0.1:0", await_admission=host.admits)
    address = await server.start()

    async def run(*arguments: str):
        environment = {"SPOTLINE_ALLOCATOR_ADDRESS": address, "COLUMNS": "200"}
        return await asyncio.to_thread(CliRunner().invoke, APP, list(arguments), env=environment)

    try:
        yield run
    finally:
        await server.stop(grace_s=0.2)


def updated(host: FakeJobsHost):
    return [event.job for _, event in host.stored.values() if isinstance(event, JobUpdated)]


async def test_an_update_says_where_the_job_stands_now() -> None:
    # No slot has opened: there is nothing to plan on.
    host = opened_host(JobSubmitted(job=JOB, ts_event_ns=START_NS))
    host.state.recent.opened = None

    async with spotline(host) as run:
        done = await run(
            *("update", JOB.job_id[:6], "--budget-usd", "9.5", "--on-limit", "stop"),
            *("--deadline", "2026-03-02T00:00:00Z", "--json"),
        )

    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["status"]["job"]["budget_micro_usd"] == 9_500_000
    (now,) = updated(host)
    assert now.on_limit is OnLimit.STOP
    assert now.deadline.expires_ns == now.deadline.at_ns == 1_772_409_600_000_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "update: expected one of --deadline"),
        (("--deadline", "soon"), "--deadline: expected RFC 3339"),
        (("--budget-usd", "-1"), "--budget-usd: expected a number >= 0"),
        (("--value-usd", "2e12"), "--value-usd: expected a number >= 0 and < 1e+12, found 2e+12"),
        (("--on-limit", "explode"), "--on-limit: expected one of wait, stop"),
    ],
)
async def test_a_wrong_option_is_bad_input(arguments, said) -> None:
    done = await asyncio.to_thread(
        CliRunner().invoke, APP, ["update", "0" * 32, *arguments, "--address", "127.0.0.1:1"]
    )

    assert done.exit_code == 2
    assert said in done.output


async def test_a_deadline_that_cannot_be_met_is_refused_with_the_earliest() -> None:
    host = opened_host(JobSubmitted(job=JOB, ts_event_ns=START_NS))

    async with spotline(host) as run:
        done = await run("update", JOB.job_id, "--deadline", "2026-03-01T00:30:00Z")

    assert done.exit_code == 1
    assert "2026-03-01T02:20:00Z" in done.output
    assert not updated(host)


async def test_every_field_at_fault_is_shown_in_the_words_of_the_file(tmp_path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        """
tenant: research
work: {amount: 8, unit: instance_hours}
deadline: {hard: 2026-03-01T06:00:00Z}
value_usd: 400
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 1}}
offerings: [nowhere, neither]
"""
    )

    async with spotline(opened_host()) as run:
        done = await run("submit", str(path))
        as_json = await run("submit", str(path), "--json")

    assert done.exit_code == 2
    assert "offerings[0]" in done.output
    assert "offerings[1]" in done.output
    said = json.loads(as_json.stdout)
    assert said["reason"] == "FIELD_INVALID"
    assert [problem["field"] for problem in said["problems"]] == ["offerings[0]", "offerings[1]"]


async def test_the_market_says_what_time_it_is() -> None:
    async with spotline(opened_host()) as run:
        done = await run("market", "status")
        as_json = await run("market", "status", "--json")

    assert done.exit_code == 0, done.output
    assert "2026-03-01T00:00:00Z" in done.output
    said = json.loads(as_json.stdout)
    assert (said["state"], said["clock"]["slot_s"]) == ("open", 600)
