"""What every service is composed with: its place on the bus, its hooks, its health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from spotline.adapters.audit.trail import ThreadedTrail
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.adapters.identity.shown import ServerIdentity
from spotline.adapters.nats.configured import StreamLimits
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.identities import BusIdentities
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.health.conditions import HealthLimits
from spotline.application.incarnations import LogRemembered
from spotline.bootstrap.auditing import AuditAt
from spotline.bootstrap.bus_set_up import set_up
from spotline.bootstrap.health import HealthMonitor, HealthProbes, Hosted, Probe
from spotline.bootstrap.identity import ServiceIdentities
from spotline.contracts.batch import MOST_EVENTS
from spotline.contracts.subjects import StreamPart
from spotline.runtime.exporting import scraped_metrics
from spotline.runtime.health import serve_health
from spotline.runtime.log_settling import settled_log
from spotline.runtime.service import Listener, ServiceHost
from spotline.runtime.telemetry import telemetry_for
from spotline.runtime.timers import Gate

if TYPE_CHECKING:
    from spotline.adapters.grpc.kit.serving import GrpcServer

AnyHost = ServiceHost[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BusAddress:
    """Which broker, and which partition's log on it."""

    nats_url: str = field(repr=False)  # it may hold a password
    partition: int = 0
    # As whom each connection comes; None: over an open door, in the clear.
    identity: BusIdentities | None = None
    # How many events go into one entry of the log.
    most_events: int = MOST_EVENTS

    def connection(self, name: str) -> NatsConnection:
        """A connection, not open yet, of a service or of one of its parts.

        Raises
        ------
        ConfigError
            The service has no identity where one is needed.
        """
        identity = None if self.identity is None else self.identity.of(name)
        return NatsConnection(self.nats_url, name=f"spotline-{name}", identity=identity)


class Audited(Protocol):
    """Answers callers, and can have recorded what they do."""

    def audited_by(self, trail: ThreadedTrail | None) -> None:
        """Record to this trail; to be called before it is started."""
        ...


@dataclass(slots=True, kw_only=True)
class PartHooks:
    """What a host of services may want to know or hold back; all optional.

    `started` gets each service's host as soon as it exists, and its connection to the broker.
    `health` is what is judged of the services of this process, `identity` by what servers know
    callers and services are known to each other; None: nobody is asked who he is. In `audit` is
    what callers do; None: it is not recorded.
    """

    started: Callable[[str, Hosted, NatsConnection], None] | None = None
    on_applied: Listener | None = None
    gate: Gate | None = None
    health: HealthProbes | None = None
    identity: ServiceIdentities | None = None
    audit: AuditAt | None = None

    @asynccontextmanager
    async def trail(self, service: str) -> AsyncIterator[ThreadedTrail | None]:
        """What a service's servers record to; None: no audit is kept.

        Raises
        ------
        ConfigError
            Its folder cannot be made.
        """
        if self.audit is None:
            yield None
            return
        with self.audit.trail(service) as trail, ExitStack() as stack:
            telemetry, figures = telemetry_for(service), trail.figures
            stack.callback(telemetry.observe("spotline.audit.records", figures.records))
            stack.callback(telemetry.observe("spotline.audit.failures", figures.failed))
            yield trail

    @asynccontextmanager
    async def doors(
        self, service: str, server: GrpcServer, *, agents: Audited | None = None
    ) -> AsyncIterator[None]:
        """Have a server, not started yet, ask who calls, and record what callers do.

        The port of `agents` asks by itself; what they do is recorded to the same chain. Both are
        stopped before this is left. `ConfigError` where the audit cannot be kept.
        """
        server.identify(self.server_identity())
        async with self.trail(service) as trail:
            server.audited_by(trail)
            if agents is not None:
                agents.audited_by(trail)
            yield

    def server_identity(self) -> ServerIdentity | None:
        """What a server shows, and knows its callers by; for one server."""
        return None if self.identity is None else self.identity.server()

    def client_identity(self, service: str) -> ClientIdentity | None:
        """By what a service is known to the others; None: as its environment says."""
        return None if self.identity is None else self.identity.client(service)

    def note(self, service: str, host: Hosted, connection: NatsConnection) -> None:
        """Tell that a service's host exists."""
        if self.started is not None:
            self.started(service, host, connection)

    def probe(self, service: str, probe: Probe) -> Callable[[], None]:
        """Have more judged of a service's health, until the result is called."""
        return (lambda: None) if self.health is None else self.health.probe(service, probe)

    def ready(self, service: str) -> bool:
        """Whether events flow through a service; so it is where nobody judges. Any thread may ask."""
        return self.health is None or self.health.ready(service)


@asynccontextmanager
async def open_stream(
    bus: BusAddress, *, name: str, remembered: LogRemembered | None = None
) -> AsyncIterator[tuple[NatsConnection, NatsEventStream]]:
    """A connection and the partition's stream on it, created where absent.

    A log that was cut, by its followers' floors or by what is `remembered`, goes on as another
    incarnation from here on.

    Raises
    ------
    ProviderUnavailable
        No server answers at the URL, or it cannot store.
    ConfigError
        The server is too old, or its stream is another one or belongs to another installation.
    """
    async with bus.connection(name) as connection:
        await set_up(connection, bus.partition, bus.identity)
        stream = await NatsEventStream.open(connection, partition=bus.partition)
        stream.most_events = bus.most_events
        await settled_log(stream, remembered)
        yield connection, stream


async def open_part(
    connection: NatsConnection,
    bus: BusAddress,
    part: StreamPart,
    *,
    limits: StreamLimits | None = None,
) -> NatsEventStream:
    """A stream of the partition beside its log, which is open already; errors as `open_stream`."""
    return await NatsEventStream.open(connection, partition=bus.partition, part=part, limits=limits)


async def with_health(
    serve: Callable[[PartHooks], Awaitable[None]],
    bus: BusAddress,
    *,
    host: str,
    port: int,
    metrics: bool = False,
    limits: HealthLimits | None = None,
    identity: ServiceIdentities | None = None,
    audit: AuditAt | None = None,
) -> None:
    """Run one service with its health endpoint beside it, and its metrics where they are wanted."""
    probes = HealthProbes(limits=limits or HealthLimits())
    scraped = scraped_metrics() if metrics else None
    monitor = HealthMonitor(bus.connection("health"), probes, partition=bus.partition)
    async with (
        serve_health(
            {"service": probes.overall}, host=host, port=port, metrics=scraped, alive=probes.alive
        ),
        asyncio.TaskGroup() as tasks,
    ):
        watching = tasks.create_task(monitor.run(), name="health")
        try:
            await serve(
                PartHooks(started=probes.note, health=probes, identity=identity, audit=audit)
            )
        finally:
            watching.cancel()
