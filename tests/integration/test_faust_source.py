"""Spotline's own event stream as a Faust topic."""

import pytest

from spotline.adapters.analytics.source import event_topic
from spotline.adapters.faust.hosting import running
from spotline.adapters.nats.stream import NatsEventStream
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobCancelled
from tests.eventually import eventually
from tests.fakes.events import cancelled, overdue, published
from tests.fakes.faust_apps import ready, small_app

pytestmark = pytest.mark.integration


def reading(url, types=(ForecastOverdue,), *, partitions=1):
    app = small_app(url, partitions=partitions)
    events = event_topic(app, types, name="watched", partitions=partitions)
    got = []

    @app.agent(events)
    async def watch(stream):
        async for entry in stream:
            got.extend(entry.events)

    return app, events, got


async def test_events_come_with_their_place_time_and_headers(broker, event_stream):
    stored = await event_stream.publish(published([overdue(1), cancelled(2), overdue(3)]))
    app, events, got = reading(broker.url)

    async with running(app):
        await eventually(lambda: len(got) == 2)

    entries = [one async for one in event_stream.read([], last_seq=stored[-1])]
    assert [one.event for one in got] == [overdue(1), overdue(3)]
    assert [one.seq for one in got] == [stored[0], stored[2]]
    for sourced, entry in zip(got, (entries[0], entries[2]), strict=True):
        assert sourced.stored_ns == entry.stored_ns
        assert sourced.subject == entry.subject
        assert sourced.envelope() == entry.envelope()
        assert sourced.event_id == entry.envelope().event_id
        assert sourced.partition == 0
    assert (events.counters.read, events.counters.rejected) == (2, 0)


async def test_trace_headers_reach_the_agent(broker, js, event_stream):
    [one] = published([overdue(1)])
    await js.publish(
        one.subject, one.payload, headers={**one.headers(), "traceparent": "00-a-b-01"}
    )
    app, _, got = reading(broker.url)

    async with running(app):
        await eventually(lambda: got)

    assert got[0].headers["traceparent"] == "00-a-b-01"


async def test_what_breaks_the_contract_is_counted_and_passed_over(broker, js, event_stream):
    await event_stream.publish(published([overdue(1)]))
    await js.publish("spotline.v1.forecast.overdue", b"rubbish", headers={"ce-id": "1"})
    [whole] = published([overdue(2)])
    await js.publish(
        whole.subject, b"\xff\xff", headers={**whole.headers(), "Nats-Msg-Id": "another"}
    )
    await event_stream.publish(published([overdue(3)]))
    app, events, got = reading(broker.url)

    async with running(app):
        await eventually(lambda: len(got) == 2)

    assert [one.event for one in got] == [overdue(1), overdue(3)]
    assert events.counters.rejected == 2
    again, events, got = reading(broker.url)
    async with running(again):
        await ready(again)
        await event_stream.publish(published([overdue(4)]))
        await eventually(lambda: got)
    assert [one.event for one in got] == [overdue(4)]
    assert events.counters.rejected == 0


async def test_each_partition_is_a_stream_of_its_own(broker, js, event_stream):
    await js.delete_stream(event_stream.name)
    for partition in (0, 1):
        await js.add_stream(name=f"SPOTLINE_{partition}", subjects=[f"p{partition}.>"])
    app, _, got = reading(broker.url, partitions=2)

    async with running(app):
        await ready(app)
        assert app.consumer.topic_partitions("watched") == 2
    assert got == []


async def test_several_types_are_read_in_the_order_of_the_log(broker, event_stream):
    events = [overdue(1), cancelled(1), overdue(2), cancelled(2)]
    await event_stream.publish(published(events))
    app, _, got = reading(broker.url, (JobCancelled, ForecastOverdue))

    async with running(app):
        await eventually(lambda: len(got) == 4)

    assert [one.event for one in got] == events


async def test_the_log_is_only_read(broker, event_stream):
    app, events, _ = reading(broker.url)
    assert isinstance(event_stream, NatsEventStream)
    async with running(app):
        await ready(app)
        with pytest.raises(Exception, match="read only"):
            await events.send(value=b"1")
    assert await event_stream.last_seq() == 0
