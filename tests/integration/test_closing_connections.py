"""A connection that is closed while its server goes leaves nothing open."""

import os
import signal

import pytest

from spotline.adapters.nats.connection import NatsConnection
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S, eventually

pytestmark = pytest.mark.integration


async def test_one_that_is_ending_by_itself_has_ended_when_close_returns() -> None:
    async with EmbeddedBroker() as broker:
        connection = NatsConnection(broker.url, name="test")
        link = await connection.link(timeout_s=PATIENCE_S)
        os.kill(broker.server_pid, signal.SIGKILL)
        await eventually(lambda: link.client.is_closed, every_s=0)

        await connection.close()

        assert link.ended.is_set()
