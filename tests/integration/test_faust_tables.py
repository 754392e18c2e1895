"""Tables of Faust apps on JetStream: what their changelogs hold, and what comes back of them."""

import asyncio

import pytest

from spotline.adapters.faust.hosting import running
from spotline.adapters.faust.names import partition_filter, stream_name
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import eventually
from tests.fakes.faust_apps import LASTING, collecting, ready, small_app
from tests.fakes.processes import free_port

pytestmark = pytest.mark.integration

APP = "app"


def counting(url, *, options=LASTING, partitions=2, **settings):
    """An app that counts words, and forgets one at `-word`."""
    app = small_app(url, APP, options=options, partitions=partitions, **settings)
    words = app.topic("words", key_type=str, value_type=str)
    counts = app.Table("counts", default=int)
    seen = []

    @app.agent(words)
    async def count(stream):
        async for word in stream:
            if word.startswith("-"):
                counts.pop(word[1:])
            else:
                counts[word] += 1
            seen.append(word)

    return app, words, counts, seen


async def say(topic, seen, words):
    before = len(seen)
    for word in words:
        await topic.send(key=word.removeprefix("-"), value=word)
    await eventually(lambda: len(seen) == before + len(words))


async def test_a_table_comes_back_without_what_was_deleted(broker, js):
    app, words, counts, seen = counting(broker.url)
    async with running(app):
        await say(words, seen, ["a", "b", "a", "c", "-b", "d", "-d", "d"])
    expected = {"a": 2, "c": 1, "d": 1}
    assert dict(counts) == expected

    again, _, table, seen = counting(broker.url)
    async with running(again):
        await ready(again)

        assert dict(table) == expected
        assert seen == []


async def test_a_changelog_keeps_one_message_per_key_whatever_came_between(broker, js):
    app, words, counts, seen = counting(broker.url, partitions=1)
    async with running(app):
        await say(words, seen, ["a", "b"] * 100)

    info = await js.stream_info(stream_name(f"{APP}-counts-changelog"))
    assert dict(counts) == {"a": 100, "b": 100}
    # Two keys and the fence.
    assert info.state.messages == 3
    assert info.state.last_seq < 50


async def test_on_request_every_change_is_written(broker, js):
    app, words, _, seen = counting(broker.url, options="?changelog=each", partitions=1)
    async with running(app):
        await say(words, seen, ["a"] * 30)

    info = await js.stream_info(stream_name(f"{APP}-counts-changelog"))
    assert info.state.last_seq == 31


async def test_deletions_do_not_pile_up_for_ever(broker, js):
    app, words, _, seen = counting(broker.url, partitions=1)
    async with running(app):
        await say(words, seen, ["a", "-a"])

    last = await js.get_msg(
        stream_name(f"{APP}-counts-changelog"),
        subject=partition_filter(f"{APP}-counts-changelog", 0),
    )
    assert last.headers["Nats-TTL"] == "24h"


async def test_a_mutable_value_is_written_as_it_was_when_it_was_set(broker, js):
    app = small_app(broker.url, APP, partitions=1)
    topic = app.topic("in", key_type=str, value_type=int)
    table = app.Table("lists", default=list)
    seen = []

    @app.agent(topic)
    async def add(stream):
        async for key, value in stream.items():
            values = table[key]
            values.append(value)
            if value < 3:
                table[key] = values
            seen.append(value)

    async with running(app):
        for value in range(5):
            await topic.send(key="k", value=value)
        await eventually(lambda: len(seen) == 5)

    again = small_app(broker.url, APP, partitions=1)
    table = again.Table("lists", default=list)
    collecting(again, again.topic("in", key_type=str, value_type=int))
    async with running(again):
        await ready(again)
        assert table["k"] == [0, 1, 2]


async def test_windowed_tables_come_back(broker, js):
    def windowed():
        app = small_app(broker.url, APP, partitions=1)
        topic = app.topic("ticks", key_type=str, value_type=int)
        table = app.Table("windows", default=int).tumbling(10.0, expires=3600.0)
        seen = []

        @app.agent(topic)
        async def add(stream):
            async for key, value in stream.items():
                table[key] += value
                seen.append(value)

        return app, topic, table, seen

    app, topic, table, seen = windowed()
    async with running(app):
        for second in range(30):
            await topic.send(key="k", value=1, timestamp=1_800_000_000.0 + second)
        await eventually(lambda: len(seen) == 30)
    again, _, table, _ = windowed()
    async with running(again):
        await ready(again)

        assert sorted(table.table.items()) == [
            (("k", (1_800_000_000.0 + start, 1_800_000_009.9 + start)), 10) for start in (0, 10, 20)
        ]


async def test_recovery_ends_although_the_last_entry_has_expired_meanwhile(broker, js):
    app, words, _, seen = counting(broker.url, partitions=1)
    async with running(app):
        await say(words, seen, ["a", "b"])

    again, _, table, _ = counting(broker.url, partitions=1)
    changelog = stream_name(f"{APP}-counts-changelog")
    highwaters = again.consumer.highwaters

    async def then_expired(*partitions):
        found = await highwaters(*partitions)
        [last] = found.values()
        await js.delete_msg(changelog, last - 1)
        return found

    again.consumer.highwaters = then_expired
    async with running(again):
        await ready(again)

        assert len(table) == 1


async def test_an_app_goes_on_after_the_server_was_away(tmp_path):
    port = free_port()
    async with EmbeddedBroker(tmp_path, port=port) as broker:
        app, words, counts, seen = counting(broker.url)
        app_run = running(app)
        await app_run.__aenter__()
        await say(words, seen, ["a"] * 20)
    # Sent into the void, stored when the server is back.
    waiting = [await words.send(key="a", value="a") for _ in range(20)]
    await asyncio.sleep(0.3)
    assert not any(one.done() for one in waiting)
    async with EmbeddedBroker(tmp_path, port=port):
        await asyncio.gather(*waiting)
        await eventually(lambda: len(seen) >= 40)
        await say(words, seen, ["b"] * 5)
        await app_run.__aexit__(None, None, None)

    assert counts["b"] == 5
    assert counts["a"] >= 40


async def test_lost_and_won_back_a_table_is_exact_and_so_is_its_changelog(broker, js):
    def summing():
        app = small_app(broker.url, APP, partitions=1, broker_commit_interval=3600.0)
        topic = app.topic("in", key_type=str, value_type=int)
        table = app.Table("sums", default=lambda: (0, 0))
        seen = []

        @app.agent(topic)
        async def add(stream):
            async for event in stream.events():
                total, last = table[event.key]
                if event.message.offset > last:
                    table[event.key] = (total + event.value, event.message.offset)
                seen.append(event.message.offset)

        return app, topic, table, seen

    app, topic, table, seen = summing()
    async with running(app):
        await ready(app)
        for _ in range(20):
            await topic.send(key="k", value=1)
        await eventually(lambda: len(seen) == 20)
        info = await js.stream_info(stream_name(f"{APP}-sums-changelog"))
        assert info.state.messages == 1  # the fence: nothing is written yet
        keeper, generation = app.consumer._keeper, app.consumer_generation_id
        step, tries = keeper._step, []

        async def unanswered():
            tries.append(1)
            raise ProviderUnavailable("no beat gets through")

        # As if the lease had been over by now.
        keeper._step, keeper._valid_until_s = unanswered, 0.0
        keeper.look()
        await eventually(lambda: tries and not app.consumer.assignment())
        keeper._step = step
        keeper.look()
        await eventually(
            lambda: app.consumer_generation_id > generation + 1 or app.consumer.assignment()
        )
        await ready(app)
        await eventually(lambda: len(seen) == 40)
        assert table["k"][0] == 20
    again, _, table, _ = summing()
    async with running(again):
        await ready(again)
        assert table["k"][0] == 20
