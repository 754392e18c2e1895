"""The channel of our clients, to a server that takes its time."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from spotline.adapters.grpc.kit.calling import open_channel

LATE_S = 1.5


@asynccontextmanager
async def late(address):
    """Forwards to a server, whose first words come late: over a long way, or from a busy machine."""
    host, port = address.split(":")

    answering = []

    async def forward(reader, writer):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def answer(reader, writer):
        answering.append(asyncio.current_task())
        there = await asyncio.open_connection(host, int(port))
        await asyncio.sleep(LATE_S)
        await asyncio.gather(forward(reader, there[1]), forward(there[0], writer))

    proxy = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with proxy:
        yield f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    # Both sides are closed by now, or never were more than dialled.
    await asyncio.wait(answering, timeout=60)


@pytest.fixture
async def server():
    serving = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, serving)
    port = serving.add_insecure_port("127.0.0.1:0")
    await serving.start()
    yield f"127.0.0.1:{port}"
    await serving.stop(None)


async def test_a_server_whose_first_words_come_late_is_reached(server):
    async with late(server) as address, open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING
