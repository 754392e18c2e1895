"""What a worker does with its tables when leases, claims and changes fail it."""

import asyncio
import json

import pytest
from faust.types import TP

from spotline.adapters.faust import leases
from spotline.adapters.faust.feeder import Feeder
from spotline.adapters.faust.hosting import AppCrashed, running
from spotline.adapters.faust.names import stream_name
from spotline.adapters.faust.offsets import Fenced
from tests.eventually import eventually
from tests.fakes.faust_apps import ready, small_app

pytestmark = pytest.mark.integration

APP = "app"


class Counting:
    """An app that counts keys exactly; `gate` holds it amid an event of value 0."""

    def __init__(self, url, *, large=-1, partitions=1, **settings):
        self.app = small_app(url, APP, partitions=partitions, **settings)
        self.topic = self.app.topic("words", key_type=str, value_type=int)
        self.table = self.app.Table("counts", default=lambda: (0, 0, ""))
        self.seen = []
        self.amid = asyncio.Event()
        self.gate = asyncio.Event()

        @self.app.agent(self.topic)
        async def count(stream):
            async for event in stream.events():
                number, last, _ = self.table[event.key]
                if event.value == 0:
                    self.amid.set()
                    await self.gate.wait()
                text = "x" * 9_000_000 if event.value == large else ""
                if event.message.offset > last:
                    self.table[event.key] = (number + 1, event.message.offset, text)
                self.seen.append(event.value)

    async def send(self, *keys, value=1):
        for key in keys:
            await self.topic.send(key=key, value=value)

    def counts(self):
        return {key: value[0] for key, value in self.table.items()}

    async def take_again(self):
        """Give the partition away and take it back, in a new epoch, as others would see it."""
        keeper = self.app.consumer._keeper
        await keeper._write(
            lambda group: leases.taken(leases.released(group, keeper.name, [0]), keeper.name, [0])
        )
        keeper._tell()


KEYS = [f"k{number}" for number in range(20)]


async def committed(js):
    kv = await js.key_value(f"FAUST_{APP}")
    return json.loads((await kv.get("offset.words.0")).value)["offset"]


async def test_a_claim_that_fails_once_leaves_a_table_that_is_recovered_whole(broker, js):
    one = Counting(broker.url)
    async with running(one.app):
        await ready(one.app)
        await one.send(*KEYS)
        await eventually(lambda: len(one.seen) == len(KEYS))
        offsets = one.app.consumer._offsets
        claim, tries = offsets.claim, []

        async def claim_at_second_try(epochs):
            tries.append(epochs)
            if len(tries) == 1:
                raise Fenced("once")
            await claim(epochs)

        offsets.claim = claim_at_second_try
        await one.take_again()
        await eventually(lambda: len(tries) >= 2)
        await eventually(lambda: one.app.tables.actives_ready and not one.app.rebalancing)
        await one.send("k0")
        await eventually(lambda: one.counts().get("k0") == 2)

        assert one.counts() == {key: 2 if key == "k0" else 1 for key in KEYS}


async def test_a_rebalance_amid_recovery_leaves_a_table_that_is_recovered_whole(
    broker, js, monkeypatch
):
    before = Counting(broker.url, partitions=2)
    async with running(before.app):
        await ready(before.app)
        await before.send(*KEYS)
        await eventually(lambda: len(before.seen) == len(KEYS))
    one = Counting(broker.url, partitions=2)
    may_recover, hand_over = asyncio.Event(), Feeder._hand_over

    async def held_back(feeder, tp, reader):
        if tp.topic == one.table.changelog_topic_name and not may_recover.is_set():
            return 0
        return await hand_over(feeder, tp, reader)

    async def give_away():
        await eventually(lambda: one.app.in_recovery)
        consumer = one.app.consumer
        keeper = consumer._keeper
        await keeper._write(lambda group: given_to_another(group, keeper.name))
        keeper._tell()
        await eventually(
            lambda: [tp for tp in consumer.assignment() if tp.topic == "words"] == [STAYS]
        )
        may_recover.set()

    monkeypatch.setattr(Feeder, "_hand_over", held_back)
    # It has started when its tables are recovered.
    giving = asyncio.create_task(give_away())
    async with running(one.app):
        await giving
        await ready(one.app)

        stays = [
            key for key in KEYS if one.app.producer.key_partition("words", key.encode()) == STAYS
        ]
        assert 0 < len(stays) < len(KEYS)
        assert one.counts() == dict.fromkeys(stays, 1)


STAYS = TP("words", 0)


def given_to_another(group, name):
    """Partition 1 is somebody else's; partition 0 stays, in the same epoch."""
    joined = leases.with_beat(group, "other", nonce="n")
    return leases.taken(leases.released(joined, name, [1]), "other", [1])


async def test_refused_changes_are_made_again_before_anything_is_committed(broker, js):
    one = Counting(broker.url)
    async with running(one.app):
        await ready(one.app)
        # Only an administrator can do that: the fence is gone, and every write refused.
        await js.purge_stream(stream_name(f"{APP}-counts-changelog"))
        await one.send(*KEYS)
        await eventually(lambda: one.app.consumer._generation >= 2)
        await eventually(lambda: len(one.counts()) == len(KEYS))

    assert await committed(js) == len(KEYS) + 1
    after = Counting(broker.url)
    async with running(after.app):
        await ready(after.app)
        assert after.counts() == dict.fromkeys(KEYS, 1)


async def test_what_was_done_before_a_partition_was_lost_is_not_committed_when_it_is_back(
    broker, js
):
    one = Counting(broker.url, broker_commit_interval=3600.0)
    async with running(one.app):
        await ready(one.app)
        consumer = one.app.consumer
        await one.send(*KEYS)
        await eventually(lambda: len(one.seen) == len(KEYS) and not consumer._unacked_messages)
        commit, assigned = consumer.commit, consumer.on_partitions_assigned

        async def leave_it_to_the_one_under_way(**_):
            return False

        async def commit_at_once(*partitions):
            consumer.commit = commit
            await commit()
            await assigned(*partitions)

        consumer.commit = leave_it_to_the_one_under_way
        consumer.on_partitions_assigned = commit_at_once
        consumer._on_refused(TP(f"{APP}-counts-changelog", 0))
        await eventually(lambda: len(one.seen) == 2 * len(KEYS))

        assert one.counts() == dict.fromkeys(KEYS, 1)


async def test_a_commit_that_was_under_way_when_a_partition_went_stores_nothing(broker, js):
    one = Counting(broker.url, broker_commit_interval=3600.0)
    async with running(one.app):
        await ready(one.app)
        consumer = one.app.consumer
        await one.send(*KEYS)
        await eventually(lambda: len(one.seen) == len(KEYS) and not consumer._unacked_messages)
        offsets = consumer._filter_committable_offsets([TP("words", 0)])

        await one.take_again()
        await eventually(lambda: len(one.seen) == 2 * len(KEYS))
        await consumer._commit(offsets)

        assert offsets == {TP("words", 0): len(KEYS) + 1}
        assert await committed(js) is None


async def test_a_partition_is_not_claimed_again_before_an_event_of_it_has_ended(broker, js):
    one = Counting(broker.url)
    async with running(one.app):
        await ready(one.app)
        await one.send("k", "k")
        await one.send("k", value=0)
        await one.amid.wait()
        consumer = one.app.consumer
        claimed = []
        claim = consumer._offsets.claim

        async def claiming(epochs):
            claimed.append(list(one.seen))
            await claim(epochs)

        consumer._offsets.claim = claiming

        await one.take_again()
        await eventually(lambda: one.app.rebalancing)
        await js.account_info()
        assert claimed == []
        one.gate.set()
        await eventually(lambda: claimed)
        await one.send("k")
        await eventually(lambda: one.counts().get("k") == 4)

        assert claimed[0] == [1, 1, 0]


async def test_nothing_behind_a_change_too_large_is_committed(broker, js):
    one = Counting(broker.url, large=7, broker_commit_interval=0.5)

    async def run():
        async with running(one.app):
            await ready(one.app)
            await one.send(*KEYS[:10])
            await one.send("large", value=7)
            await one.send(*KEYS[10:])
            await asyncio.Event().wait()

    with pytest.raises(AppCrashed, match="exceed the server's max_payload"):
        await run()
    at = await committed(js) or 1
    after = Counting(broker.url)
    async with running(after.app):
        await ready(after.app)
        await eventually(lambda: set(after.counts()) == {*KEYS, "large"})

    assert at <= 11
    assert set(after.counts().values()) == {1}
