"""What every `EventStream` promises: the one that Spotline runs on, and the one in memory."""

import asyncio
import itertools
import os
import signal
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.bench.faults.stream import MemoryBroker, MemoryStream
from spotline.contracts.build import event_of
from spotline.contracts.errors import ConfigError, InvariantViolation, ProviderUnavailable
from spotline.contracts.subjects import filter_of
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobCancelled
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S
from tests.fakes.events import cancelled, envelope, overdue, published
from tests.fakes.processes import free_port

pytestmark = pytest.mark.integration

OVERDUE = filter_of(ForecastOverdue)
CANCELLED = filter_of(JobCancelled)


@pytest.fixture(params=["nats", "memory"])
def any_stream(request):
    """An empty log, of each kind."""
    if request.param == "nats":
        return request.getfixturevalue("event_stream")
    return MemoryStream(MemoryBroker(now_ns=time.time_ns))


async def take(subscription, count, *, ack=False):
    """The next `count` entries."""
    entries = []
    async with asyncio.timeout(PATIENCE_S):
        while len(entries) < count:
            batch = await subscription.fetch(limit=count - len(entries), timeout_s=0.5)
            entries += batch
            if ack and batch:
                await subscription.ack(batch[-1])
    return entries


async def seqs_of(entries):
    return [entry.seq async for entry in entries]


# --- publish ----------------------------------------------------------------------------------


async def test_stores_in_order_and_returns_what_it_was_given(any_stream):
    envelopes = published(overdue(slot) for slot in range(1500))

    seqs = await any_stream.publish(envelopes)

    assert seqs == list(range(1, 1501))
    assert await any_stream.last_seq() == 1500
    stored = [entry async for entry in any_stream.read([], last_seq=1500)]
    assert [entry.envelope() for entry in stored] == envelopes
    assert event_of(stored[3]) == overdue(3)
    assert all(one.stored_ns <= two.stored_ns for one, two in itertools.pairwise(stored))


async def test_publishing_nothing_stores_nothing(any_stream):
    assert await any_stream.publish([]) == []
    assert await any_stream.last_seq() == 0


async def test_a_repeated_id_gives_the_first_seq_again(any_stream):
    await any_stream.publish(published([overdue(1), overdue(2)]))

    again = await any_stream.publish(published([overdue(2), overdue(3), overdue(1)]))

    assert again == [2, 3, 1]
    assert await any_stream.last_seq() == 3


async def test_trace_headers_travel_with_the_message(any_stream):
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

    await any_stream.publish([replace(envelope(overdue(1)), trace_headers=trace)])

    (entry,) = [entry async for entry in any_stream.read([], last_seq=1)]
    assert entry.headers["traceparent"] == trace["traceparent"]


async def test_concurrent_publishers_keep_each_ones_order(any_stream):
    batches = [[overdue(100 * batch + place) for place in range(40)] for batch in range(5)]

    seqs = await asyncio.gather(*(any_stream.publish(published(batch)) for batch in batches))

    assert all(list(one) == sorted(one) for one in seqs)
    assert sorted(itertools.chain(*seqs)) == list(range(1, 201))


async def test_a_message_beyond_the_servers_limit_is_our_bug(any_stream):
    huge = replace(envelope(overdue(1)), payload=bytes(9 * 1024 * 1024))

    with pytest.raises(InvariantViolation, match="max_payload of 8388608"):
        await any_stream.publish([huge])


async def test_opening_twice_is_opening_once(nats_connection, event_stream):
    await event_stream.publish(published([overdue(1)]))

    assert await (await NatsEventStream.open(nats_connection)).last_seq() == 1


async def test_a_foreign_stream_on_our_subjects_is_refused(nats_connection, js):
    await js.add_stream(name="OTHER", subjects=["spotline.v1.market.>"])

    with pytest.raises(ConfigError, match=r"SPOTLINE_0 cannot be used: subjects overlap"):
        await NatsEventStream.open(nats_connection)


# --- read -------------------------------------------------------------------------------------


async def test_reads_a_range_of_some_subjects(any_stream):
    mixed = [overdue(n) if n % 3 else cancelled(n) for n in range(1, 1201)]
    await any_stream.publish(published(mixed))

    assert await seqs_of(any_stream.read([CANCELLED], first_seq=3, last_seq=10)) == [3, 6, 9]
    assert await seqs_of(any_stream.read([CANCELLED], last_seq=1200)) == list(range(3, 1201, 3))
    assert await seqs_of(any_stream.read([CANCELLED, OVERDUE], last_seq=1200)) == list(
        range(1, 1201)
    )


async def test_reading_what_is_not_there_ends_at_once(any_stream):
    await any_stream.publish(published([overdue(1)]))

    assert await seqs_of(any_stream.read([CANCELLED], last_seq=1)) == []
    assert await seqs_of(any_stream.read([], first_seq=2, last_seq=1)) == []
    assert await seqs_of(any_stream.read([], first_seq=2, last_seq=99)) == []


# --- subscribe --------------------------------------------------------------------------------


async def test_follows_what_is_stored_and_what_is_yet_to_come(any_stream):
    await any_stream.publish(published([overdue(1), cancelled(2), overdue(3)]))
    subscription = await any_stream.subscribe("reader", [OVERDUE, CANCELLED])

    early = await take(subscription, 3)
    waiting = asyncio.create_task(take(subscription, 1))
    await any_stream.publish(published([overdue(4)]))

    assert [entry.seq for entry in early + await waiting] == [1, 2, 3, 4]


async def test_says_how_many_entries_wait(any_stream):
    await any_stream.publish(published(overdue(slot) for slot in range(700)))
    await any_stream.publish(published(cancelled(number) for number in range(5)))
    subscription = await any_stream.subscribe("reader", [OVERDUE])

    before = subscription.waiting
    await take(subscription, 100)
    between = subscription.waiting
    await take(subscription, 600)
    after = subscription.waiting
    await subscription.close()

    assert (before, between, after) == (0, 600, 0)


async def test_filters_by_several_subjects(any_stream):
    await any_stream.publish(published([overdue(1), cancelled(2), overdue(3)]))
    subscription = await any_stream.subscribe("reader", [CANCELLED, "spotline.v1.decision.>"])

    assert [entry.seq for entry in await take(subscription, 1)] == [2]
    assert not await subscription.fetch(limit=5, timeout_s=0.05)


async def test_goes_on_behind_what_was_acknowledged(any_stream):
    await any_stream.publish(published(overdue(n) for n in range(1, 9)))
    first = await any_stream.subscribe("reader", [OVERDUE])
    entries = await take(first, 6)
    await first.ack(entries[3])
    await first.close()

    second = await any_stream.subscribe("reader", [OVERDUE])

    assert first.floor_seq == 0
    assert second.floor_seq == 4
    assert [entry.seq for entry in await take(second, 4)] == [5, 6, 7, 8]


async def floor_of(js, stream):
    """What the server holds for acknowledged at the place `reader`."""
    return (await js.consumer_info(stream, "reader")).ack_floor.stream_seq


async def test_what_a_killed_predecessor_left_pending_comes_at_once(broker, event_stream, js):
    await event_stream.publish(published(overdue(n) for n in range(1, 5)))
    async with NatsConnection(broker.url) as other:
        killed = await (await NatsEventStream.open(other)).subscribe("reader", [OVERDUE])
        await killed.ack((await take(killed, 3))[0])
        async with asyncio.timeout(PATIENCE_S):
            # The server works off acknowledgements in its own time, and nothing tells when.
            while await floor_of(js, event_stream.name) < 1:  # noqa: ASYNC110 - the broker is asked
                await asyncio.sleep(0.01)

    subscription = await event_stream.subscribe("reader", [OVERDUE])

    assert subscription.floor_seq == 1
    assert [entry.seq for entry in await take(subscription, 3)] == [2, 3, 4]


async def test_a_lost_place_starts_from_the_given_seq(any_stream):
    await any_stream.publish(published(overdue(n) for n in range(1, 5)))

    subscription = await any_stream.subscribe("reader", [OVERDUE], first_seq=3)

    assert subscription.floor_seq == 2
    assert [entry.seq for entry in await take(subscription, 2)] == [3, 4]


async def test_a_consumer_deleted_under_us_is_made_anew(event_stream, js):
    await event_stream.publish(published(overdue(n) for n in range(1, 4)))
    subscription = await event_stream.subscribe("reader", [OVERDUE])
    await subscription.ack((await take(subscription, 2))[0])

    await js.delete_consumer(event_stream.name, "reader")

    assert [entry.seq for entry in await take(subscription, 3)][-2:] == [2, 3]


async def test_only_the_latest_to_open_a_place_keeps_it(any_stream):
    await any_stream.publish(published([overdue(1)]))
    older = await any_stream.subscribe("reader", [OVERDUE])
    await take(older, 1)

    newer = await any_stream.subscribe("reader", [OVERDUE])

    with pytest.raises(InvariantViolation, match="another process follows SPOTLINE_0 as reader"):
        await take(older, 2)
    assert [entry.seq for entry in await take(newer, 1)] == [1]


# --- a broker that goes and comes back --------------------------------------------------------


class RestartingNats:
    """A broker on one store and port that can be killed and started again."""

    def __init__(self, store):
        self.store = store
        self.port = free_port()
        self.broker = None

    async def start(self):
        self.broker = await EmbeddedBroker(self.store, port=self.port).__aenter__()
        return self.broker.url

    async def stop(self, *, kill=False):
        if kill:
            os.kill(self.broker.server_pid, signal.SIGKILL)
        await self.broker.__aexit__(None, None, None)

    @asynccontextmanager
    async def stream(self, **options):
        """The log, on a connection of its own."""
        async with NatsConnection(self.broker.url) as connection:
            yield await NatsEventStream.open(connection, **options)


class RestartingMemory:
    """The same of a broker in memory: stopped or killed, it loses nothing."""

    def __init__(self):
        self.broker = MemoryBroker(now_ns=time.time_ns)

    async def start(self):
        self.broker.start()

    async def stop(self, *, kill=False):
        self.broker.stop()

    @asynccontextmanager
    async def stream(self, **options):
        yield MemoryStream(self.broker, **options)


@pytest.fixture(params=["nats", "memory"])
async def restarting(request, tmp_path):
    broker = RestartingNats(tmp_path) if request.param == "nats" else RestartingMemory()
    yield broker
    await broker.stop()


@pytest.mark.timeout(240)
async def test_order_and_count_survive_kills_in_the_middle_of_publishing(restarting):
    await restarting.start()
    events = [overdue(n) for n in range(3000)]
    async with restarting.stream(publish_timeout_s=200) as stream:
        subscription = await stream.subscribe("reader", [OVERDUE])
        publishing = asyncio.create_task(stream.publish(published(events)))
        for target in (300, 1200):
            async with asyncio.timeout(PATIENCE_S):
                while await stream.last_seq() < target:  # noqa: ASYNC110 - the broker is asked
                    await asyncio.sleep(0)
            await restarting.stop(kill=True)
            assert not publishing.done()
            await restarting.start()

        seqs = await publishing

        assert seqs == list(range(1, 3001))
        entries = await take(subscription, 3000, ack=True)
        assert [event_of(entry) for entry in entries] == events


async def test_a_subscription_survives_a_restart_and_goes_on_behind_its_ack(restarting):
    await restarting.start()
    async with restarting.stream() as stream:
        subscription = await stream.subscribe("reader", [OVERDUE])
        await stream.publish(published(overdue(n) for n in range(1, 6)))
        await subscription.ack((await take(subscription, 5))[1])

        await restarting.stop()
        assert not await subscription.fetch(limit=10, timeout_s=0.05)
        await restarting.start()

        assert [entry.seq for entry in await take(subscription, 3)] == [3, 4, 5]


async def test_reading_survives_a_restart(restarting):
    await restarting.start()
    async with restarting.stream() as stream:
        await stream.publish(published(overdue(n) for n in range(1, 1501)))
        seqs = []
        async for entry in stream.read([OVERDUE], last_seq=1500):
            seqs.append(entry.seq)
            if entry.seq == 200:
                await restarting.stop(kill=True)
                await restarting.start()

        assert seqs == list(range(1, 1501))


async def test_a_broker_that_stays_away_is_reported(restarting):
    await restarting.start()
    async with restarting.stream() as stream, restarting.stream(publish_timeout_s=1.5) as hasty:
        await restarting.stop()

        with pytest.raises(ProviderUnavailable, match=r"NATS .* within|could not be stored"):
            await hasty.publish(published([overdue(1)]))

        await restarting.start()
        assert await stream.publish(published([overdue(2)])) == [1]
