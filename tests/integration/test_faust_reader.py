"""Reading ahead: bounded in bytes, quiet while messages come, and aware of what has expired."""

import asyncio

import pytest

from spotline.adapters.faust import reader as reading
from spotline.adapters.faust.names import subject_of
from spotline.adapters.faust.reader import PartitionReader
from spotline.adapters.faust.session import Session
from spotline.adapters.faust.topics import Topics
from tests.eventually import PATIENCE_S, eventually

pytestmark = pytest.mark.integration

SUBJECT = subject_of("read", 0, b"k")


@pytest.fixture
async def session(broker, nats_connection):
    opened = Session(broker.url, name="test")
    await opened.open()
    await Topics(opened).create("read", 1)
    yield opened
    await opened.close()


def reader_of(session, next_offset=1):
    return PartitionReader(
        session,
        "FAUST_read",
        (f"{SUBJECT}",),
        next_offset=next_offset,
        on_news=lambda: None,
    )


async def stored(session, *payloads):
    client = (await session.link()).client
    js = client.jetstream(timeout=PATIENCE_S)
    for payload in payloads:
        await js.publish(SUBJECT, payload)


async def test_what_waits_is_bounded_in_bytes_and_all_of_it_comes(session, monkeypatch):
    monkeypatch.setattr(reading, "_MAX_BYTES", 1024 * 1024)
    monkeypatch.setattr(reading, "_SILENCE_S", 2 * PATIENCE_S)
    await stored(session, *(b"x" * 1_000_000 for _ in range(40)))
    reader = reader_of(session)
    await reader.open()
    await eventually(lambda: len(reader.records) >= 2)

    async def quiet():
        """Ask until nothing more comes."""
        count = -1
        while count != len(reader.records):
            count = len(reader.records)
            await reader.request()
            await (await session.link()).client.flush()

    await quiet()

    # What was under way when the limit was met: at most one request more than fits.
    assert len(reader.records) <= 20
    got = 0
    async with asyncio.timeout(PATIENCE_S):
        while got < 40:
            if reader.records:
                reader.take()
                got += 1
            await reader.request()
            await asyncio.sleep(0)
    await reader.close()


async def test_a_reader_that_hears_messages_is_not_reopened(session, monkeypatch):
    monkeypatch.setattr(reading, "_SILENCE_S", 0.3)
    reader = reader_of(session)
    await reader.open()
    loop = asyncio.get_running_loop()
    until_s, count = loop.time() + 1.0, 0

    while loop.time() < until_s:
        await stored(session, b"1")
        count += 1
        await eventually(lambda count=count: len(reader.records) == count)
        await reader.request()

    assert reader.is_open
    await reader.close()


async def test_a_reader_says_where_it_could_begin(session):
    await stored(session, *(b"%d" % number for number in range(10)))
    await session.ask(lambda js: js.purge_stream("FAUST_read", seq=7))

    late, in_time = reader_of(session, next_offset=3), reader_of(session, next_offset=8)
    await late.open()
    await in_time.open()

    assert (late.first_offset, in_time.first_offset) == (7, 8)
    await late.close()
    await in_time.close()
