from pathlib import Path

import pytest
import yaml
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from spotline.runtime.telemetry import ENDPOINT_VARIABLE, HostCounters, Telemetry, telemetry_for
from tests.fakes.events import envelope, overdue

LISTED = yaml.safe_load((Path(__file__).parents[2] / "docs" / "telemetry.yaml").read_text())


@pytest.fixture
def traced():
    """Telemetry of two services, and the spans they make."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    yield Telemetry("forecaster", tracer), Telemetry("selector", tracer), exporter
    provider.shutdown()


def test_a_consumers_span_links_to_the_producers(traced):
    producing, consuming, exporter = traced
    headers = producing.headers_for("forecast.overdue")
    with consuming.handling(envelope(overdue(1)), headers, 7):
        onward = consuming.headers_for("decision")

    sent, sent_onward, handled = exporter.get_finished_spans()
    assert [link.context.span_id for link in handled.links] == [sent.context.span_id]
    assert handled.parent is None
    assert handled.kind is SpanKind.CONSUMER
    assert sent_onward.parent.span_id == handled.context.span_id
    assert onward["traceparent"].split("-")[1] == f"{handled.context.trace_id:032x}"


def test_spans_and_attributes_are_those_that_are_listed(traced):
    producing, consuming, exporter = traced
    with consuming.handling(envelope(overdue(1)), producing.headers_for("forecast.overdue"), 7):
        pass

    listed = {span["kind"]: set(span["attributes"]) for span in LISTED["spans"]}
    for span in exporter.get_finished_spans():
        assert set(span.attributes) == listed[span.kind.name.lower()]
        assert set(span.attributes) <= set(LISTED["attributes"])
        assert not any(character.isdigit() for character in span.name)


def test_without_an_endpoint_nothing_is_traced(monkeypatch):
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    telemetry = telemetry_for("selector", HostCounters())

    assert telemetry.headers_for("decision") == {}
    assert telemetry.handling(envelope(overdue(1)), {}, 1) is telemetry.handling(
        envelope(overdue(2)), {}, 2
    )
