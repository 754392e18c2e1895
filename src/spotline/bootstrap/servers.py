"""The services that answer gRPC while they follow the log, running until cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotline.adapters.nats.connection import NatsConnection
from spotline.application.allocation.on_demand_quote import DEFAULT_QUOTE_MARGIN
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.placer.handler import PlaceHandler
from spotline.application.placer.options import PlacerOptions
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.agents import AgentsAt, AgentSide
from spotline.bootstrap.answering import ServedHost, answer_while_following
from spotline.bootstrap.explaining import LiveExplainer
from spotline.bootstrap.facts import limits_of, system_probe
from spotline.bootstrap.health import Hosted
from spotline.bootstrap.own_loop import in_own_loop
from spotline.bootstrap.parts import BusAddress, PartHooks, open_part, open_stream
from spotline.contracts.limits import CallerLimits
from spotline.contracts.subjects import StreamPart
from spotline.domain.configuration.configuration import MeasuredRun
from spotline.runtime.applied import AppliedFeed
from spotline.runtime.service import Listener, ServiceHost
from spotline.runtime.telemetry import telemetry_for

if TYPE_CHECKING:
    from spotline.adapters.grpc.allocator.server import RpcServer
    from spotline.adapters.nats.heartbeats import HeardServices
    from spotline.application.allocator.handler import JobsState


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsParts:
    """What the analytics issues and who this worker is; see `services/analytics/settings.py`."""

    options: StatisticsOptions = field(default_factory=StatisticsOptions)
    worker: str = "0"
    lease_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorParts:
    """How the allocator takes jobs and agents; see `services/allocator/settings.py`.

    Drafts are completed by the configurator at `configurator_address`; empty refuses them. With
    `await_admission` a submission is acknowledged once the actuator's ledger holds it too. A job
    that states no value is worth (1 + `quote_margin`) x its on-demand quote. `agents` says where
    those of running programs dial in. `selector` are the options of the selector that decides:
    decisions are explained with them. With `outlooks`, so is what is expected of every job.
    """

    configurator_address: str = ""
    await_admission: bool = True
    quote_margin: float = DEFAULT_QUOTE_MARGIN
    agents: AgentsAt | None = None
    selector: SelectorOptions = field(default_factory=SelectorOptions)
    outlooks: bool = True
    callers: CallerLimits = field(default_factory=CallerLimits)


async def serve_allocator(
    bus: BusAddress,
    parts: AllocatorParts,
    *,
    address: str,
    hooks: PartHooks,
    listening: Callable[[str], None] | None = None,
    agents_listening: Callable[[str], None] | None = None,
) -> None:
    """Answer gRPC at `address` and keep the job board.

    `listening` is told the bound address, `agents_listening` that of the agents' port.

    Raises
    ------
    ConfigError
        An address is taken, or the keys of agents cannot be used.
    """
    from spotline.adapters.grpc.allocator.job_feed import JobFeed
    from spotline.adapters.grpc.allocator.outlooks import BackgroundOutlooks
    from spotline.adapters.grpc.allocator.server import RpcServer
    from spotline.adapters.grpc.allocator.standing import JobViews
    from spotline.adapters.grpc.configurator.client import ConfiguratorClient
    from spotline.application.allocator.handler import JobsHandler

    async with AsyncExitStack() as stack:
        connection, stream = await stack.enter_async_context(open_stream(bus, name="allocator"))
        configurator = None
        if parts.configurator_address:
            configurator = await stack.enter_async_context(
                ConfiguratorClient(
                    parts.configurator_address,
                    caller="allocator",
                    identity=hooks.client_identity("allocator"),
                )
            )
        feed = JobFeed()
        listeners: list[Listener] = [_both(feed.on_applied, hooks.on_applied)]
        host = ServiceHost(JobsHandler(parts.selector), stream, on_applied=_all(listeners))
        hooks.note("allocator", host, connection)
        outlooks = None
        if parts.outlooks:
            outlooks = BackgroundOutlooks(host, telemetry_for("allocator"))
            stack.callback(outlooks.close)
            listeners.append(outlooks.on_applied)
        side = None
        if parts.agents is not None:
            side = await AgentSide.open(parts.agents, host, connection, bus, stream)
            listeners.append(side.on_applied)
        server = RpcServer(
            host,
            feed,
            address=address,
            configurator=configurator,
            await_admission=parts.await_admission,
            output=None if side is None else side.output,
            quote_margin=parts.quote_margin,
            views=JobViews(host, feed, outlooks=outlooks),
        )
        server.bound_by(parts.callers)
        server.hold_to(parts.selector)
        await stack.enter_async_context(hooks.doors("allocator", server, agents=side))
        explainer = LiveExplainer(bus, parts.selector)
        stack.callback(explainer.close)
        server.read_log(explainer, stream)
        beside: dict[str, Coroutine[Any, Any, None]] = {
            "health_of_others": _heard(host, server, connection, hooks).run()
        }
        if outlooks is not None:
            beside["outlooks"] = outlooks.run()
        serving = ServedHost(
            host=host,
            server=server,
            listening=listening,
            show=partial(server.attend, partial(hooks.ready, "allocator")),
        )
        await _run_allocator(serving, side, beside, agents_listening)


async def _run_allocator(
    serving: ServedHost,
    side: AgentSide | None,
    beside: Mapping[str, Coroutine[Any, Any, None]],
    agents_listening: Callable[[str], None] | None,
) -> None:
    """Serve, with the agents' port and what else runs beside it, until the host ends."""
    async with asyncio.TaskGroup() as tasks:

        async def answer_agents() -> None:
            if side is not None:
                bound = await side.start(tasks)
                if agents_listening is not None:
                    agents_listening(bound)

        running = [tasks.create_task(work, name=name) for name, work in beside.items()]
        try:
            await answer_while_following(tasks, serving, prepare=answer_agents)
        finally:
            for task in running:
                task.cancel()
            if side is not None:
                await side.stop()


def _heard(
    host: ServiceHost[JobsState], server: RpcServer, connection: NatsConnection, hooks: PartHooks
) -> HeardServices:
    """Listens to the health of all services, of which the server tells from now on."""
    from spotline.adapters.nats.heartbeats import HeardServices

    limits = limits_of(hooks)
    own = tuple if hooks.health is None else hooks.health.statuses
    heard = HeardServices(connection, limits, own=own)
    server.tell_of(heard.statuses, limits)
    hooks.probe("allocator", system_probe(host, heard.statuses, limits))
    return heard


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
            async with hooks.doors("configurator", server), asyncio.TaskGroup() as tasks:
                learning = tasks.create_task(shared.keep_learning(), name="learn")
                try:
                    await answer_while_following(
                        tasks,
                        ServedHost(
                            host=host,
                            server=server,
                            listening=listening,
                            show=partial(server.attend, partial(hooks.ready, "configurator")),
                        ),
                        prepare=shared.start,
                    )
                finally:
                    learning.cancel()
        finally:
            shared.close()


def _runs_of(knowledge: Path | None) -> Sequence[MeasuredRun]:
    if knowledge is None:
        return ()
    # Reading a table takes libraries that no other service here needs.
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
        show = partial(server.attend, partial(hooks.ready, "placer"))
        async with hooks.doors("placer", server), asyncio.TaskGroup() as tasks:
            await answer_while_following(
                tasks, ServedHost(host=host, server=server, listening=listening, show=show)
            )


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

    async with open_stream(bus, name="analytics") as (connection, log):
        stream = await open_part(connection, bus, StreamPart.STATISTICS)
        analytics = Analytics(
            AnalyticsSettings(
                nats_url=bus.nats_url,
                identity=None if bus.identity is None else bus.identity.of("analytics"),
                partition=bus.partition,
                worker=parts.worker,
                lease_s=parts.lease_s,
                options=parts.options,
            ),
            log,
            stream,
        )
        hooks.note("analytics", analytics, connection)
        server = AnalyticsServer(analytics, address=address)
        async with hooks.doors("analytics", server):
            try:
                bound = await server.start()
                if listening is not None:
                    listening(bound)
                async with asyncio.TaskGroup() as tasks:
                    showing = tasks.create_task(server.attend(partial(hooks.ready, "analytics")))
                    try:
                        await analytics.run()
                    finally:
                        showing.cancel()
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
            bus,
            parts,
            address=address,
            hooks=PartHooks(
                started=note, health=hooks.health, identity=hooks.identity, audit=hooks.audit
            ),
            listening=tell,
        ),
        name="analytics",
    )


def _all(listeners: Sequence[Listener]) -> Listener:
    """Call every listener of a list, also those that are added later."""

    def tell(event: Any, envelope: Any, seq: int) -> None:
        for listener in listeners:
            listener(event, envelope, seq)

    return tell


def _both(first: Listener, second: Listener | None) -> Listener:
    if second is None:
        return first

    def tell(event: Any, envelope: Any, seq: int) -> None:
        first(event, envelope, seq)
        second(event, envelope, seq)

    return tell
