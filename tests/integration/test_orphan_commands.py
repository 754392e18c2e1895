"""`spotline orphans`, from the command line through gRPC to what is recorded."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from spotline.cli.main import app
from spotline.domain.events.agreement import OrphanFound, OrphanReapRequested
from tests.fakes.allocator import EAST, START_NS, FakeJobsHost, market_opened, slot_opened
from tests.integration.test_grpc_services import serving

pytestmark = pytest.mark.integration


async def ran(address: str, *arguments: str):
    """A command in a thread: it has an event loop of its own."""
    words = ["orphans", *arguments, "--address", address]
    return await asyncio.to_thread(CliRunner().invoke, app, words)


@pytest.fixture
def host() -> FakeJobsHost:
    return FakeJobsHost(market_opened(), slot_opened(0))


async def test_orphans_are_listed_and_asked_to_end(host: FakeJobsHost) -> None:
    host.record(
        OrphanFound(
            instance_id="i-1",
            offering_id=EAST,
            job_id="gone",
            slot=0,
            ts_event_ns=START_NS,
            reap_after_ns=0,
            detail="is kept",
        )
    )
    async with serving(host) as address:
        listed = await ran(address, "list")
        as_json = await ran(address, "list", "--json")
        neither = await ran(address, "reap")
        unknown = await ran(address, "reap", "i-2")
        reaped = await ran(address, "reap", "i-1")

    assert listed.exit_code == 0, listed.output
    assert "i-1" in listed.output
    (orphan,) = json.loads(as_json.output)
    assert (orphan["instance_id"], orphan["job_id"]) == ("i-1", "gone")
    assert (neither.exit_code, "found neither" in neither.output) == (2, True)
    assert unknown.exit_code != 0
    assert (reaped.exit_code, reaped.output.strip()) == (0, "asked to end: i-1")
    asked = [event for _, event in host.stored.values() if isinstance(event, OrphanReapRequested)]
    assert [event.instance_ids for event in asked] == [("i-1",)]


async def test_where_every_instance_belongs_to_a_job_it_says_so(host: FakeJobsHost) -> None:
    async with serving(host) as address:
        listed = await ran(address, "list")
        reaped = await ran(address, "reap", "--all")

    assert (listed.exit_code, listed.output) == (0, "every instance belongs to a job\n")
    assert (reaped.exit_code, reaped.output) == (0, "every instance belongs to a job\n")
