"""Every door of an installation, served in this process to callers of every role."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.audit.tallied import DeniedCallers
from spotline.adapters.grpc.agent.keeper import GangKeeper
from spotline.adapters.grpc.agent.server import AgentServer
from spotline.adapters.grpc.agent.sessions import Sessions
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.analytics.servicer import AnalyticsServer
from spotline.adapters.grpc.configurator.server import ConfiguratorServer
from spotline.adapters.grpc.configurator.servicer import SharedKnowledge, runs_measured
from spotline.adapters.grpc.kit.errors import STATUS_KEY
from spotline.adapters.grpc.kit.serving import GrpcServer
from spotline.adapters.grpc.placer.server import PlacerServer
from spotline.adapters.grpc.placer.servicer import pipeline_decided
from spotline.adapters.identity.instances import Identity, sha256_of
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.pages import PAGES
from spotline.adapters.page.site import PageSite, SiteParts
from spotline.adapters.web.app import ServedBeside, web_app
from spotline.adapters.web.fold_views import FoldViews
from spotline.adapters.web.guarding import WebFigures
from spotline.adapters.web.identity import WebDoor
from spotline.adapters.web.serving import WebServer
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.analytics.messages import (
    KeysPage,
    KeysQuery,
    StatisticsPage,
    StatisticsQuery,
)
from spotline.application.configurator.knowledge import KnowledgeBase
from spotline.application.identity.audit import AuditDoor
from spotline.application.market_view import ClockReading
from spotline.application.operations.messages import ServiceStatus, SystemStatus
from spotline.application.page.applied import applied
from spotline.application.placer.messages import pipeline_id_for
from spotline.application.placer.options import PlacerOptions
from spotline.contracts.build import envelope_for
from spotline.domain.events.lifecycle import AdmissionRecorded, JobSubmitted
from spotline.domain.events.training import AgentJoined
from spotline.runtime.applied import AppliedFeed
from tests.fakes.allocator import START_NS, market_opened, of_tenant, opened_host, slot_opened
from tests.fakes.audit_trails import MemoryTrail
from tests.fakes.identities import OTHER, OWN, KnownTokens, TestIdentities
from tests.fakes.knowledge import FakeConfiguratorHost
from tests.fakes.placer import FakePlacerHost, both_ways, pipeline, region
from tests.fakes.training_story import run_job
from tests.fakes.web import FedHost

JOB = run_job()
RIVALS_JOB = of_tenant(run_job(), OTHER)
UNKNOWN_ID = "f" * 32
NONCE, INSTANCE = "a nonce of thirty-two characters", "i-1"
_PATIENCE_S = 20.0


def pipeline_of(tenant: str) -> Any:
    """A pipeline of a tenant."""
    made = pipeline()
    return replace(made, tenant=tenant, job_id=pipeline_id_for(tenant, made.client_request_id))


PIPELINE = pipeline_of(OWN)


class NoOutput:
    """A store of output that holds none."""

    async def append(self, chunk: object) -> None:
        """Take it, and forget it."""

    async def begin(self, tenant: str, job_id: str, *, last: int = 0) -> int:
        """From the beginning."""
        return 1

    def mark(self, job_id: str) -> int:
        """Nothing has come."""
        return 0

    async def read(self, tenant: str, job_id: str, *, first_seq: int) -> AsyncIterator[Any]:
        """Nothing."""
        nothing: tuple[Any, ...] = ()
        for each in nothing:
            yield each

    async def arrival(self, job_id: str, mark: int, *, timeout_s: float) -> None:
        """Nothing comes."""
        await asyncio.sleep(timeout_s)


class HeardQueries:
    """Statistics of nobody; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[StatisticsQuery | KeysQuery] = []

    def query(self, query: StatisticsQuery) -> StatisticsPage:
        """No windows."""
        self.asked.append(query)
        return StatisticsPage()

    def keys(self, query: KeysQuery) -> KeysPage:
        """No keys."""
        self.asked.append(query)
        return KeysPage(keys=())

    def clock(self) -> ClockReading | None:
        """No market."""
        return None


@dataclass(frozen=True, slots=True)
class Answered:
    """How a call ended: gRPC's code, our reason, the message; and the response where there is one."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = ""
    response: Message | None = None

    @property
    def let_in(self) -> bool:
        """Whether the door let the caller in, whatever came of the request then."""
        return self.code not in (
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.PERMISSION_DENIED,
        ) and self.reason not in ("UNKNOWN_JOB", "UNKNOWN_PIPELINE")


@dataclass(slots=True)
class Doors:
    """The running servers: where each gRPC service is, and the read model over HTTP."""

    identities: TestIdentities
    agents_ca: bytes
    addresses: Mapping[str, str]
    web: str
    statistics: HeardQueries
    session: str
    trail: MemoryTrail

    async def call(self, method: str, request: Message, token: str | None) -> Answered:
        """Call a method by its full name; a stream ends with its first response."""
        service, _, name = method.strip("/").rpartition("/")
        found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
        answer_type = message_factory.GetMessageClass(found.output_type)
        agents = service.endswith("AgentService")
        ca = self.agents_ca if agents else self.identities.authority.ca_pem.encode()
        if agents and token == "instance":
            token = self.session
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        credentials = grpc.ssl_channel_credentials(ca)
        async with grpc.aio.secure_channel(self.addresses[service], credentials) as channel:
            kind = "stream_" if found.client_streaming else "unary_"
            kind += "stream" if found.server_streaming else "unary"
            called = getattr(channel, kind)(
                method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer_type.FromString,
            )
            said: Any = iter((request,)) if found.client_streaming else request
            call = called(said, metadata=metadata, timeout=_PATIENCE_S)
            try:
                if not found.server_streaming:
                    return Answered(grpc.StatusCode.OK, response=await call)
                async for response in call:
                    return Answered(grpc.StatusCode.OK, response=response)
                return Answered(await call.code())
            except grpc.aio.AioRpcError as error:
                return Answered(error.code(), _reason(error), error.details() or "")

    def get(self, path: str, token: str | None, *, verify: bool = True) -> tuple[int, str]:
        """Ask over HTTP; status and body. Blocks, so call it in a thread."""
        host, _, port = self.web.rpartition(":")
        trusted = self.identities.authority.ca_pem if verify else None
        context = ssl.create_default_context(cadata=trusted)
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            streams = path.startswith(("/v1/watch", "/page/changes"))
            first = streams and response.status == 200
            return response.status, "" if first else response.read().decode()
        finally:
            connection.close()


def _reason(error: grpc.aio.AioRpcError) -> str:
    trailing = {str(key): value for key, value in error.trailing_metadata() or ()}
    status = Status.FromString(trailing.get(STATUS_KEY, b""))
    info = error_details_pb2.ErrorInfo()
    for packed in status.details:
        if packed.Unpack(info):
            return str(info.reason)
    return ""


def descriptor_of(method: str) -> Any:
    """What the protos say of a method."""
    service, _, name = method.strip("/").rpartition("/")
    return descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]


def request_of(method: str) -> type[Message]:
    """The class of a method's requests."""
    return message_factory.GetMessageClass(descriptor_of(method).input_type)


def _events() -> tuple[Any, ...]:
    """Two jobs of two tenants, the one's agent having joined."""
    return (
        *(JobSubmitted(job=job, ts_event_ns=START_NS) for job in (JOB, RIVALS_JOB)),
        *(AdmissionRecorded(job_id=job.job_id, tenant=job.tenant) for job in (JOB, RIVALS_JOB)),
        AgentJoined(
            job_id=JOB.job_id,
            tenant=JOB.tenant,
            instance_id=INSTANCE,
            token_sha256="0" * 64,
            nonce_sha256=sha256_of(NONCE),
            host="10.0.0.1",
            ts_event_ns=START_NS,
        ),
    )


@asynccontextmanager
async def all_doors(folder: Path) -> AsyncIterator[Doors]:
    """Every server on a free loopback port, until the block is left."""
    identities = TestIdentities.at(folder / "authority")
    events = _events()
    feed, host = JobFeed(), opened_host()
    host.admits = True
    host.listeners.append(feed.on_applied)
    keeper = GangKeeper(host, AgentTimes())
    host.listeners.append(keeper.on_applied)
    for event in events:
        host.record(event)
    keys = AgentKeys(folder / "agents")
    session = Sessions(keys.signer, lambda: host.state.gangs).open(
        Identity(instance_id=INSTANCE, job_id=JOB.job_id), NONCE
    )
    statistics = HeardQueries()
    placer_feed = AppliedFeed(pipeline_decided)
    regions = (region("east"), region("west"), *both_ways("east", "west"))
    placer_host = FakePlacerHost(*regions)
    placer_host.listeners.append(placer_feed.on_applied)
    runs = AppliedFeed(runs_measured)
    knowing = FakeConfiguratorHost()
    knowing.listeners.append(runs.on_applied)
    output = NoOutput()
    free = "127.0.0.1:0"
    servers: tuple[GrpcServer, ...] = (
        RpcServer(host, feed, address=free, output=output),
        PlacerServer(placer_host, placer_feed, PlacerOptions(), address=free),
        ConfiguratorServer(
            knowing, SharedKnowledge(KnowledgeBase(()), knowing, runs), address=free
        ),
        AnalyticsServer(statistics, address=free),
        AgentServer(host, keeper, output, keys, address=free),
    )
    trail = MemoryTrail()
    async with AsyncExitStack() as stack:
        addresses: dict[str, str] = {}
        for server in servers:
            server.audited_by(trail)
            if not isinstance(server, AgentServer):
                server.identify(identities.server())
            bound = await server.start()
            stack.push_async_callback(server.stop, grace_s=0.0)
            addresses |= dict.fromkeys(server.services, bound)
        views = FoldViews()
        fed = FedHost(views)
        fed.feed(*opened_events(), *events)
        figures, denied = WebFigures(), DeniedCallers(trail, AuditDoor.HTTP)
        desk = PageDesk()
        stack.callback(desk.close)
        door = WebDoor(KnownTokens(), figures.denials, denied)
        site = PageSite(
            desk, PAGES, SiteParts(door=door, source="test", secure=True, figures=figures)
        )
        for number, event in enumerate((*opened_events(), *events), start=1):
            envelope = envelope_for(
                event, event_id=f"e-{number}", source="test", causation_id="", correlation_id="c"
            )
            site.apply(applied(event, envelope, number))

        def end_streams() -> None:
            views.end()
            site.end()

        web = WebServer(
            web_app(
                views,
                authenticator=KnownTokens(),
                system=_well,
                denied=denied,
                figures=figures,
                beside=ServedBeside(routes=site.routes(), takes_form=site.takes_form),
            ),
            address=free,
            end_streams=end_streams,
            tls=identities.server().tls_context(),
        )
        bound = await web.start()
        stack.push_async_callback(web.stop)
        yield Doors(identities, keys.ca_pem.encode(), addresses, bound, statistics, session, trail)


def opened_events() -> tuple[Any, ...]:
    """A market that is open."""
    return market_opened(), slot_opened(0)


async def _well() -> SystemStatus:
    services = (
        ServiceStatus(service=name, ready=True, heard_s_ago=0) for name in ("allocator", "selector")
    )
    return SystemStatus(healthy=True, services=tuple(services))
