"""Each service, composed of its handler and the adapters it needs, running until cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.snapshots import NatsSnapshotStore
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.cloud_actuator.ports import ActuatorMode
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.placer.handler import PlaceHandler
from spotline.application.placer.options import PlacerOptions
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.state import SelectorOptions
from spotline.contracts.errors import ConfigError
from spotline.contracts.mapping import digest
from spotline.domain.configuration.configuration import MeasuredRun
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.market import Market
from spotline.domain.placement.geography import Geography
from spotline.runtime.applied import AppliedFeed
from spotline.runtime.exporting import scraped_metrics
from spotline.runtime.health import Health, serve_health
from spotline.runtime.service import Listener, ServiceHost
from spotline.runtime.snapshots import Snapshots
from spotline.runtime.telemetry import telemetry_for
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
            one = host.health()
            connected = self.connections[name].connected
            healthy = healthy and one.healthy and connected
            detail[f"{name}.connected"] = connected
            detail.update({f"{name}.{key}": value for key, value in one.detail.items()})
        return Health(healthy=healthy, detail=detail)


@asynccontextmanager
async def open_stream(
    bus: BusAddress, *, name: str
) -> AsyncIterator[tuple[NatsConnection, NatsEventStream]]:
    """A connection and the partition's stream on it, created where absent.

    Raises
    ------
    ProviderUnavailable
        Nobody answers at the URL.
    ConfigError
        The server is too old, or its stream is another one.
    """
    async with NatsConnection(bus.nats_url, name=f"spotline-{name}") as connection:
        yield connection, await NatsEventStream.open(connection, partition=bus.partition)


def geography_of(file: Path | None) -> Geography | None:
    """The geography of a file, None without one; `ContractError` as `read_geography`."""
    if file is None:
        return None
    # Validating a file takes libraries that not everybody here needs.
    from spotline.adapters.files.geography.geography_file import read_geography

    return read_geography(file)


def _check_rented(geography: Geography | None, market: Market) -> None:
    known = {offering.offering_id for offering in market.offerings}
    for region_id, series in geography.regions.items() if geography is not None else ():
        offering_id = series.region.offering_id
        if offering_id and offering_id not in known:
            raise ConfigError(
                f"geography: offering of region {region_id} must be one of the market's, "
                f"was {offering_id}; it has {', '.join(sorted(known))}"
            )


async def serve_market_ingest(
    bus: BusAddress,
    market: Market,
    options: IngestOptions,
    hooks: PartHooks,
    *,
    geography: Geography | None = None,
) -> None:
    """Open the market's slots, and show the geography along with them.

    Raises
    ------
    ConfigError
        A region is rented as an offering that the market does not have.
    """
    _check_rented(geography, market)
    async with open_stream(bus, name="market_ingest") as (connection, stream):
        host = ServiceHost(
            IngestHandler(market, options, geography),
            stream,
            gate=hooks.gate,
            on_applied=hooks.on_applied,
        )
        hooks.note("market_ingest", host, connection)
        await host.run()


async def serve_forecaster(
    bus: BusAddress, *, forecaster: str, horizon_slots: int, hooks: PartHooks
) -> None:
    """Forecast every slot."""
    # River takes a second to import; only this service needs it.
    from spotline.application.forecaster.handler import ForecastHandler, ForecastStateCodec
    from spotline.domain.forecasting.registry import forecaster_factory

    factory = forecaster_factory(forecaster)
    async with open_stream(bus, name="forecaster") as (connection, stream):
        snapshots = Snapshots(
            store=NatsSnapshotStore(connection, partition=bus.partition),
            codec=ForecastStateCodec(factory, horizon_slots=horizon_slots),
        )
        host = ServiceHost(
            ForecastHandler(factory, horizon_slots=horizon_slots),
            stream,
            snapshots=snapshots,
            on_applied=hooks.on_applied,
        )
        hooks.note("forecaster", host, connection)
        await host.run()


async def serve_selector(
    bus: BusAddress,
    options: SelectorOptions,
    *,
    allocator_address: str,
    allocate_timeout_s: float,
    hooks: PartHooks,
) -> None:
    """Decide every slot through the allocator at `allocator_address`."""
    from spotline.adapters.grpc.allocator.client import AllocateCallPort

    async with AsyncExitStack() as stack:
        connection, stream = await stack.enter_async_context(open_stream(bus, name="selector"))
        calls = AllocateCallPort(allocator_address, timeout_s=allocate_timeout_s)
        stack.push_async_callback(calls.close)
        host = ServiceHost(
            SelectHandler(options, digest=digest),
            stream,
            calls=calls.perform,
            on_applied=hooks.on_applied,
        )
        hooks.note("selector", host, connection)
        await host.run()


async def serve_allocator(
    bus: BusAddress,
    *,
    address: str,
    hooks: PartHooks,
    configurator_address: str = "",
    listening: Callable[[str], None] | None = None,
) -> None:
    """Answer gRPC at `address` and keep the job board; `listening` is told the bound address.

    Drafts are completed by the configurator at `configurator_address`; empty refuses them.
    """
    from spotline.adapters.grpc.allocator.job_servicer import JobFeed
    from spotline.adapters.grpc.allocator.server import RpcServer
    from spotline.adapters.grpc.configurator.client import ConfiguratorClient
    from spotline.application.allocator.handler import JobsHandler

    async with AsyncExitStack() as stack:
        connection, stream = await stack.enter_async_context(open_stream(bus, name="allocator"))
        configurator = None
        if configurator_address:
            configurator = await stack.enter_async_context(
                ConfiguratorClient(configurator_address, caller="allocator")
            )
        feed = JobFeed()
        host = ServiceHost(
            JobsHandler(), stream, on_applied=_both(feed.on_applied, hooks.on_applied)
        )
        hooks.note("allocator", host, connection)
        server = RpcServer(host, feed, address=address, configurator=configurator)
        async with asyncio.TaskGroup() as tasks:
            await _answer_while_following(tasks, host, server, listening)


async def serve_configurator(
    bus: BusAddress,
    *,
    address: str,
    knowledge: Path | None,
    stack: str,
    hooks: PartHooks,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Answer questions on configurations at `address`; `listening` is told the bound address.

    It knows the measured runs of the file `knowledge` and those in the log, and assumes the
    software stack `stack` (empty: `live`, or the one with most runs).

    Raises
    ------
    ConfigError
        The address is taken.
    ContractError
        The file is absent or no knowledge base.
    """
    from spotline.adapters.grpc.configurator.server import ConfiguratorServer
    from spotline.adapters.grpc.configurator.servicer import SharedKnowledge, runs_measured
    from spotline.application.configurator.handler import ConfigureHandler
    from spotline.application.configurator.knowledge import KnowledgeBase

    runs = await asyncio.to_thread(_runs_of, knowledge)
    async with open_stream(bus, name="configurator") as (connection, stream):
        feed = AppliedFeed(runs_measured)
        host = ServiceHost(
            ConfigureHandler(), stream, on_applied=_both(feed.on_applied, hooks.on_applied)
        )
        hooks.note("configurator", host, connection)
        shared = SharedKnowledge(KnowledgeBase(runs, stack=stack), host, feed)
        server = ConfiguratorServer(host, shared, address=address)
        try:
            async with asyncio.TaskGroup() as tasks:
                learning = tasks.create_task(shared.keep_learning(), name="learn")
                try:
                    await _answer_while_following(
                        tasks, host, server, listening, prepare=shared.start
                    )
                finally:
                    learning.cancel()
        finally:
            shared.close()


def _runs_of(knowledge: Path | None) -> Sequence[MeasuredRun]:
    if knowledge is None:
        return ()
    # Reading a table takes libraries that nobody else here needs.
    from spotline.adapters.knowledge.store import read_knowledge

    return read_knowledge(knowledge)


async def serve_placer(
    bus: BusAddress,
    options: PlacerOptions,
    *,
    address: str,
    hooks: PartHooks,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Place pipelines, and answer gRPC at `address`; `listening` is told the bound address.

    Raises
    ------
    ConfigError
        The address is taken.
    """
    from spotline.adapters.grpc.placer.server import PlacerServer
    from spotline.adapters.grpc.placer.servicer import pipeline_decided

    async with open_stream(bus, name="placer") as (connection, stream):
        feed = AppliedFeed(pipeline_decided)
        host = ServiceHost(
            PlaceHandler(options), stream, on_applied=_both(feed.on_applied, hooks.on_applied)
        )
        hooks.note("placer", host, connection)
        server = PlacerServer(host, feed, options, address=address)
        async with asyncio.TaskGroup() as tasks:
            await _answer_while_following(tasks, host, server, listening)


async def serve_analytics(
    bus: BusAddress,
    parts: AnalyticsParts,
    *,
    address: str,
    hooks: PartHooks,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Keep statistics, and answer gRPC at `address`; `listening` is told the bound address.

    It answers from the beginning, with UNAVAILABLE until its tables are recovered.

    Raises
    ------
    ConfigError
        The address is taken.
    """
    # Faust takes a while to import; only this service needs it.
    from spotline.adapters.analytics.worker import Analytics, AnalyticsSettings
    from spotline.adapters.grpc.analytics.servicer import AnalyticsServer

    async with open_stream(bus, name="analytics") as (connection, stream):
        analytics = Analytics(
            AnalyticsSettings(
                nats_url=bus.nats_url,
                partition=bus.partition,
                worker=parts.worker,
                lease_s=parts.lease_s,
                options=parts.options,
            ),
            stream,
        )
        hooks.note("analytics", analytics, connection)
        server = AnalyticsServer(analytics, address=address)
        try:
            bound = await server.start()
            if listening is not None:
                listening(bound)
            await analytics.run()
        finally:
            await server.stop()


async def serve_analytics_apart(
    bus: BusAddress,
    parts: AnalyticsParts,
    *,
    address: str,
    hooks: PartHooks,
    listening: Callable[[str], None] | None = None,
) -> None:
    """`serve_analytics` in a thread with an event loop of its own, for a process with others in it.

    Putting windows together takes up to seconds, in which nothing else of its loop goes on. What
    it tells is told on the caller's loop.
    """
    here = asyncio.get_running_loop()

    def note(service: str, host: Hosted, connection: NatsConnection) -> None:
        here.call_soon_threadsafe(hooks.note, service, host, connection)

    def tell(bound: str) -> None:
        if listening is not None:
            here.call_soon_threadsafe(listening, bound)

    await in_own_loop(
        lambda: serve_analytics(
            bus, parts, address=address, hooks=PartHooks(started=note), listening=tell
        ),
        name="analytics",
    )


async def in_own_loop(work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
    """Run `work` in a thread with an event loop of its own, until it ends.

    What it raises is raised here; cancelled, it is cancelled there, and waited for.
    """
    here = asyncio.get_running_loop()
    started: asyncio.Future[Callable[[], None]] = here.create_future()
    ended: asyncio.Future[BaseException | None] = here.create_future()

    async def there() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        here.call_soon_threadsafe(started.set_result, cancel)
        await work()

    def run() -> None:
        error: BaseException | None = None
        try:
            asyncio.run(there())
        except BaseException as raised:  # noqa: BLE001 - it is raised again, in the other thread
            error = raised
        here.call_soon_threadsafe(ended.set_result, error)

    # A daemon: a process that has to end at once does not wait for it.
    threading.Thread(target=run, name=name, daemon=True).start()
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait((ended,))
        except asyncio.CancelledError as error:
            cancelled = error
            cancel_there = await started
            with suppress(RuntimeError):  # its loop is closed: it has ended
                cancel_there()
    failed = ended.result()
    if failed is not None and not isinstance(failed, asyncio.CancelledError):
        raise failed
    if cancelled is not None:
        raise cancelled
    if failed is not None:
        raise RuntimeError(f"the thread {name} was cancelled by nobody") from failed


class _Server(Protocol):
    async def start(self) -> str: ...

    async def stop(self) -> None: ...


async def _answer_while_following(
    tasks: asyncio.TaskGroup,
    host: AnyHost,
    server: _Server,
    listening: Callable[[str], None] | None,
    *,
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run `host`, and `server` from when it has recovered and `prepare` is done.

    The host is not well before its server listens: to get ready takes long where kernels are to be
    compiled first.
    """
    host.answering = False
    follow = tasks.create_task(host.run(), name="follow")
    try:
        # Nothing is answered from a state that is not up to date.
        await host.live()
        if prepare is not None:
            await prepare()
        bound = await server.start()
        host.answering = True
        if listening is not None:
            listening(bound)
        await asyncio.wait((follow,))
    finally:
        await server.stop()


def _both(first: Listener, second: Listener | None) -> Listener:
    if second is None:
        return first

    def tell(event: Any, envelope: Any, seq: int) -> None:
        first(event, envelope, seq)
        second(event, envelope, seq)

    return tell


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsParts:
    """What the analytics issues and who this worker is; see `services/analytics/settings.py`."""

    options: StatisticsOptions = field(default_factory=StatisticsOptions)
    worker: str = "0"
    lease_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuatorParts:
    """What the actuator acts on; see `services/cloud_actuator/settings.py`."""

    cloud: str
    mode: ActuatorMode
    store: Path
    ledger_url: str
    owner: str
    caps: Caps
    simulated: SimulatedCloudSettings


async def serve_cloud_actuator(bus: BusAddress, parts: ActuatorParts, hooks: PartHooks) -> None:
    """Carry out commands, ledger first."""
    from spotline.adapters.ledger.figures import show_ledger
    from spotline.adapters.ledger.sqlite import SqlLedger
    from spotline.adapters.ledger.threaded import ThreadedLedger
    from spotline.application.cloud_actuator.actuation import CloudActuation
    from spotline.application.cloud_actuator.handler import ActuateHandler
    from spotline.bootstrap.clouds import open_cloud

    parts.store.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        connection, stream = await stack.enter_async_context(
            open_stream(bus, name="cloud_actuator")
        )
        ledger = SqlLedger(parts.ledger_url, parts.owner)
        stack.callback(ledger.close)
        cloud = open_cloud(parts.cloud, parts.mode, parts.store, parts.simulated)
        stack.callback(cloud.close)
        stack.callback(show_ledger(telemetry_for("cloud_actuator"), ledger, parts.caps))
        actuation = CloudActuation(cloud, ThreadedLedger(ledger), caps=parts.caps, mode=parts.mode)
        await actuation.start()
        host = ServiceHost(
            ActuateHandler(), stream, calls=actuation.perform, on_applied=hooks.on_applied
        )
        hooks.note("cloud_actuator", host, connection)
        await host.run()


async def with_health(
    serve: Callable[[PartHooks], Awaitable[None]], *, host: str, port: int, metrics: bool = False
) -> None:
    """Run one service with its health endpoint beside it, and its metrics where they are wanted."""
    probes = HealthProbes()
    scraped = scraped_metrics() if metrics else None
    async with serve_health({"service": probes.overall}, host=host, port=port, metrics=scraped):
        await serve(PartHooks(started=probes.note))
