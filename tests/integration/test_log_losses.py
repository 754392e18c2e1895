"""A log that loses its end, or all of it: noticed, said, and gone on with; nothing new is skipped."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.snapshots import NatsSnapshotStore
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.incarnations import LogFinding, LogRemembered
from spotline.bootstrap.installed import note_last, remembered_log
from spotline.contracts.build import event_of
from spotline.contracts.errors import ConfigError, LogCut
from spotline.contracts.subjects import filter_of, subjects_with
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.forecast import ForecastOverdue
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.lineage import SnapshotsOfLog
from spotline.runtime.log_settling import settled_log
from spotline.runtime.service import HostSettings, ServiceHost
from spotline.runtime.snapshots import Snapshots
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.events import envelope, overdue
from tests.fakes.jetstream import jetstream_of
from tests.fakes.log_losses import copied, delete_log, flip_bytes
from tests.fakes.toy import SPEC, ToyCalls, ToyCodec, ToyHandler

pytestmark = pytest.mark.integration

QUICK = HostSettings(idle_s=0.02)
OURS, THEIRS = "0" * 32, "1" * 32
INPUTS = filter_of(ForecastOverdue)


@asynccontextmanager
async def opened(store, *, settle=True, remembered=None):
    """A broker on a folder, and the log on it as a service opens it."""
    async with (
        EmbeddedBroker(store) as broker,
        NatsConnection(broker.url, name="test", timeout_s=PATIENCE_S) as connection,
    ):
        stream = await NatsEventStream.open(connection, publish_timeout_s=PATIENCE_S)
        if settle:
            await settled_log(stream, remembered)
        yield connection, stream


@asynccontextmanager
async def running(stream, **more):
    host = ServiceHost(ToyHandler(), stream, calls=ToyCalls(), settings=QUICK, **more)
    task = asyncio.create_task(host.run())
    try:
        waiting = asyncio.create_task(host.live())
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        yield host
    finally:
        host.stop()
        await asyncio.wait((task,))


async def handled(stream, slots):
    """Have a toy service handle the slots that are published, and give its state."""
    async with running(stream) as host:
        await stream.publish([envelope(overdue(slot), event_id=f"in-{slot}") for slot in slots])
        await settled_inputs(host, stream)
        return host.state


async def settled_inputs(host, stream):
    """Wait until the service has applied all that the log has for it, its own answers among it."""
    seq = 0
    while (last := await last_consumed(stream)) > seq:
        seq = last
        await eventually(lambda seq=seq: host.applied_seq >= seq)


async def last_consumed(stream):
    last_seq = await stream.last_seq()
    subjects = subjects_with(SPEC.consumes, SPEC.service)
    return max([entry.seq async for entry in stream.read(subjects, last_seq=last_seq)], default=0)


async def refolded(stream):
    """The state that the remaining log gives."""
    async with running(stream) as host:
        return host.state


async def marks(stream):
    last_seq = await stream.last_seq()
    subject = filter_of(IncarnationBegun)
    return [
        (entry.seq, event_of(entry)) async for entry in stream.read([subject], last_seq=last_seq)
    ]


async def cut(store):
    """A log that a service has followed, then three flipped bytes; its last entry before."""
    async with opened(store) as (_, stream):
        for first in range(0, 60, 6):
            await handled(stream, range(first, first + 6))
        before = await stream.last_seq()
    flip_bytes(store, at=0.4)
    return before


async def test_a_floor_beyond_the_end_of_the_log_is_an_error_that_says_so(tmp_path):
    before = await cut(tmp_path)

    async with opened(tmp_path, settle=False) as (_, stream):
        last = await stream.last_seq()
        assert 0 < last < before
        with pytest.raises(LogCut, match=f"ends at entry {last}, entries up to"):
            await stream.subscribe("toy", [INPUTS])


async def place_incarnation(stream):
    return (await stream.facts(["toy"])).places["toy"].incarnation


async def test_what_is_stored_after_a_cut_is_handled_from_its_first_entry_on(tmp_path):
    before = await cut(tmp_path)

    async with opened(tmp_path) as (_, stream):
        ((seq, begun),) = await marks(stream)
        assert (begun.incarnation, seq < before) == (2, True)
        assert begun.last_seq_before <= before
        assert await place_incarnation(stream) == 1
        async with running(stream) as host:
            assert await place_incarnation(stream) == 2
            decided = host.state.decided
            await stream.publish([envelope(overdue(100), event_id="in-100")])
            await eventually(lambda: host.state.decided > decided)

    async with opened(tmp_path) as (_, stream):
        assert len(await marks(stream)) == 1, "it is said once"


async def test_a_service_that_comes_when_the_log_has_grown_again_handles_all_that_is_new(tmp_path):
    before = await cut(tmp_path)

    async with opened(tmp_path) as (_, stream):
        fresh = range(1000, 1000 + before)
        await stream.publish([envelope(overdue(slot), event_id=f"in-{slot}") for slot in fresh])
        assert await stream.last_seq() > before, "its floor would be within the log again"
        async with running(stream) as host:
            await settled_inputs(host, stream)
            slots = {event_of(entry).slot async for entry in stream.read([INPUTS], last_seq=10**6)}
            assert host.state.inputs == len(slots)
            assert set(fresh) <= slots


async def test_the_state_after_a_cut_is_what_the_remaining_log_gives(tmp_path):
    await cut(tmp_path)

    async with opened(tmp_path) as (_, stream):
        state = await handled(stream, range(100, 110))
        js = await jetstream_of(stream._connection)
        await js.delete_consumer(stream.name, "toy")
        assert await refolded(stream) == state


async def test_a_snapshot_of_what_was_lost_is_set_aside(tmp_path):
    async with opened(tmp_path) as (connection, stream):
        kept = snapshots(connection, stream)
        async with running(stream, snapshots=kept) as host:
            await stream.publish(
                [envelope(overdue(slot), event_id=f"in-{slot}") for slot in range(40)]
            )
            await settled_inputs(host, stream)
        async with running(stream, snapshots=kept) as host:
            assert host.state.inputs == 40
    async with opened(tmp_path) as (connection, stream):
        await delete_log(await jetstream_of(connection))
        stream = await NatsEventStream.open(connection)
        await stream.publish(
            [envelope(overdue(slot), event_id=f"new-{slot}") for slot in range(100)]
        )
        async with running(stream, snapshots=snapshots(connection, stream)) as host:
            await settled_inputs(host, stream)
            assert host.state.inputs == 100


def snapshots(connection, stream):
    return Snapshots(store=SnapshotsOfLog(NatsSnapshotStore(connection), stream), codec=ToyCodec())


async def test_a_log_deleted_under_a_running_service_ends_it_with_what_happened(tmp_path):
    async with opened(tmp_path) as (connection, stream):
        host = ServiceHost(ToyHandler(), stream, calls=ToyCalls(), settings=QUICK)
        task = asyncio.create_task(host.run())
        await host.live()
        await stream.publish([envelope(overdue(slot), event_id=f"in-{slot}") for slot in range(9)])
        await settled_inputs(host, stream)

        await delete_log(await jetstream_of(connection))

        with pytest.raises(LogCut, match="gone"):
            await asyncio.wait_for(task, PATIENCE_S)
        again = await NatsEventStream.open(connection)
        with pytest.raises(LogCut, match="was made"):
            await stream.subscribe("toy", [INPUTS])
        async with running(again) as host:
            await again.publish([envelope(overdue(20), event_id="in-20")])
            await settled_inputs(host, again)
            assert host.state.inputs == 1


async def test_a_publisher_notices_that_a_log_begins_anew(tmp_path):
    async with opened(tmp_path) as (connection, stream):
        await stream.publish([envelope(overdue(slot), event_id=f"in-{slot}") for slot in range(9)])
        await delete_log(await jetstream_of(connection))
        await NatsEventStream.open(connection)
        with pytest.raises(LogCut, match="stored as 1, entries up to 9"):
            await stream.publish([envelope(overdue(10), event_id="in-10")])


async def test_a_wiped_log_goes_on_as_the_next_incarnation_of_what_the_store_remembers(tmp_path):
    async with opened(tmp_path, remembered=memory()) as (_, stream):
        await stream.publish([envelope(overdue(slot), event_id=f"in-{slot}") for slot in range(9)])
        created = (await info(stream)).created
    async with opened(tmp_path, settle=False) as (connection, stream):
        await delete_log(await jetstream_of(connection))
    known = memory(created=created, last_seq=9, last_slot=33)

    async with opened(tmp_path, settle=False) as (_, stream):
        conclusion = await settled_log(stream, known)
        again = await settled_log(stream, known)

        assert conclusion.finding is LogFinding.WIPED
        assert again.finding is LogFinding.SAME
        ((seq, begun),) = [found for found in await marks(stream) if found[0] == 1]
        assert (seq, begun.incarnation, begun.last_seq_before) == (1, 2, 9)
        assert (begun.last_slot_before, begun.installation_id) == (33, OURS)


async def test_an_older_copy_of_the_stream_is_told_from_the_one_that_the_store_knows(tmp_path):
    store, copy = tmp_path / "store", tmp_path / "copy"
    async with opened(store, remembered=memory()) as (_, stream):
        await handled(stream, range(10))
        created = (await info(stream)).created
    copied(store, copy)
    async with opened(store) as (_, stream):
        await handled(stream, range(10, 20))
        last_seq = await stream.last_seq()
    copied(copy, store)

    async with opened(store, settle=False) as (_, stream):
        known = memory(created=created, last_seq=last_seq, last_slot=20)
        assert (await settled_log(stream, known)).finding is LogFinding.CUT
        ((_, begun),) = await marks(stream)
        assert begun.last_seq_before == last_seq
        await handled(stream, range(30, 40))


async def test_a_log_of_another_installation_is_refused_and_not_touched(tmp_path):
    async with opened(tmp_path, remembered=memory()) as (_, stream):
        await stream.publish([envelope(overdue(1), event_id="in-1")])
        with pytest.raises(ConfigError, match=f"{OURS}, the store to {THEIRS}: give the store"):
            await settled_log(stream, LogRemembered(installation_id=THEIRS))
        assert await stream.last_seq() == 1
        assert (await info(stream)).installation_id == OURS


async def test_the_last_entry_of_a_stopped_log_is_missed_when_it_is_opened_again(tmp_path):
    store, logs = tmp_path / "store", tmp_path / "broker"
    async with opened(logs, remembered=remembered_log(store, None)) as (_, stream):
        await stream.publish([envelope(overdue(n), event_id=f"in-{n}") for n in range(5)])
        await note_last(store, stream)
    flip_bytes(logs, at=0.99)

    async with opened(logs, settle=False) as (_, stream):
        kept = await stream.last_seq()
        assert kept < 5
        found = await settled_log(stream, remembered_log(store, None))

    assert (found.finding, found.last_seq_before) == (LogFinding.CUT, 5)


async def test_others_that_stand_where_the_last_entry_was_are_told_from_it(tmp_path):
    store, logs = tmp_path / "store", tmp_path / "broker"
    async with opened(logs, remembered=remembered_log(store, None)) as (_, stream):
        await stream.publish([envelope(overdue(n), event_id=f"in-{n}") for n in range(5)])
        await note_last(store, stream)
    flip_bytes(logs, at=0.99)

    async with opened(logs, settle=False) as (_, stream):
        await stream.publish([envelope(overdue(n), event_id=f"in-{n}") for n in range(5, 15)])
        found = await settled_log(stream, remembered_log(store, None))

    assert found.finding is LogFinding.CUT
    assert found.detail.startswith("entry 5 is not the one that was there")


def memory(**more):
    return LogRemembered(installation_id=OURS, **more)


async def info(stream):
    return await stream.ask(lambda link: stream.continuity.seen(link.jetstream()))
