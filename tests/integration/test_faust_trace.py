"""A Faust agent is a hop like any other: linked to who published, a producer of what it publishes."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spotline.adapters.analytics.source import event_topic
from spotline.adapters.nats.stream import NatsEventStream
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobCancelled
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.telemetry import Telemetry
from tests.eventually import eventually
from tests.fakes.events import cancelled, envelope, overdue
from tests.fakes.faust_apps import small_app

pytestmark = pytest.mark.integration


async def test_an_agents_spans_follow_the_event_through_it(
    broker: EmbeddedBroker, event_stream: NatsEventStream
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    source, agent, sink = (Telemetry(name, tracer) for name in ("source", "agent", "sink"))
    app = small_app(broker.url, "traced", partitions=1)
    handled: list[int] = []
    sunk: list[str] = []

    @app.agent(event_topic(app, [ForecastOverdue], name="overdue"))
    async def follow(stream):
        async for entry in stream:
            (sourced,) = entry.events
            with agent.handling(sourced.envelope(), sourced.headers, sourced.seq):
                onward = agent.traced(envelope(cancelled(sourced.event.slot)))
            await event_stream.publish([onward])
            handled.append(sourced.event.slot)

    @app.agent(event_topic(app, [JobCancelled], name="cancelled"))
    async def end(stream):
        async for entry in stream:
            (sourced,) = entry.events
            with sink.handling(sourced.envelope(), sourced.headers, sourced.seq):
                sunk.append(sourced.event.job_id)

    async with asyncio.timeout(60):
        await app.start()
        try:
            await event_stream.publish([source.traced(envelope(overdue(n))) for n in (1, 2)])
            await eventually(lambda: len(sunk) == 2)
        finally:
            await app.stop()

    assert handled == [1, 2]
    spans = exporter.get_finished_spans()
    by_id = {span.context.span_id: span for span in spans}
    consumed = [span for span in spans if span.name.startswith("handle ")]
    assert len(consumed) == 4
    for span in consumed:
        (link,) = span.links
        producer = by_id[link.context.span_id]
        assert producer.name == span.name.replace("handle", "publish")
        assert (
            producer.attributes["messaging.message.id"] == span.attributes["messaging.message.id"]
        )
    onward = [span for span in spans if span.name == "publish job.cancelled"]
    assert [by_id[span.parent.span_id].name for span in onward] == ["handle forecast.overdue"] * 2
    provider.shutdown()
