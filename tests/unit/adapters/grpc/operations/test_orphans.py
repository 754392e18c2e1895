"""What a person is told of instances without a job, and can ask for."""

from contextlib import asynccontextmanager

import pytest

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.kit.calling import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.domain.events.agreement import OrphanFound, OrphanReapRequested, OrphanSettled
from tests.fakes.allocator import FakeJobsHost, opened_host


def found(instance_id: str, ts_event_ns: int = 0) -> OrphanFound:
    return OrphanFound(
        instance_id=instance_id,
        offering_id="a",
        slot=3,
        ts_event_ns=ts_event_ns,
        reap_after_ns=0,
        detail="it is ended when a person says so",
    )


@asynccontextmanager
async def asked_of(host: FakeJobsHost):
    server = RpcServer(host, JobFeed(), address="127.0.0.1:0")
    address = await server.start()
    try:
        async with OperationsClient(address) as client:
            yield client
    finally:
        await server.stop()


def wanted(host: FakeJobsHost) -> list[tuple[str, ...]]:
    events = [event for _, event in host.stored.values()]
    return [one.instance_ids for one in events if isinstance(one, OrphanReapRequested)]


async def test_orphans_are_listed_oldest_first_until_they_are_settled():
    settled = OrphanSettled(instance_id="i-2", reaped=True, detail="", slot=4, ts_event_ns=9)
    host = opened_host(found("i-1", 7), found("i-2", 1), found("i-3", 2), settled)

    async with asked_of(host) as client:
        listed = await client.orphans()

    assert [one.instance_id for one in listed.orphans] == ["i-3", "i-1"]


async def test_named_ones_or_all_are_asked_for_once_per_request():
    host = opened_host(found("i-1"), found("i-2"))

    async with asked_of(host) as client:
        assert await client.reap_orphans(("i-2",), request_id="r1") == ("i-2",)
        assert await client.reap_orphans(("i-2",), request_id="r1") == ("i-2",)
        assert await client.reap_orphans((), request_id="r2") == ("i-1", "i-2")

    assert wanted(host) == [("i-2",), ("i-1", "i-2")]


async def test_what_is_no_orphan_is_refused_by_name():
    host = opened_host(found("i-1"))

    async with asked_of(host) as client:
        with pytest.raises(RpcFailed, match="'i-9' is none") as refused:
            await client.reap_orphans(("i-1", "i-9"), request_id="r")

    assert "UNKNOWN_ORPHAN" in str(vars(refused.value))
    assert wanted(host) == []
