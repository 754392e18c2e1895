"""Faust workers on JetStream that are killed, paused and joined: tables come out exact."""

import random
import signal

import faust
import pytest

from spotline.adapters.faust.hosting import data_folder
from tests.fakes.faust_apps import LASTING
from tests.fakes.faust_worker import PARTITIONS, TOPIC
from tests.fakes.faust_workers import Broker, Workers, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

# Where another worker is to take over: one that pauses for as long is taken for dead.
SHORT = "?lease_s=1"


class Sender:
    """Sends numbers, and knows what a batch computation makes of them."""

    def __init__(self, app, topic):
        self.app = app
        self.topic = topic
        self.expected = {}
        self._next = 0

    async def send(self, count):
        stored = []
        for _ in range(count):
            key, value = f"key-{self._next % 23}", self._next % 101
            self._next += 1
            stored.append(await self.topic.send(key=key, value=value))
            before = self.expected.get(key, (0, 0))
            self.expected[key] = (before[0] + 1, before[1] + value)
        for one in stored:
            await one


@pytest.fixture
async def sender(broker, js):
    app = faust.App(
        "sender",
        broker=broker.url,
        topic_partitions=PARTITIONS,
        web_enabled=False,
        datadir=data_folder("sender"),
    )
    app.producer_only = True
    topic = app.topic(TOPIC, key_type=str, value_type=int)
    await app.producer.maybe_start()
    yield Sender(app, topic)
    await app.producer.stop()


@pytest.fixture
async def workers(broker, tmp_path):
    async with Workers(broker.url + LASTING, tmp_path) as started:
        yield started


@pytest.fixture
async def impatient_workers(broker, tmp_path):
    async with Workers(broker.url + SHORT, tmp_path) as started:
        yield started


async def worked_off(stored, workers):
    await until(stored.is_worked_off, workers)
    return await stored.table()


async def test_killed_at_random_points_and_restarted_a_table_is_exact(js, sender, workers):
    stored, chance = Broker(js), random.Random(7)
    await sender.send(300)
    for _ in range(2):
        await workers.start("only")
        before = sum((await stored.committed()).values())

        async def has_begun(before=before):
            # The one before may have committed everything by the time it was killed.
            await sender.send(1)
            return sum((await stored.committed()).values()) > before

        await until(has_begun, workers)
        await sender.send(chance.randrange(50, 400))
        await workers.end("only")
    await workers.start("only")

    assert await worked_off(stored, workers) == sender.expected


async def test_killed_between_changelog_and_commit_an_exact_table_counts_once(js, sender, workers):
    stored = Broker(js)
    await sender.send(200)
    await workers.start("only", "die_uncommitted")
    await workers.running["only"].wait()
    assert await stored.table()
    assert set((await stored.committed()).values()) == {0}

    await workers.start("only")

    assert await worked_off(stored, workers) == sender.expected


async def test_without_the_last_applied_offset_what_was_stored_counts_twice(js, sender, workers):
    stored = Broker(js)
    await sender.send(200)
    await workers.start("only", "naive", "die_uncommitted")
    await workers.running["only"].wait()
    counted_before = sum(count for count, _ in (await stored.table()).values())

    await workers.start("only", "naive")

    table = await worked_off(stored, workers)
    assert sum(count for count, _ in table.values()) == 200 + counted_before
    assert counted_before > 0


async def test_another_worker_takes_over_from_one_that_was_killed(js, sender, impatient_workers):
    stored, workers = Broker(js), impatient_workers
    await sender.send(100)
    await workers.start("one")
    await workers.start("two")

    async def is_shared():
        return await stored.owners() == {"one": 2, "two": 2}

    await until(is_shared, workers)
    await sender.send(400)
    await workers.end("one")
    await sender.send(200)

    assert await worked_off(stored, workers) == sender.expected
    assert await stored.owners() == {"two": PARTITIONS}


async def test_a_worker_that_stops_leaves_its_partitions_at_once(js, sender, workers):
    stored = Broker(js)
    await workers.start("one")
    await workers.start("two")

    async def is_shared():
        return await stored.owners() == {"one": 2, "two": 2}

    await until(is_shared, workers)
    await sender.send(200)

    assert await workers.end("one", signal.SIGTERM) == 0

    assert "one" not in (await stored.group())["workers"]
    await sender.send(100)
    assert await worked_off(stored, workers) == sender.expected


async def test_a_paused_worker_is_shut_out_and_joins_again(js, sender, impatient_workers):
    stored, workers = Broker(js), impatient_workers
    await sender.send(400)
    await workers.start("paused")

    async def has_begun():
        return sum((await stored.committed()).values()) > 0

    await until(has_begun, workers)
    await sender.send(100)
    workers.signal("paused", signal.SIGSTOP)
    await workers.start("other")

    async def is_taken_over():
        return await stored.owners() == {"other": PARTITIONS}

    await until(is_taken_over, workers)
    await sender.send(300)
    workers.signal("paused", signal.SIGCONT)

    async def is_shared():
        return await stored.owners() == {"paused": 2, "other": 2}

    await until(is_shared, workers)
    await sender.send(100)
    assert await worked_off(stored, workers) == sender.expected


async def test_a_second_process_of_the_same_name_ends_the_first(js, sender, workers):
    stored = Broker(js)
    await sender.send(100)
    await workers.start("same", label="first")
    await until(stored.is_worked_off, workers)

    await workers.start("same", label="second")

    async def first_has_ended():
        return workers.has_ended("first")

    await until(first_has_ended, workers)
    assert "another process has started as worker 'same'" in workers.said()
    # The first took nothing from the second when it left.
    leases = (await stored.group())["leases"].values()
    assert {(lease["owner"], lease["epoch"]) for lease in leases} == {("same", 2)}
    await sender.send(100)
    assert await worked_off(stored, workers) == sender.expected
