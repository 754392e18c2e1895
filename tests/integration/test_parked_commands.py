"""`spotline parked`, from the command line through gRPC to what is recorded."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.application.operations.messages import ParkedQuery
from spotline.cli.main import app
from spotline.contracts.batch import unpacked
from spotline.contracts.envelope import retry_id
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
from spotline.runtime.parked_log import StreamParkedLog
from tests.fakes.allocator import FakeJobsHost, market_opened, slot_opened
from tests.fakes.events import cancelled, envelope, published
from tests.fakes.stream import FakeStream

pytestmark = pytest.mark.integration

LATE = EntryParked(
    service="selector",
    seq=1,
    place=0,
    event_id=envelope(cancelled(1)).event_id,
    kind="job.cancelled",
    error="slot must be < 3, was 4",
    error_type="Unfit",
    job_id="job-1",
    tenant="Team.A",
)
GONE = replace(LATE, service="allocator", seq=99, event_id="gone", job_id="")


@pytest.fixture
def host() -> FakeJobsHost:
    found = FakeJobsHost(market_opened(), slot_opened(0))
    for parked in (GONE, LATE):
        found.record(parked)
    return found


@asynccontextmanager
async def serving(host):
    feed, stream = JobFeed(), FakeStream()
    host.listeners.append(feed.on_applied)
    await stream.publish(published([cancelled(1)]))
    server = RpcServer(host, feed, address="127.0.0.1:0")
    server.deal_with_parked(StreamParkedLog(stream))
    try:
        yield await server.start(), stream
    finally:
        host.listeners.remove(feed.on_applied)
        await server.stop(grace_s=0.2)


def recorded(host, kind):
    return [event for _, event in host.stored.values() if isinstance(event, kind)]


async def ran(address, *arguments):
    """A command in a thread: it has an event loop of its own."""
    command = ["parked", *arguments, "--address", address]
    return await asyncio.to_thread(CliRunner().invoke, app, command)


async def test_what_is_parked_is_listed_oldest_first_and_shown_with_its_content(host):
    async with serving(host) as (address, _):
        text = await ran(address, "list")
        listed = json.loads((await ran(address, "list", "--json")).output)
        of_job = json.loads((await ran(address, "list", "--job", "job-1", "--json")).output)
        shown = await ran(address, "show", "selector", LATE.event_id[:6])

    assert text.exit_code == 0, text.output
    assert LATE.event_id in text.output
    assert [one["event_id"] for one in listed] == [LATE.event_id, "gone"]
    assert [one["service"] for one in of_job] == ["selector"]
    assert "slot must be < 3, was 4 (Unfit)" in shown.output
    assert "job-1" in shown.output
    assert f"spotline parked retry selector {LATE.event_id}" in shown.output


async def test_a_retry_is_published_once_for_its_service_and_taken_off_the_list(host):
    async with serving(host) as (address, stream):
        done = await ran(address, "retry", "selector", LATE.event_id[:6], "--json")

        assert done.exit_code == 0, done.output
        retried_as = retry_id(LATE.event_id, "selector")
        assert json.loads(done.output)["retried_as"] == retried_as
        (event,) = unpacked(stream.entries[-1])
        again = event.envelope()
        assert (again.event_id, again.source) == (retried_as, "operator")
        assert again.payload == stream.entries[0].payload
    assert recorded(host, ParkedEntryRetried) == [
        ParkedEntryRetried(service="selector", event_id=LATE.event_id, retried_as=retried_as)
    ]
    assert list(host.state.operations.parked) == [("allocator", "gone")]


async def test_what_is_dropped_is_recorded_with_its_reason(host):
    async with serving(host) as (address, _):
        done = await ran(address, "drop", "allocator", "gone", "--why", "a test")
        again = await ran(address, "drop", "allocator", "gone")

    assert done.exit_code == 0, done.output
    (dropped,) = recorded(host, ParkedEntryDropped)
    assert (dropped.service, dropped.event_id, dropped.detail) == ("allocator", "gone", "a test")
    assert again.exit_code == 1
    assert "spotline parked list" in again.output


async def test_what_is_gone_from_the_log_can_only_be_dropped(host):
    async with serving(host) as (address, stream):
        refused = await ran(address, "retry", "allocator", "gone")

        assert refused.exit_code == 1
        assert "no longer keeps entry 99; drop it" in refused.output
        assert len(stream.entries) == 1
    assert not recorded(host, ParkedEntryRetried)


async def test_the_same_request_has_one_effect_and_pages_go_on(host):
    async with serving(host) as (address, stream), OperationsClient(address) as client:
        first = await client.parked(ParkedQuery(page_size=1))
        second = await client.parked(ParkedQuery(page_size=1, page_token=first.next_page_token))
        ids = {
            await client.retry_parked("selector", LATE.event_id, request_id="r") for _ in range(2)
        }

        assert [e.parked for page in (first, second) for e in page.entries] == [LATE, GONE]
        assert second.next_page_token == ""
        assert len(ids) == 1
        assert len(stream.entries) == 2
        for wrong in (
            client.retry_parked("selector", "nothing", request_id="s"),
            client.drop_parked("placer", "gone", request_id="t"),
            client.drop_parked("allocator", "gone", request_id="u", detail="x" * 501),
        ):
            with pytest.raises(RpcFailed):
                await wrong


async def test_nothing_parked_is_said(host):
    host.record(ParkedEntryDropped(service="allocator", event_id="gone"))
    host.record(ParkedEntryDropped(service="selector", event_id=LATE.event_id))
    async with serving(host) as (address, _):
        assert "nothing is parked" in (await ran(address, "list")).output
