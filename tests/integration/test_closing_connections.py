"""A connection that is closed leaves nothing open: while its server goes, or the close is cancelled."""

import asyncio
import os
import signal
from asyncio import StreamReader, StreamWriter

import pytest

from spotline.adapters.nats.connection import BrokerLink, NatsConnection
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S, eventually

pytestmark = pytest.mark.integration

# A close takes fewer turns of the loop than this; where it has ended before, nothing is cancelled.
_TURNS = 8


def _is_open(link: BrokerLink) -> bool:
    return not link.client._transport._bare_io_writer.transport.is_closing()


async def test_one_that_is_ending_by_itself_has_ended_when_close_returns() -> None:
    async with EmbeddedBroker() as broker:
        connection = NatsConnection(broker.url, name="test")
        link = await connection.link(timeout_s=PATIENCE_S)
        os.kill(broker.server_pid, signal.SIGKILL)
        await eventually(lambda: link.client.is_closed, every_s=0)

        await connection.close()

        assert link.ended.is_set()


async def _ignored(_: object) -> None:
    pass


@pytest.mark.parametrize("turns", range(_TURNS))
async def test_a_close_that_is_cancelled_leaves_no_socket_open(
    broker: EmbeddedBroker, turns: int
) -> None:
    connection = NatsConnection(broker.url, name="test")
    link = await connection.link(timeout_s=PATIENCE_S)
    subscription = await link.client.subscribe("spotline.test", cb=_ignored)
    closing = asyncio.create_task(connection.close())
    for _ in range(1 + turns):
        await asyncio.sleep(0)

    closing.cancel()
    await asyncio.wait((closing,))

    assert not _is_open(link)
    await eventually(lambda: subscription._wait_for_msgs_task.done(), every_s=0)


async def test_a_server_that_breaks_off_the_greeting_leaves_no_socket_open() -> None:
    links: list[StreamWriter] = []

    async def greet(reader: StreamReader, writer: StreamWriter) -> None:
        links.append(writer)
        writer.write(b"-ERR 'Maximum Connections Exceeded'\r\n")
        # Nothing more is sent and nothing closed: what ends this is the other side alone.
        while await reader.read(1024):
            pass
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        connection = NatsConnection(f"nats://{host}:{port}", name="test")
        with pytest.raises(ProviderUnavailable):
            await connection.link(timeout_s=0.2)
        await eventually(lambda: bool(links) and links[0].is_closing(), every_s=0)
        await connection.close()
        await eventually(lambda: all(writer.is_closing() for writer in links), every_s=0)
