"""A process that stood still (suspended, or held up by its disk) finds its time limits over."""

import asyncio
import time

import nats.errors
import pytest

from spotline.adapters.nats import publisher as publishing
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from tests.eventually import eventually
from tests.fakes.events import overdue, published

pytestmark = pytest.mark.integration

PATIENCE_S = 0.6
STANDS_STILL_S = 1.0


async def test_what_was_on_its_way_is_stored_once(nats_connection, monkeypatch):
    monkeypatch.setattr(publishing, "_ANSWER_S", PATIENCE_S / 2)
    stream = await NatsEventStream.open(nats_connection, publish_timeout_s=PATIENCE_S)
    await stream.publish(published([overdue(1)]))

    on_its_way = asyncio.create_task(stream.publish(published([overdue(2)])))
    await eventually(lambda: stream._publisher._waiting, every_s=0)
    time.sleep(STANDS_STILL_S)  # noqa: ASYNC251 - the loop stands still

    assert await on_its_way == [2]
    assert await stream.last_seq() == 2


async def test_a_server_that_does_not_say_what_the_stream_is_is_asked_again(
    nats_connection, monkeypatch
):
    stream = await NatsEventStream.open(nats_connection)
    check, unanswered = stream.continuity.check, [nats.errors.TimeoutError()]

    async def checked(js):
        if unanswered:
            raise unanswered.pop()
        await check(js)

    monkeypatch.setattr(stream.continuity, "check", checked)

    assert await stream.publish(published([overdue(1)])) == [1]
    assert not unanswered


async def test_a_connection_that_was_being_made_is_waited_for(broker):
    connection = NatsConnection(broker.url, timeout_s=PATIENCE_S)
    entering = asyncio.create_task(connection.__aenter__())
    await eventually(lambda: connection._connecting, every_s=0)
    time.sleep(STANDS_STILL_S)  # noqa: ASYNC251 - the loop stands still

    await entering
    try:
        assert connection.connected
    finally:
        await connection.close()
