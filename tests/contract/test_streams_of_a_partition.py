"""The log, the decisions beside it and the statistics: what goes where, and stores of before."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from nats.errors import NoRespondersError
from nats.js.api import StorageType, StreamConfig

from spotline.adapters.nats.configured import StreamLimits
from spotline.adapters.nats.stream import NatsEventStream
from spotline.contracts.batch import packed
from spotline.contracts.build import event_of
from spotline.contracts.errors import ConfigError
from spotline.contracts.subjects import StreamPart, filter_of, stream_name
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.statistics import MarketStatisticsIssued
from spotline.runtime.fan_out import FanOut
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.events import envelope, overdue
from tests.samples.events import SAMPLES

pytestmark = pytest.mark.integration


def sample(event_type):
    return next(event for event in SAMPLES if type(event) is event_type)


DECISION, STATISTICS = sample(AllocationDecided), sample(MarketStatisticsIssued)


async def open_all(connection):
    log = await NatsEventStream.open(connection)
    beside = await NatsEventStream.open(connection, part=StreamPart.DECISIONS)
    statistics = await NatsEventStream.open(connection, part=StreamPart.STATISTICS)
    return log, beside, statistics


async def test_each_event_goes_to_its_own_stream(nats_connection):
    log, beside, statistics = await open_all(nats_connection)

    await log.publish([envelope(overdue(1))])
    await beside.publish([envelope(DECISION)])
    await statistics.publish([envelope(STATISTICS)])

    for stream in (log, beside, statistics):
        assert await stream.last_seq() == 1


async def test_heartbeats_are_taken_by_no_stream(nats_connection, js):
    streams = await open_all(nats_connection)

    with pytest.raises(NoRespondersError):
        await js._nc.request("spotline.v1.heartbeat.worker-1", b"alive", timeout=PATIENCE_S)

    assert [await stream.last_seq() for stream in streams] == [0, 0, 0]


@pytest.fixture
async def store_of_before(js):
    """What 0.2.0 left: one stream with everything on it."""
    await js.add_stream(
        StreamConfig(
            name="SPOTLINE_0",
            subjects=["spotline.v1.>"],
            storage=StorageType.FILE,
            deny_delete=True,
            deny_purge=True,
            allow_direct=True,
            duplicate_window=120.0,
        )
    )
    for event in (overdue(1), DECISION, STATISTICS):
        one = envelope(event)
        await js.publish(one.subject, one.payload, headers=one.headers())
    return js


async def test_a_store_of_before_is_brought_up_to_date_and_keeps_what_it_holds(
    nats_connection, store_of_before
):
    log, beside, _ = await open_all(nats_connection)

    entries = [entry async for entry in log.read((), last_seq=3)]
    assert [event_of(entry) for entry in entries] == [overdue(1), DECISION, STATISTICS]
    by_filter = [entry async for entry in log.read([filter_of(AllocationDecided)], last_seq=3)]
    assert [entry.seq for entry in by_filter] == [2]
    again = replace(envelope(DECISION), event_id="another")
    await beside.publish([again])
    assert await log.last_seq() == 3
    assert await beside.last_seq() == 1
    # Opened once more, by another process, it is as it was.
    assert await (await NatsEventStream.open(nats_connection)).last_seq() == 3


async def test_limits_that_somebody_set_stay_unless_others_are_asked_for(
    nats_connection, event_stream, js
):
    config = (await js.stream_info("SPOTLINE_0")).config
    await js.update_stream(replace(config, max_bytes=1 << 20))
    await NatsEventStream.open(nats_connection)
    assert (await js.stream_info("SPOTLINE_0")).config.max_bytes == 1 << 20

    name = stream_name(0, StreamPart.DECISIONS)
    for days in (1, 2):
        limits = StreamLimits(max_age_s=86_400.0 * days, max_bytes=1 << 24)
        await NatsEventStream.open(nats_connection, part=StreamPart.DECISIONS, limits=limits)
        kept = (await js.stream_info(name)).config
        assert (kept.max_age, kept.max_bytes) == (86_400.0 * days, 1 << 24)


async def test_a_stream_of_our_name_that_is_kept_in_memory_is_refused(nats_connection, js):
    await js.add_stream(name="SPOTLINE_0", subjects=["other"], storage=StorageType.MEMORY)

    with pytest.raises(ConfigError, match="storage must be file, was memory"):
        await NatsEventStream.open(nats_connection)


async def test_the_seq_of_a_time_is_that_of_the_first_entry_since(nats_connection, event_stream):
    assert await event_stream.first_seq_since(0) == 1
    await event_stream.publish([envelope(overdue(1)), envelope(overdue(2))])
    (_, last) = [entry async for entry in event_stream.read((), last_seq=2)]

    assert await event_stream.first_seq_since(0) == 1
    assert await event_stream.first_seq_since(last.stored_ns - 10**10) == 1
    assert await event_stream.first_seq_since(last.stored_ns + 10**10) == 3


async def test_decisions_are_fanned_out_for_plain_clients(nats_connection, js):
    log, beside, _ = await open_all(nats_connection)
    reader = await js.subscribe("spotline.v1.decision.>", stream=beside.name)
    publishing = asyncio.create_task(FanOut(log, beside).run())
    try:
        await log.publish([one.envelope for one in packed([envelope(DECISION)])])
        message = await reader.next_msg(timeout=PATIENCE_S)
        await eventually(lambda: not publishing.done())
    finally:
        publishing.cancel()

    assert message.subject == envelope(DECISION).subject
    assert message.headers["ce-id"] == envelope(DECISION).event_id
    assert message.data == envelope(DECISION).payload


async def test_a_stream_that_is_just_being_removed_is_no_wrong_configuration(nats_connection, js):
    for _ in range(20):
        stream = await NatsEventStream.open(nats_connection)
        # The server works on both at once: the folder goes while it is made.
        await asyncio.gather(js.delete_stream(stream.name), NatsEventStream.open(nats_connection))
