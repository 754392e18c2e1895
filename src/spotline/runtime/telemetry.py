"""The spans and metrics of one service; all of them are made here. Names: docs/telemetry.yaml.

Without an endpoint and without a scrape (`runtime.exporting`) everything here does nothing, at next
to no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import perf_counter
from types import TracebackType
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ProviderUnavailable
from spotline.contracts.subjects import KINDS
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened
from spotline.runtime.exporting import ENDPOINT_VARIABLE, exporting
from spotline.runtime.metrics import (
    CALL,
    KIND,
    OUTCOME,
    RPC_METHOD,
    RPC_STATUS,
    RPC_SYSTEM,
    SERVICE,
    Metrics,
    Reader,
    Readings,
)
from spotline.runtime.watched import HostCounters, Watched

__all__ = ["ENDPOINT_VARIABLE", "HostCounters", "RpcInProgress", "Telemetry", "telemetry_for"]

# W3C's headers, and no others: baggage has no business in the log.
_TRACE_CONTEXT = TraceContextTextMapPropagator()
_NO_CONTEXT = Context()
_SLOT_KIND = KINDS[SlotOpened]
# A server's own failures, as opposed to a request that it rightly refuses.
_SERVER_FAULTS = frozenset(
    ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
)
_NOTHING: AbstractContextManager[None] = nullcontext()


class Telemetry:
    """What one service tells of its work; does nothing with neither tracer nor metrics."""

    def __init__(
        self, service: str, tracer: Tracer | None = None, metrics: Metrics | None = None
    ) -> None:
        self._service = service
        self._tracer = tracer
        self._metrics = metrics
        self._by_kind: dict[str, dict[str, str]] = {}
        self._slot_opened_s: float | None = None

    @property
    def on(self) -> bool:
        """Whether anything is told at all."""
        return self._tracer is not None or self._metrics is not None

    # --- events -------------------------------------------------------------------------------

    def handling(
        self, envelope: Envelope, headers: Mapping[str, str], seq: int
    ) -> AbstractContextManager[None]:
        """Time the handling of one message, in a span linked to the one that published it."""
        if self._tracer is None and self._metrics is None:
            return _NOTHING
        return self.processing(
            envelope.kind,
            subject=envelope.subject,
            event_id=envelope.event_id,
            correlation_id=envelope.correlation_id,
            headers=headers,
            seq=seq,
        )

    def processing(
        self,
        kind: str,
        *,
        subject: str,
        event_id: str,
        correlation_id: str,
        headers: Mapping[str, str],
        seq: int,
    ) -> AbstractContextManager[None]:
        """As `handling`, for callers without an envelope; `headers` are those of the stored entry."""
        if self._tracer is None and self._metrics is None:
            return _NOTHING
        if kind == _SLOT_KIND:
            self._slot_opened_s = perf_counter()
        attributes = self._by_kind.get(kind)
        if attributes is None:
            attributes = self._by_kind[kind] = {SERVICE: self._service, KIND: kind}
        span = None
        if self._tracer is not None:
            span = self._tracer.start_as_current_span(
                f"handle {kind}",
                kind=SpanKind.CONSUMER,
                links=_links(headers),
                attributes={
                    **self._message(kind, subject, event_id),
                    "messaging.operation.name": "handle",
                    "messaging.operation.type": "process",
                    "spotline.seq": seq,
                    "spotline.correlation_id": correlation_id,
                },
            )
        return _Timed("messaging.process.duration", span, self._metrics, attributes)

    def traced(self, envelope: Envelope, *, cause: Mapping[str, str] | None = None) -> Envelope:
        """The envelope with trace headers, from the producer span that this makes.

        Parameters
        ----------
        cause
            Headers of the message it was made for, where that is not being handled in a span.
        """
        if self._tracer is None:
            return envelope
        # Nothing happens inside it: it need not become the current span.
        span = self._tracer.start_span(
            f"publish {envelope.kind}",
            kind=SpanKind.PRODUCER,
            links=None if cause is None else _links(cause),
            attributes={
                **self._message(envelope.kind, envelope.subject, envelope.event_id),
                "messaging.operation.name": "publish",
                "messaging.operation.type": "send",
            },
        )
        headers: dict[str, str] = {}
        _TRACE_CONTEXT.inject(headers, trace.set_span_in_context(span, _NO_CONTEXT))
        span.end()
        return replace(envelope, trace_headers=headers)

    def _message(self, kind: str, subject: str, event_id: str) -> dict[str, str]:
        return {
            "messaging.system": "nats",
            "messaging.destination.name": subject,
            "messaging.message.id": event_id,
            SERVICE: self._service,
            KIND: kind,
        }

    def may_record(self, event_types: Iterable[type[Event]]) -> None:
        """Show the counters of what this service may record from the start."""
        if self._metrics is not None:
            self._metrics.expect(self._service, event_types)

    def recorded(self, events: Iterable[Event]) -> None:
        """Count events that this service has stored for the first time."""
        metrics = self._metrics
        if metrics is None:
            return
        for event in events:
            metrics.count(self._service, event)
            if type(event) is SlotDecided and self._slot_opened_s is not None:
                taken_s = perf_counter() - self._slot_opened_s
                self._slot_opened_s = None
                metrics.record("spotline.decision.duration", taken_s, {SERVICE: self._service})

    # --- calls --------------------------------------------------------------------------------

    def calling(self, call: str) -> AbstractContextManager[None]:
        """Time one attempt at a call that the handler asked for, in a span of its own."""
        if self._tracer is None and self._metrics is None:
            return _NOTHING
        span = None
        if self._tracer is not None:
            span = self._tracer.start_as_current_span(
                f"call {call}", attributes={SERVICE: self._service, CALL: call}
            )
        return _Calling(
            "spotline.call.duration", span, self._metrics, {SERVICE: self._service, CALL: call}
        )

    def asking(self, method: str) -> RpcInProgress:
        """Time a gRPC call that this service makes; its `headers` go with the call.

        Parameters
        ----------
        method
            As gRPC names it: `package.Service/Method`.
        """
        return RpcInProgress(self._service, method, SpanKind.CLIENT, self._tracer, self._metrics)

    def answering(
        self, method: str, headers: Mapping[str, str], *, current: bool = True
    ) -> RpcInProgress:
        """Time a gRPC call that this service answers, in its caller's trace.

        Not `current` is one that is left and entered again by others: an asynchronous generator,
        whose end may come in another context than its beginning.
        """
        return RpcInProgress(
            self._service,
            method,
            SpanKind.SERVER,
            self._tracer,
            self._metrics,
            headers,
            current=current,
        )

    # --- figures ------------------------------------------------------------------------------

    def observe(self, name: str, reader: Reader) -> Callable[[], None]:
        """Have a metric read by `reader` when somebody asks, until the result is called."""
        if self._metrics is None:
            return lambda: None

        def read() -> Readings:
            return [(value, {SERVICE: self._service, **more}) for value, more in reader()]

        return self._metrics.observe(name, read)


def telemetry_for(service: str, watched: Watched | None = None) -> Telemetry:
    """What `service` tells its work with.

    Parameters
    ----------
    watched
        The running service itself, whose figures are shown as its metrics.
    """
    process = exporting()
    if process is None:
        return Telemetry(service)
    if watched is not None:
        process.metrics.watch(service, watched)
    return Telemetry(service, process.tracer(service), process.metrics)


def _links(headers: Mapping[str, str]) -> list[Link] | None:
    extracted = _TRACE_CONTEXT.extract(headers, _NO_CONTEXT)
    producer = trace.get_current_span(extracted).get_span_context()
    return [Link(producer)] if producer.is_valid else None


_ActiveSpan = AbstractContextManager[Span]


class _Timed:
    """Around something that is timed, in a span if there is a tracer."""

    __slots__ = ("_attributes", "_metric", "_metrics", "_span", "_started_s")

    def __init__(
        self,
        metric: str,
        span: _ActiveSpan | None,
        metrics: Metrics | None,
        attributes: dict[str, str],
    ) -> None:
        self._metric = metric
        self._span = span
        self._metrics = metrics
        self._attributes = attributes
        self._started_s = 0.0

    def __enter__(self) -> None:
        self._started_s = perf_counter()
        if self._span is not None:
            self._span.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._span is not None:
            self._span.__exit__(kind, error, at)
        if self._metrics is not None:
            taken_s = perf_counter() - self._started_s
            self._metrics.record(self._metric, taken_s, self._told(kind))

    def _told(self, kind: type[BaseException] | None) -> dict[str, str]:
        return self._attributes


class _Calling(_Timed):
    """Around one attempt at a call: says how it went, too."""

    __slots__ = ()

    def _told(self, kind: type[BaseException] | None) -> dict[str, str]:
        outcome = "answered"
        if kind is not None:
            outcome = "postponed" if issubclass(kind, ProviderUnavailable) else "failed"
        return {**self._attributes, OUTCOME: outcome}


class RpcInProgress:
    """Around one gRPC call, on either side.

    Attributes
    ----------
    headers
        To be sent along by the caller: the context of its span.
    code
        Name of the status it ended with; to be set before it is left.
    """

    __slots__ = (
        *("_attributes", "_context", "_current", "_kind", "_metrics", "_name", "_span"),
        *("_started_s", "_token", "_tracer", "code", "headers"),
    )

    def __init__(
        self,
        service: str,
        method: str,
        kind: SpanKind,
        tracer: Tracer | None,
        metrics: Metrics | None,
        headers: Mapping[str, str] | None = None,
        *,
        current: bool = True,
    ) -> None:
        self.code = ""
        self.headers: dict[str, str] = {}
        self._name = method
        self._attributes = {SERVICE: service, RPC_SYSTEM: "grpc", RPC_METHOD: method}
        self._kind = kind
        self._tracer = tracer
        self._metrics = metrics
        self._context = None if headers is None else _TRACE_CONTEXT.extract(headers, _NO_CONTEXT)
        self._span: Span | None = None
        self._token: Any = None
        self._current = current
        self._started_s = 0.0

    def __enter__(self) -> RpcInProgress:
        self._started_s = perf_counter()
        if self._tracer is not None:
            self._span = self._tracer.start_span(
                self._name, context=self._context, kind=self._kind, attributes=self._attributes
            )
            inside = trace.set_span_in_context(self._span)
            if self._current:
                self._token = context.attach(inside)
            if self._kind is SpanKind.CLIENT:
                _TRACE_CONTEXT.inject(self.headers, inside)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._token is not None:
            context.detach(self._token)
        if self._span is not None:
            if self.code:
                self._span.set_attribute(RPC_STATUS, self.code)
            # A refusal is an exception to gRPC, and an answer to us.
            if self._failed:
                self._span.set_status(Status(StatusCode.ERROR))
                if error is not None and self._kind is SpanKind.SERVER:
                    self._span.record_exception(error)
            self._span.end()
        if self._metrics is not None:
            side = "client" if self._kind is SpanKind.CLIENT else "server"
            self._metrics.record(
                f"rpc.{side}.call.duration",
                perf_counter() - self._started_s,
                {**self._attributes, RPC_STATUS: self.code},
            )

    @property
    def _failed(self) -> bool:
        if self._kind is SpanKind.SERVER:
            return self.code in _SERVER_FAULTS
        return self.code not in ("", "OK")
