"""What our interceptors tell of gRPC calls, whichever way they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spotline.adapters.grpc.kit.tracing import client_interceptors, server_interceptors
from spotline.api.v1 import job_service_pb2 as pb
from spotline.api.v1 import job_service_pb2_grpc
from spotline.runtime.metrics import Metrics
from spotline.runtime.telemetry import Telemetry
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.listed_telemetry import span_problems

pytestmark = pytest.mark.integration

SERVICE = "spotline.api.v1.JobService"


class Jobs(job_service_pb2_grpc.JobServiceServicer):
    """Does what the job id says."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def Get(self, request, context):
        match request.job_id:
            case "refused":
                await context.abort(grpc.StatusCode.NOT_FOUND, "there is none")
            case "bug":
                raise RuntimeError("a bug")
            case "slow":
                self.waiting.set()
                try:
                    await asyncio.sleep(20 * PATIENCE_S)
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
        return pb.GetResponse()

    async def Watch(self, request, context) -> AsyncIterator[pb.WatchResponse]:
        while request.job_id == "endless":
            yield pb.WatchResponse()
        for _ in range(3):
            yield pb.WatchResponse()
        if request.job_id == "refused":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too slow")


class Told:
    """Two services' telemetry, and what it came to."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._provider = TracerProvider()
        self._provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._meters = MeterProvider(metric_readers=[self._reader])
        metrics = Metrics(self._meters.get_meter("test"))
        tracer = self._provider.get_tracer("test")
        self.client = Telemetry("client", tracer, metrics)
        self.server = Telemetry("allocator", tracer, metrics)

    def spans(self, kind: str) -> list:
        return [
            span for span in self.exporter.get_finished_spans() if span.kind.name.lower() == kind
        ]

    def codes(self, kind: str) -> list[str]:
        return [span.attributes.get("rpc.response.status_code") for span in self.spans(kind)]

    def counted(self, side: str) -> dict[tuple[str, str], int]:
        data = self._reader.get_metrics_data()
        return {
            (point.attributes["rpc.method"], point.attributes["rpc.response.status_code"]): (
                point.count
            )
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"rpc.{side}.call.duration"
            for point in metric.data.data_points
        }

    def close(self) -> None:
        self._provider.shutdown()
        self._meters.shutdown()


@pytest.fixture
def told():
    one = Told()
    yield one
    one.close()


@asynccontextmanager
async def serving(told: Told, jobs: Jobs):
    """A server and a channel to it, both told of."""
    server = grpc.aio.server(interceptors=server_interceptors(told.server, [SERVICE]))
    job_service_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(
        f"127.0.0.1:{port}", interceptors=client_interceptors(told.client)
    )
    try:
        yield channel
    finally:
        await channel.close()
        await server.stop(0)


@pytest.mark.parametrize(
    ("job_id", "code", "server_failed"),
    [("there", "OK", False), ("refused", "NOT_FOUND", False), ("bug", "UNKNOWN", True)],
)
async def test_a_call_is_told_of_by_its_status(told: Told, job_id, code, server_failed) -> None:
    async with serving(told, Jobs()) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        try:
            await stub.Get(pb.GetRequest(job_id=job_id), timeout=30)
        except grpc.aio.AioRpcError as error:
            assert error.code().name == code  # noqa: PT017 - one case of three succeeds
        await eventually(lambda: told.spans("server"))

    (server,), (client,) = told.spans("server"), told.spans("client")
    assert server.parent.span_id == client.context.span_id
    assert (told.codes("server"), told.codes("client")) == ([code], [code])
    assert server.status.is_ok is not server_failed
    assert client.status.is_ok is (code == "OK")
    for side in ("server", "client"):
        assert told.counted(side) == {(f"{SERVICE}/Get", code): 1}
    for span in (server, client):
        assert span_problems(span.kind.name.lower(), span.name, span.attributes) == []


async def test_a_caller_that_gives_up_ends_span_and_call(told: Told) -> None:
    jobs = Jobs()
    async with serving(told, jobs) as channel, asyncio.timeout(PATIENCE_S):
        stub = job_service_pb2_grpc.JobServiceStub(channel)

        async def ask() -> None:
            await stub.Get(pb.GetRequest(job_id="slow"), timeout=10 * PATIENCE_S)

        asking = asyncio.create_task(ask())
        await jobs.waiting.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        # The server learns of it at once, not when the time is up.
        await jobs.cancelled.wait()
        await eventually(lambda: told.spans("server"))

    assert told.codes("client") == ["CANCELLED"]
    assert told.codes("server") == ["CANCELLED"]


async def test_a_server_that_is_too_slow_is_told_of_as_such(told: Told) -> None:
    jobs = Jobs()
    async with serving(told, jobs) as channel, asyncio.timeout(PATIENCE_S):
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        # On a busy machine the time may be up before the server has heard of the call.
        while not jobs.waiting.is_set():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Get(pb.GetRequest(job_id="slow"), timeout=0.2)
        await jobs.cancelled.wait()
        await eventually(lambda: told.spans("server"))

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # Its time begins when it hears of the call: on a busy machine the client hangs up before that ends.
    assert set(told.codes("server")) <= {"DEADLINE_EXCEEDED", "CANCELLED"}
    assert not told.spans("server")[0].status.is_ok


async def test_a_client_that_leaves_a_fast_stream_ends_it_without_a_word(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(told, Jobs()) as channel, asyncio.timeout(PATIENCE_S):
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        call = stub.Watch(pb.WatchRequest(job_id="endless"))
        async for _ in call:
            break
        call.cancel()
        await eventually(lambda: told.spans("server"))

    assert told.codes("server") == ["CANCELLED"]
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


@pytest.mark.parametrize(("job_id", "code"), [("there", "OK"), ("refused", "RESOURCE_EXHAUSTED")])
async def test_a_stream_is_told_of_when_it_ends(told: Told, job_id, code) -> None:
    got = 0
    async with serving(told, Jobs()) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        try:
            async for _ in stub.Watch(pb.WatchRequest(job_id=job_id)):
                got += 1
        except grpc.aio.AioRpcError as error:
            assert error.code().name == code  # noqa: PT017 - one case of two succeeds
        await eventually(lambda: told.spans("server"))

    (server,), (client,) = told.spans("server"), told.spans("client")
    assert got == 3
    assert server.parent.span_id == client.context.span_id
    assert told.codes("server") == [code]


async def test_health_checks_are_not_told_of_by_the_server(told: Told) -> None:
    async with serving(told, Jobs()) as channel:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)

    assert told.spans("server") == []


def test_without_telemetry_nothing_is_intercepted() -> None:
    off = Telemetry("allocator")

    assert client_interceptors(off) == server_interceptors(off, [SERVICE]) == ()
