"""An OTLP collector on loopback that keeps what it is sent: spans, and points of metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

_KINDS = {
    trace_pb2.Span.SPAN_KIND_INTERNAL: "internal",
    trace_pb2.Span.SPAN_KIND_SERVER: "server",
    trace_pb2.Span.SPAN_KIND_CLIENT: "client",
    trace_pb2.Span.SPAN_KIND_PRODUCER: "producer",
    trace_pb2.Span.SPAN_KIND_CONSUMER: "consumer",
}

SpanKey = tuple[bytes, bytes]
"""Trace and span id."""


@dataclass(frozen=True, kw_only=True)
class CollectedSpan:
    """One span as it arrived; `resource` is the name of the service it came from."""

    resource: str
    name: str
    kind: str
    key: SpanKey
    parent: SpanKey | None
    links: tuple[SpanKey, ...]
    attributes: dict[str, object]
    failed: bool

    @property
    def service(self) -> str:
        return str(self.attributes["spotline.service"])


@dataclass
class Collector(
    trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer
):
    """Both OTLP services; names of metrics go with the attributes of each of their points."""

    spans: list[CollectedSpan] = field(default_factory=list)
    metrics: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def Export(self, request, context):
        if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
            with self.lock:
                self.spans.extend(_spans(request))
            return trace_service_pb2.ExportTraceServiceResponse()
        with self.lock:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        data = getattr(metric, metric.WhichOneof("data"))
                        self.metrics.setdefault(metric.name, []).extend(
                            _attributes(point.attributes) for point in data.data_points
                        )
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def collecting() -> Iterator[tuple[str, Collector]]:
    """A collector that listens; yields its endpoint and itself."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2, thread_name_prefix="collector"))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", collector
    finally:
        server.stop(0).wait()


def _spans(request: trace_service_pb2.ExportTraceServiceRequest) -> Iterator[CollectedSpan]:
    for resource in request.resource_spans:
        named = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield CollectedSpan(
                    resource=str(named["service.name"]),
                    name=span.name,
                    kind=_KINDS[span.kind],
                    key=(span.trace_id, span.span_id),
                    parent=(span.trace_id, span.parent_span_id) if span.parent_span_id else None,
                    links=tuple((link.trace_id, link.span_id) for link in span.links),
                    attributes=_attributes(span.attributes),
                    failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
                )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, object]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
