"""Faust on a real nats-server: what an app sends and reads."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from faust.exceptions import ImproperlyConfigured, ProducerSendError
from faust.transport import by_url

from spotline.adapters.faust.hosting import AppCrashed, running
from spotline.adapters.faust.names import stream_name
from spotline.adapters.faust.transport import Transport
from spotline.contracts.errors import ConfigError
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.faust_apps import collecting, ready, small_app

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


def test_faust_finds_the_transport_by_the_url_alone():
    assert by_url("nats://localhost") is Transport


async def test_agents_get_keys_values_headers_and_times_as_they_were_sent(broker, js):
    app = small_app(broker.url)
    topic = app.topic("things", key_type=bytes, value_serializer="raw")
    sent = [
        (b"key", b"value"),
        (None, b"no key"),
        (b"", b"empty key"),
        (b"empty value", b""),
        (b"\x00\xff.*> ", b"\x00\xff"),
        (b"long" * 500, b"long key"),
        (b"deleted", None),
    ]
    events = collecting(app, topic, to_item=lambda one: one)

    async with running(app):
        for key, value in sent:
            await topic.send(key=key, value=value)
        await topic.send(value=b"x", headers={"a": b"1", "b": b"\xff"}, timestamp=12.5)
        await eventually(lambda: len(events) == len(sent) + 1)

    got = [(one.key, one.message.value) for one in events if one.value != b"x"]
    assert len(got) == len(sent)
    assert set(got) == set(sent)
    [last] = [one for one in events if one.value == b"x"]
    assert last.headers == {"a": b"1", "b": b"\xff"}
    assert last.message.timestamp == 12.5


async def test_messages_of_a_key_are_in_one_partition_and_in_order(broker, js):
    app = small_app(broker.url, options="?monitor=off", partitions=3)
    topic = app.topic("ordered", key_type=str, value_type=int)
    got = collecting(app, topic, to_item=lambda one: (one.key, one.value, one.message.partition))

    async with running(app):
        for number in range(200):
            await topic.send(key=f"k{number % 7}", value=number)
        await eventually(lambda: len(got) == 200)

    for key in {one[0] for one in got}:
        values = [value for name, value, _ in got if name == key]
        assert values == sorted(values)
        assert len({partition for name, _, partition in got if name == key}) == 1
    assert len({partition for _, _, partition in got}) == 3


async def test_sending_awaits_the_storing_and_says_where(broker, js):
    app = small_app(broker.url)
    topic = app.topic("answered", value_type=int, partitions=1)
    app.producer_only = True
    async with running(app):
        await topic.declare()
        first = await (await topic.send(value=1))
        second = await (await topic.send(value=2))

    assert (first.offset, second.offset) == (1, 2)
    assert second.topic == "answered"
    assert second.partition == 0


async def test_what_is_committed_is_not_read_again(broker, js):
    for numbers in ([1, 2, 3], [4, 5]):
        app = small_app(broker.url)
        topic = app.topic("committed", value_type=int)
        got = collecting(app, topic, to_item=lambda one: one.value)
        async with running(app):
            for number in numbers:
                await topic.send(value=number)
            await eventually(lambda got=got, numbers=numbers: len(got) >= len(numbers))
        assert sorted(got) == numbers


async def test_latest_leaves_out_what_was_there_before(broker, js):
    before = small_app(broker.url, "before")
    topic = before.topic("news", value_type=str)
    before.producer_only = True
    async with running(before):
        await (await topic.send(value="old"))
    app = small_app(broker.url, consumer_auto_offset_reset="latest")
    topic = app.topic("news", value_type=str)
    got = collecting(app, topic, to_item=lambda one: one.value)

    async with running(app):
        await ready(app)
        await topic.send(value="new")
        await eventually(lambda: got)

    assert got == ["new"]


async def test_a_stream_can_be_grouped_by_another_key(broker, js):
    app = small_app(broker.url)
    topic = app.topic("orders", value_type=int)
    got = []

    @app.agent(topic)
    async def by_parity(stream):
        async for event in stream.group_by(lambda v: str(v % 2), name="parity").events():
            got.append((event.key, event.value, event.message.partition))  # noqa: PERF401

    async with running(app):
        for number in range(40):
            await topic.send(key=str(number), value=number)
        await eventually(lambda: len(got) == 40)

    assert {value for _, value, _ in got} == set(range(40))
    assert len({(key, partition) for key, _, partition in got}) == 2


async def test_an_agent_can_be_asked(broker, js):
    app = small_app(broker.url)

    @app.agent(app.topic("squares", value_type=int))
    async def square(stream):
        async for number in stream:
            yield number * number

    async with running(app):
        await ready(app)
        async with asyncio.timeout(PATIENCE_S):
            assert await square.ask(7) == 49


async def test_slow_streams_hold_the_reading_back_and_lose_nothing(broker, js):
    app = small_app(broker.url, stream_buffer_maxsize=16)
    topic = app.topic("many", value_type=int, partitions=1)
    got = []

    @app.agent(topic)
    async def slow(stream):
        async for number in stream:
            if number % 50 == 0:
                await asyncio.sleep(0.01)
            got.append(number)

    async with running(app):
        await topic.declare()
        for number in range(1000):
            await topic.send(value=number)
        await eventually(lambda: len(got) == 1000)

    assert got == list(range(1000))


async def test_topics_become_streams_as_they_were_described(broker, js):
    app = small_app(broker.url)
    app.producer_only = True
    async with running(app):
        await app.topic("kept", partitions=5, retention=3600.0).declare()
        await app.topic("latest.only", compacting=True).declare()

    kept = (await js.stream_info(stream_name("kept"))).config
    assert kept.max_age == 3600
    assert kept.metadata["faust.partitions"] == "5"
    latest = (await js.stream_info(stream_name("latest.only"))).config
    assert latest.max_msgs_per_subject == 1


async def test_existing_streams_are_read_as_a_topic_and_never_written(broker, js):
    await js.add_stream(name="SENSORS", subjects=["sensors.>"])
    for number in range(5):
        await js.publish(f"sensors.room{number % 2}.heat", str(number).encode())
        await js.publish("sensors.other", b"0")
    app = small_app(broker.url)
    topic = app.topic(
        "heat",
        key_type=str,
        value_type=int,
        config={"nats.streams": "SENSORS", "nats.subjects": "sensors.*.heat"},
    )
    got = collecting(app, topic)

    async with running(app):
        await eventually(lambda: len(got) == 5)
        with pytest.raises(ProducerSendError, match="read only"):
            await topic.send(value=1)

    assert got == [(f"sensors.room{number % 2}.heat", number) for number in range(5)]


async def test_a_message_too_large_is_refused_to_its_sender_and_nobody_else(broker, js):
    app = small_app(broker.url)
    topic = app.topic("large", value_serializer="raw")
    got = collecting(app, topic, to_item=lambda one: len(one.value))

    async with running(app):
        with pytest.raises(ProducerSendError, match="exceed the server's max_payload"):
            await topic.send(value=b"x" * (9 * 1024 * 1024))
        await topic.send(value=b"x" * (3 * 1024 * 1024))
        await eventually(lambda: got)

    assert got == [3 * 1024 * 1024]


async def test_what_was_not_stored_is_never_committed(broker, js):
    app = small_app(broker.url)
    topic, copies = app.topic("originals", value_type=int), app.topic("copies", value_type=int)

    @app.agent(topic)
    async def copy(stream):
        async for number in stream:
            await copies.send(value=number)

    async def run():
        async with running(app):
            await ready(app)
            await copies.declare()
            config = (await js.stream_info(stream_name("copies"))).config
            config.max_msg_size = 1
            await js.update_stream(config)
            await topic.send(value=1234567)
            await asyncio.Event().wait()

    with pytest.raises(AppCrashed, match="was refused"):
        await run()

    kv = await js.key_value("FAUST_app")
    offsets = [json.loads((await kv.get(f"offset.originals.{p}")).value) for p in (0, 1)]
    assert [one["offset"] for one in offsets] == [None, None]


async def test_only_the_partitions_named_in_the_url_are_read(broker, js):
    app = small_app(broker.url, options="?partitions=1")
    topic = app.topic("static", value_type=int)
    got = collecting(app, topic, to_item=lambda one: one.value)

    async with running(app):
        await ready(app)
        for partition in (0, 1):
            await topic.send(value=partition, partition=partition)
        await eventually(lambda: got)

    assert got == [1]


async def test_exactly_once_is_refused_with_what_to_do_instead(broker):
    app = small_app(broker.url, processing_guarantee="exactly_once")
    app.topic("any")
    with pytest.raises(ImproperlyConfigured, match="keep the last applied offset"):
        app.transport.options  # noqa: B018 - reading it is the act


async def test_a_server_that_is_too_old_is_refused_with_the_reason():
    async def old_server(reader, writer):
        info = {"version": "2.9.10", "max_payload": 1048576, "headers": True, "jetstream": True}
        try:
            writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        finally:
            writer.close()

    async with await asyncio.start_server(old_server, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        app = small_app(f"nats://127.0.0.1:{port}", "old")
        with pytest.raises(ConfigError, match=r"version 2\.9\.10, Spotline needs 2\.12\.3"):
            await app.producer.start()


@pytest.mark.timeout(240)
async def test_the_example_runs_under_fausts_own_worker(broker, js, tmp_path):
    example = (ROOT / "docs/examples/faust_on_nats.py").read_text()
    (tmp_path / "faust_on_nats.py").write_text(example.replace("nats://127.0.0.1:4222", broker.url))
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "faust", "-A", "faust_on_nats", "worker", "--without-web"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    app = small_app(broker.url, "visitor", partitions=4)
    app.producer_only = True
    visits = app.topic("page-visits", key_type=str, value_type=str)
    async with running(app):
        for page in ("/", "/docs"):
            await (await visits.send(key="ada", value=page))
    said = ""
    try:
        async with asyncio.timeout(200):
            while "ada was here 2 times, last on /docs" not in said:
                line = await worker.stdout.readline()
                assert line, said
                said += line.decode()
    finally:
        worker.terminate()
        rest, _ = await worker.communicate()
    assert worker.returncode == 0, said + rest.decode()
