"""What the HTTP server listens on."""

import asyncio
import socket

import pytest

from spotline.adapters.web.serving import _bound
from spotline.contracts.errors import ConfigError
from tests.eventually import PATIENCE_S


async def test_an_answer_in_parts_waits_for_no_acknowledgement():
    host, bound = _bound("127.0.0.1:0")
    at_once = asyncio.get_running_loop().create_future()

    async def accepted(_, writer):
        peer = writer.get_extra_info("socket")
        at_once.set_result(bool(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        writer.close()

    async with asyncio.timeout(PATIENCE_S), await asyncio.start_server(accepted, sock=bound):
        reader, writer = await asyncio.open_connection(host, bound.getsockname()[1])
        assert await at_once
        await reader.read()
        writer.close()
        await writer.wait_closed()


def test_an_address_that_is_taken_is_refused_and_nothing_is_left_open():
    with _bound("127.0.0.1:0")[1] as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            _bound(f"127.0.0.1:{port}")
