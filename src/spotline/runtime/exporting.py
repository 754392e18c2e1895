"""Where the telemetry of this process goes: an OTLP endpoint, a Prometheus scrape, or nowhere.

Traces and metrics go to `OTEL_EXPORTER_OTLP_ENDPOINT` where that is set; the SDK's other `OTEL_*`
variables (sampler, batches, time-outs) are its own. Metrics are also there to be scraped once
`scraped_metrics` was called. With neither, no exporter and no SDK is imported: they take a third
of a second.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry.trace import Tracer

from spotline import __version__
from spotline.runtime.metrics import Metrics

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from prometheus_client import CollectorRegistry

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"

_TIMEOUT_VARIABLE = "OTEL_EXPORTER_OTLP_TIMEOUT"
_PATIENCE_S = 3
_SCOPE = "spotline.runtime"
_NAMESPACE = {"service.namespace": "spotline", "service.version": __version__}


class Exporting:
    """The providers of this process: one of meters, and one of tracers for each of its services.

    Every service is a resource of its own, also where several share a process: a trace names the
    service whose span it shows.
    """

    def __init__(self, *, endpoint: bool) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource

        # Readers that are added later are not shut down with the provider.
        self._meters: MeterProvider = MeterProvider(
            metric_readers=_otlp_readers() if endpoint else (),
            resource=Resource.create({**_NAMESPACE, "service.name": "spotline"}),
            shutdown_on_exit=False,
        )
        self._processor = _otlp_processor() if endpoint else None
        self._tracing: dict[str, TracerProvider] = {}
        self._registry: CollectorRegistry | None = None
        self.metrics = Metrics(self._meters.get_meter(_SCOPE))

    def tracer(self, service: str) -> Tracer | None:
        """The tracer of a service, None where no endpoint is set."""
        if self._processor is None:
            return None
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        provider = self._tracing.get(service)
        if provider is None:
            provider = self._tracing[service] = TracerProvider(
                resource=Resource.create({**_NAMESPACE, "service.name": service}),
                shutdown_on_exit=False,
            )
            provider.add_span_processor(self._processor)
        return provider.get_tracer(_SCOPE)

    def scraped(self) -> Callable[[], bytes]:
        """What a scrape gets, in Prometheus' text format 0.0.4."""
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry()
            self._meters.add_metric_reader(
                PrometheusMetricReader(
                    disable_target_info=True, scope_info_enabled=False, registry=self._registry
                )
            )
            ProcessCollector(registry=self._registry)
        return partial(generate_latest, self._registry)

    def shut_down(self) -> None:
        """Send what is waiting, and stop."""
        self._meters.shutdown()
        if self._processor is not None:
            self._processor.shutdown()


def _patience_s() -> int | None:
    """For how long one batch is tried; None leaves it to the SDK, whose ten seconds are long at exit."""
    return None if os.environ.get(_TIMEOUT_VARIABLE) else _PATIENCE_S


def _otlp_processor() -> SpanProcessor:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter(timeout=_patience_s()))


def _otlp_readers() -> tuple[MetricReader, ...]:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return (PeriodicExportingMetricReader(OTLPMetricExporter(timeout=_patience_s())),)


_exporting: Exporting | None = None


def exporting() -> Exporting | None:
    """The telemetry of this process; None while none is wanted."""
    if _exporting is None and os.environ.get(ENDPOINT_VARIABLE):
        return _start()
    return _exporting


def scraped_metrics() -> Callable[[], bytes]:
    """Turn the metrics of this process on, and return what renders them for a scrape.

    Call it before the services are made: those made earlier are not shown.
    """
    return (_exporting or _start()).scraped()


def shut_down() -> None:
    """Send what is waiting and forget the set-up. Blocks; done by itself when the process ends."""
    global _exporting
    ending, _exporting = _exporting, None
    if ending is not None:
        atexit.unregister(shut_down)
        ending.shut_down()


def _start() -> Exporting:
    global _exporting
    _exporting = Exporting(endpoint=bool(os.environ.get(ENDPOINT_VARIABLE)))
    atexit.register(shut_down)
    return _exporting
