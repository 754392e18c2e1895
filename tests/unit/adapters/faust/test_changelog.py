"""What is written of a table's changes, and what is forgotten with a partition."""

import asyncio
import weakref

import faust
import pytest
from faust.streams import _current_event
from faust.types import TP

from spotline.adapters.faust.changelog import ChangelogBuffer, StaleEvent
from spotline.adapters.faust.messages import message_of
from spotline.adapters.faust.reader import Record


@pytest.fixture
def app():
    made = faust.App("changes", broker="nats://127.0.0.1:1", web_enabled=False)
    made.finalize()
    return made


def attached(app, buffer, **options):
    """A table whose key `kN...` is in partition N."""
    table = app.Table("t", partitions=3, **options)
    table.partition_for_key = lambda key: int(key[1])
    buffer.attach(table)
    return table


async def written(buffer):
    sent = []

    async def send(table, partition, key, value, headers):
        sent.append((partition, key, value))

    await buffer.flush(send)
    return sent


async def test_only_the_last_change_of_a_key_is_written(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer, default=int)
    for _ in range(5):
        table["k0"] += 1
    table["k1"] = 7

    assert await written(buffer) == [(0, b'"k0"', b"5"), (1, b'"k1"', b"7")]
    assert await written(buffer) == []


async def test_a_deletion_is_written_as_no_value(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    table["k0"] = 1
    del table["k0"]

    assert await written(buffer) == [(0, b'"k0"', None)]


async def test_a_mutable_value_is_written_as_it_was_when_it_was_set(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    half = {"n": 1}
    table["k0"] = half
    half["n"] = 2
    nested = (1, [2])
    table["k1"] = nested
    nested[1].append(3)

    assert await written(buffer) == [(0, b'"k0"', b'{"n":1}'), (1, b'"k1"', b"[1,[2]]")]


async def test_changes_while_writing_are_kept_for_the_next_time(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    table["k0"] = 1
    first = []

    async def send(of, partition, key, value, headers):
        first.append(value)
        of["k0"] = 2

    await buffer.flush(send)

    assert first == [b"1"]
    assert await written(buffer) == [(0, b'"k0"', b"2")]


async def test_a_lost_partition_leaves_nothing_behind(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    for key in ("k0", "k1", "k2"):
        table[key] = 1

    buffer.forget([TP(table.changelog_topic_name, 1)])

    assert dict(table) == {"k0": 1, "k2": 1}
    assert [partition for partition, _, _ in await written(buffer)] == [0, 2]


async def test_discarding_forgets_what_was_to_be_written_alone(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    table["k1"] = 1

    buffer.discard([TP(table.changelog_topic_name, 1)])

    assert dict(table) == {"k1": 1}
    assert await written(buffer) == []


def test_a_table_with_a_way_of_its_own_is_left_alone(app):
    class Own(faust.Table):
        def on_key_set(self, key, value):
            raise NotImplementedError

    buffer = ChangelogBuffer()
    own = Own(app, name="own", partitions=1)
    buffer.attach(own)

    assert "on_key_set" not in vars(own)
    sets = app.SetTable("sets", partitions=1)
    buffer.attach(sets)
    assert "on_key_set" not in vars(sets)


async def test_what_a_failed_flush_did_not_hand_over_is_written_the_next_time(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer, default=int)
    for number in range(3):
        table[f"k{number}"] = number
    sent = []

    async def send(of, partition, key, value, headers):
        if partition == 1:
            of["k1"] = 7
            raise ValueError("too large")
        sent.append((partition, key, value))

    with pytest.raises(ValueError, match="too large"):
        await buffer.flush(send)

    assert sent == [(0, b'"k0"', b"0")]
    assert sorted(await written(buffer)) == [(1, b'"k1"', b"7"), (2, b'"k2"', b"2")]


async def test_what_a_cancelled_flush_did_not_hand_over_is_written_the_next_time(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    table["k0"], table["k1"] = 1, 2
    waiting = asyncio.Event()

    async def send(*_):
        waiting.set()
        await asyncio.Event().wait()

    flushing = asyncio.create_task(buffer.flush(send))
    await waiting.wait()
    flushing.cancel()
    await asyncio.wait([flushing])

    assert sorted(await written(buffer)) == [(0, b'"k0"', b"1"), (1, b'"k1"', b"2")]


async def test_what_was_discarded_while_it_was_handed_over_does_not_come_back(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    table["k0"], table["k1"] = 1, 2

    async def send(of, partition, *_):
        buffer.discard([TP(of.changelog_topic_name, p) for p in (0, 1)])
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        await buffer.flush(send)

    assert await written(buffer) == []


async def test_an_event_of_an_assignment_before_changes_nothing(app):
    buffer = ChangelogBuffer()
    table = attached(app, buffer)
    table["k0"] = 1
    record = Record(1, 1, b"faust.t.0.azA", b"1", None)
    message = message_of(TP("t", 0), record, foreign=False, generation_id=1)
    event = faust.Event(app, b"k0", 1, {}, message)
    token = _current_event.set(weakref.ref(event))
    try:
        app.consumer_generation_id = 1
        table["k0"] = 2
        app.consumer_generation_id = 2
        with pytest.raises(StaleEvent, match="the event comes again"):
            table["k0"] = 3
        with pytest.raises(StaleEvent):
            del table["k0"]
    finally:
        _current_event.reset(token)

    assert dict(table) == {"k0": 2}
    assert await written(buffer) == [(0, b'"k0"', b"2")]
