"""Traces and counters of a service host. Attributes and names: docs/telemetry.yaml.

Nothing is exported, and next to nothing spent, unless `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from opentelemetry import propagate, trace
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import Link, SpanKind, Tracer

from spotline.contracts.envelope import Envelope

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE_HEADERS = ("traceparent", "tracestate")

_SCOPE = "spotline.runtime"
_NOTHING: AbstractContextManager[None] = nullcontext()
_NO_HEADERS: Mapping[str, str] = {}


@dataclass(slots=True, kw_only=True)
class HostCounters:
    """What one host has done since it started."""

    handled: int = 0
    dead_lettered: int = 0
    published: int = 0


class Telemetry:
    """Spans around handling and publishing; a no-op without a tracer."""

    def __init__(self, service: str, tracer: Tracer | None = None) -> None:
        self._service = service
        self._tracer = tracer

    def handling(
        self, envelope: Envelope, headers: Mapping[str, str], seq: int
    ) -> AbstractContextManager[None]:
        """Span over the handling of one message, linked to the span that published it."""
        if self._tracer is None:
            return _NOTHING
        return self._handling(self._tracer, envelope, headers, seq)

    @contextmanager
    def _handling(
        self, tracer: Tracer, envelope: Envelope, headers: Mapping[str, str], seq: int
    ) -> Iterator[None]:
        producer = trace.get_current_span(propagate.extract(headers)).get_span_context()
        with tracer.start_as_current_span(
            f"handle {envelope.kind}",
            kind=SpanKind.CONSUMER,
            links=[Link(producer)] if producer.is_valid else None,
            attributes={
                "messaging.system": "nats",
                "messaging.operation.type": "process",
                "messaging.destination.name": envelope.subject,
                "messaging.message.id": envelope.event_id,
                "spotline.service": self._service,
                "spotline.kind": envelope.kind,
                "spotline.seq": seq,
                "spotline.correlation_id": envelope.correlation_id,
            },
        ):
            yield

    def headers_for(self, kind: str) -> Mapping[str, str]:
        """Trace headers of a message about to be published, whose span this makes."""
        if self._tracer is None:
            return _NO_HEADERS
        headers: dict[str, str] = {}
        with self._tracer.start_as_current_span(
            f"publish {kind}",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "nats",
                "messaging.operation.type": "send",
                "spotline.service": self._service,
                "spotline.kind": kind,
            },
        ):
            propagate.inject(headers)
        return {name: value for name, value in headers.items() if name in TRACE_HEADERS}


def telemetry_for(service: str, counters: HostCounters) -> Telemetry:
    """Telemetry of one host: exporting if an endpoint is configured, else a no-op."""
    if not os.environ.get(ENDPOINT_VARIABLE):
        return Telemetry(service)
    tracer, meter = _exporting()
    _observe(meter, service, counters)
    return Telemetry(service, tracer)


def _exporting() -> tuple[Tracer, Meter]:
    """Install the OTLP exporters once per process; imported only here, for they are slow to."""
    from opentelemetry import metrics
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        resource = Resource.create({"service.namespace": "spotline"})
        tracer_provider = TracerProvider(resource=resource)
        tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracer_provider)
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        metrics.set_meter_provider(MeterProvider(resource=resource, metric_readers=[reader]))
    return trace.get_tracer(_SCOPE), metrics.get_meter(_SCOPE)


def _observe(meter: Meter, service: str, counters: HostCounters) -> None:
    def observe(name: str) -> None:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            yield Observation(getattr(counters, name), {"spotline.service": service})

        meter.create_observable_counter(f"spotline.messages.{name}", callbacks=[read])

    for name in ("handled", "dead_lettered", "published"):
        observe(name)
