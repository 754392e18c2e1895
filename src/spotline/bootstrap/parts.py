"""What every service is composed with: its place on the bus, its hooks, its health."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from spotline.adapters.nats.belonging import settled_log
from spotline.adapters.nats.configured import StreamLimits
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.incarnations import LogRemembered
from spotline.contracts.batch import MOST_EVENTS
from spotline.contracts.subjects import StreamPart
from spotline.runtime.exporting import scraped_metrics
from spotline.runtime.health import Health, serve_health
from spotline.runtime.service import Listener, ServiceHost
from spotline.runtime.timers import Gate

AnyHost = ServiceHost[Any]


class Hosted(Protocol):
    """A running service, as its health is asked for."""

    def health(self) -> Health:
        """Whether it is well, and what it says of itself."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BusAddress:
    """Which broker, and which partition's log on it."""

    nats_url: str
    partition: int = 0
    # How many events go into one entry of the log.
    most_events: int = MOST_EVENTS


@dataclass(slots=True, kw_only=True)
class PartHooks:
    """What a host of services may want to know or hold back; all optional.

    `started` gets each service's host as soon as it exists, and its connection to the broker.
    """

    started: Callable[[str, Hosted, NatsConnection], None] | None = None
    on_applied: Listener | None = None
    gate: Gate | None = None

    def note(self, service: str, host: Hosted, connection: NatsConnection) -> None:
        """Tell that a service's host exists."""
        if self.started is not None:
            self.started(service, host, connection)


@dataclass(slots=True)
class HealthProbes:
    """The services of this process, as a health endpoint asks them."""

    hosts: dict[str, Hosted] = field(default_factory=dict)
    connections: dict[str, NatsConnection] = field(default_factory=dict)

    def note(self, service: str, host: Hosted, connection: NatsConnection) -> None:
        """Add a service."""
        self.hosts[service] = host
        self.connections[service] = connection

    def overall(self) -> Health:
        """Well when every service follows its log on a live connection; not before the first."""
        detail: dict[str, str | int | bool] = {}
        healthy = bool(self.hosts)
        for name, host in sorted(self.hosts.items()):
            health = host.health()
            connected = self.connections[name].connected
            healthy = healthy and health.healthy and connected
            detail[f"{name}.connected"] = connected
            detail.update({f"{name}.{key}": value for key, value in health.detail.items()})
        return Health(healthy=healthy, detail=detail)


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
    async with NatsConnection(bus.nats_url, name=f"spotline-{name}") as connection:
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
    serve: Callable[[PartHooks], Awaitable[None]], *, host: str, port: int, metrics: bool = False
) -> None:
    """Run one service with its health endpoint beside it, and its metrics where they are wanted."""
    probes = HealthProbes()
    scraped = scraped_metrics() if metrics else None
    async with serve_health({"service": probes.overall}, host=host, port=port, metrics=scraped):
        await serve(PartHooks(started=probes.note))
