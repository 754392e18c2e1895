"""A service that answers calls is well only when it can be called."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.bootstrap.parts import BusAddress, HealthProbes, PartHooks
from spotline.bootstrap.servers import AllocatorParts, serve_allocator
from tests.eventually import eventually

pytestmark = pytest.mark.integration


async def test_a_service_is_not_well_before_its_server_listens(broker, monkeypatch) -> None:
    ready = threading.Event()
    # As when kernels are compiled in a new container.
    monkeypatch.setattr(RpcServer, "prepare", lambda self: ready.wait(60))
    probes = HealthProbes()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async with asyncio.TaskGroup() as group:
        serving = group.create_task(
            serve_allocator(
                BusAddress(nats_url=broker.url),
                AllocatorParts(),
                address="127.0.0.1:0",
                hooks=PartHooks(started=probes.note),
                listening=listening.set_result,
            )
        )
        await eventually(lambda: probes.overall().detail.get("allocator.phase") == "live")
        before = probes.overall()
        ready.set()
        await listening
        await eventually(lambda: probes.overall().healthy)
        serving.cancel()

    assert not before.healthy
    assert before.detail["allocator.answering"] is False
