"""A server that dies and comes back: links are replaced, and messages stored once, in order."""

import asyncio
import os
import signal

import pytest
from faust.exceptions import ProducerSendError

from spotline.adapters.faust import publisher as publishing
from spotline.adapters.faust.inbox import subscribe_raw
from spotline.adapters.faust.names import subject_of
from spotline.adapters.faust.publisher import Publisher
from spotline.adapters.faust.session import Session
from spotline.adapters.faust.topics import Topics
from spotline.adapters.nats.connection import NatsConnection
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.processes import free_port

pytestmark = pytest.mark.integration

KILLS = 3
# Sent and not answered: enough to be amid when the server is killed.
AHEAD = 300


async def killed(broker, store, port):
    """Kill the server amid whatever it does, and return its successor."""
    os.kill(broker.server_pid, signal.SIGKILL)
    await broker.__aexit__(None, None, None)
    successor = EmbeddedBroker(store, port=port)
    await successor.__aenter__()
    return successor


async def payloads(session, topic, count):
    link = await session.link()
    stored = asyncio.Queue()
    js = link.client.jetstream()
    await js.subscribe(f"faust.{topic}.>", ordered_consumer=True, cb=stored.put)
    async with asyncio.timeout(PATIENCE_S):
        return [int((await stored.get()).data) for _ in range(count)]


async def test_a_client_that_closed_without_a_word_is_replaced(broker, nats_connection):
    async with NatsConnection(broker.url, name="silent") as connection:
        first = await connection.link(timeout_s=PATIENCE_S)
        told = []
        first.when_lost(lambda: told.append(1))
        first.client._closed_cb = None
        await first.client.close()

        assert first.lost
        second = await connection.link(timeout_s=PATIENCE_S)

        assert second is not first
        assert told == [1]
        assert connection.connected


@pytest.mark.timeout(300)
async def test_messages_sent_while_a_server_is_killed_are_stored_once_and_in_order(tmp_path):
    port = free_port()
    broker = EmbeddedBroker(tmp_path, port=port)
    await broker.__aenter__()
    session = Session(broker.url, name="killed")
    await session.open()
    await Topics(session).create("numbers", 1)
    publisher = Publisher(session, patience_s=300)
    running = asyncio.create_task(publisher.run())
    sent = []
    is_over = asyncio.Event()

    async def feed():
        while not is_over.is_set():
            number = len(sent)
            sent.append(
                await publisher.send(
                    subject_of("numbers", 0, b"k"), str(number).encode().ljust(20_000)
                )
            )
            await eventually(
                lambda: publisher.in_flight < AHEAD or is_over.is_set(), timeout_s=300, every_s=0
            )

    feeding = asyncio.create_task(feed())
    try:
        for _ in range(KILLS):
            stored = len([one for one in sent if one.done()])
            await eventually(
                lambda stored=stored: len([one for one in sent if one.done()]) > stored + 50
            )
            broker = await killed(broker, tmp_path, port)
        is_over.set()
        await asyncio.wait_for(feeding, PATIENCE_S)
        assert await publisher.drained(timeout_s=PATIENCE_S)

        assert [one.exception() for one in sent if one.exception()] == []
        info = await session.ask(lambda js: js.stream_info("FAUST_numbers"))
        assert info.state.messages == len(sent)
        assert await payloads(session, "numbers", len(sent)) == list(range(len(sent)))
    finally:
        feeding.cancel()
        running.cancel()
        publisher.close()
        await session.close()
        await broker.__aexit__(None, None, None)


@pytest.fixture
async def session(broker, nats_connection):
    opened = Session(broker.url, name="test")
    await opened.open()
    yield opened
    await opened.close()


async def test_a_message_too_large_sent_without_a_link_fails_alone(session):
    await Topics(session).create("sizes", 1)
    publisher = Publisher(session, patience_s=60)
    subject = subject_of("sizes", 0, b"k")
    large = await publisher.send(subject, b"x" * (9 * 1024 * 1024))
    small = await publisher.send(subject, b"y")
    before = len((await session.link()).client._subs)

    running = asyncio.create_task(publisher.run())
    assert await asyncio.wait_for(small, PATIENCE_S) == 1
    with pytest.raises(ProducerSendError, match="exceed the server's max_payload"):
        await large
    running.cancel()

    assert len((await session.link()).client._subs) == before + 1


async def test_a_message_stored_twice_because_its_answer_was_lost_is_there_once(session):
    await Topics(session).create("answers", 1)
    publisher = Publisher(session, patience_s=60)
    running = asyncio.create_task(publisher.run())
    await eventually(lambda: publisher._link)
    publisher._end_inbox()
    unanswered = await publisher.send(subject_of("answers", 0, b"k"), b"1")
    await eventually_stored(session, "FAUST_answers", 1)

    await session.drop(await session.link())

    assert await asyncio.wait_for(unanswered, PATIENCE_S) == 1
    info = await session.ask(lambda js: js.stream_info("FAUST_answers"))
    assert info.state.messages == 1
    running.cancel()


async def test_what_follows_a_message_put_off_is_stored_behind_it(session, monkeypatch):
    # Nobody answers below; no pause may have the link given up for it.
    monkeypatch.setattr(publishing, "_SILENCE_S", 10 * PATIENCE_S)
    await Topics(session).create("puts", 1)
    publisher = Publisher(session, patience_s=60)
    running = asyncio.create_task(publisher.run())
    await eventually(lambda: publisher._link)
    answered, publisher._answered = publisher._answered, None
    publisher._end_inbox()
    subject = subject_of("puts", 0, b"k")
    # As if the server had had no leader for the first, and one for the second.
    link, publisher._link = publisher._link, None
    first = await publisher.send(subject, b"1")
    publisher._link = link
    second = await publisher.send(subject, b"2")
    await eventually_stored(session, "FAUST_puts", 1)
    publisher._answered = answered
    refusal = b'{"error": {"code": 503, "description": "no leader"}}'

    publisher._answered(b"inbox.0", b"", refusal, None)

    assert await asyncio.wait_for(first, PATIENCE_S) < await asyncio.wait_for(second, PATIENCE_S)
    running.cancel()
    last = await session.ask(lambda js: js.get_msg("FAUST_puts", subject=subject))
    assert last.data == b"2"


async def eventually_stored(session, stream, count):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            info = await session.ask(lambda js: js.stream_info(stream))
            if info.state.messages == count:
                return


async def test_a_raw_subscription_that_ended_is_gone_from_client_and_server(session):
    client = (await session.link()).client
    got = []
    before = len(client._subs)
    end = await subscribe_raw(client, "raw.subject", lambda *one: got.append(one))

    end()
    end()
    await client.flush()
    await client.publish("raw.subject", b"1")
    await client.flush()

    assert len(client._subs) == before
    assert got == []
