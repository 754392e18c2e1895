"""All services in one process, over one broker: what `spotline up` and `spotline demo` run."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from spotline.adapters.ledger.opening import ledger_url
from spotline.application.allocation.on_demand_quote import DEFAULT_QUOTE_MARGIN
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.application.health.conditions import HealthLimits
from spotline.application.market_ingest.continuing import MarketIdentity, identity_of
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.placer.options import PlacerOptions
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.agents import AgentsAt, host_of
from spotline.bootstrap.auditing import AuditAt
from spotline.bootstrap.bus_identities import bus_identities
from spotline.bootstrap.clouds import ChosenCloud, chosen_cloud
from spotline.bootstrap.followers import (
    ActuatorParts,
    geography_of,
    serve_cloud_actuator,
    serve_forecaster,
    serve_market_ingest,
    serve_selector,
)
from spotline.bootstrap.health import HealthMonitor, HealthProbes
from spotline.bootstrap.identity import IdentityAt, InstalledIdentity, serve_in_the_clear
from spotline.bootstrap.installed import LEDGER_OWNER as LEDGER_OWNER
from spotline.bootstrap.installed import (
    checked_store,
    used_store,
)
from spotline.bootstrap.live import NO_FEEDS, LiveFeeds
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.read_model import SignInLink, serve_read_model
from spotline.bootstrap.same_market import check_same_market, market_of_wall_clock
from spotline.bootstrap.servers import (
    AllocatorParts,
    AnalyticsParts,
    serve_allocator,
    serve_analytics_apart,
    serve_configurator,
    serve_placer,
)
from spotline.bootstrap.settled_log import noted_at_the_end, settle_log
from spotline.bootstrap.tables import tables_of_this_machine
from spotline.contracts.batch import MOST_EVENTS
from spotline.contracts.errors import ConfigError
from spotline.contracts.limits import CallerLimits
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.learning_rules import ALL_RULES, LearningRules
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market import Market
from spotline.domain.market.notice import sold_by
from spotline.domain.market.prior_laws import shipped_priors
from spotline.domain.modes import Mode
from spotline.domain.placement.geography import Geography
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.service import Listener
from spotline.runtime.timers import Gate

_log = structlog.get_logger(__name__)

# Loopback and any free port.
FREE_ADDRESS = "127.0.0.1:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemOptions:
    """Everything that shapes a run; `nats_url` empty starts a broker in `store`.

    `knowledge` is a file of measured runs, `knowledge_stack` the software stack to assume of jobs that do not
    state how fast they are. `geography` is a file of regions and links to place pipelines on. `most_events`
    bounds how many events go into one entry of the log. Agents dial `advertise` (empty: `agents_address` as it
    was bound); a second of wall time has `market_s_per_s` of the market's. The read model answers HTTP at
    `http_address` (empty: nowhere), called by `http_hosts`, too. By the wall clock (`ingest`) the market given
    begins now; that of a log goes on as it began. A job without a value is worth (1 + `quote_margin`) x its
    on-demand quote, which is recorded with it. With `outlooks` every job is quoted, and looked ahead for while
    it runs, at a third of a core at most. From the limits `health` on it is told that something is not well.
    `agreement` is how log, ledger and cloud are compared, `callers` how much is taken from callers at a time.
    In a `mode` on paper `cloud` is never opened. A live market is quoted by `feeds`, and its slots open by
    their clock. By `identity` servers and broker speak TLS and know who calls; None: they serve in the clear
    whoever reaches them. An external NATS is asked for TLS where `nats_url` is `tls://...`, and knows our keys.
    """

    market: AnyMarket
    store: Path
    nats_url: str = field(default="", repr=False)  # it may hold a password
    partition: int = 0
    most_events: int = MOST_EVENTS
    allocator_address: str = FREE_ADDRESS
    allocate_timeout_s: float = 10.0
    quote_margin: float = DEFAULT_QUOTE_MARGIN
    configurator_address: str = FREE_ADDRESS
    knowledge: Path | None = None
    knowledge_stack: str = ""
    placer_address: str = FREE_ADDRESS
    geography: Path | None = None
    placer: PlacerOptions = field(default_factory=PlacerOptions)
    analytics_address: str = FREE_ADDRESS
    http_address: str = ""
    http_hosts: tuple[str, ...] = ()
    statistics: StatisticsOptions = field(default_factory=StatisticsOptions)
    forecaster: str = DEFAULT_FORECASTER
    horizon_slots: int = 6
    learning: LearningRules = ALL_RULES
    priors: bool = False
    ingest: IngestOptions = field(default_factory=IngestOptions)
    selector: SelectorOptions = field(default_factory=SelectorOptions)
    cloud: ChosenCloud = field(default_factory=chosen_cloud)
    caps: Caps = field(default_factory=Caps)
    agents_address: str = FREE_ADDRESS
    advertise: str = ""
    agent_times: AgentTimes = field(default_factory=AgentTimes)
    market_s_per_s: float = 1.0
    outlooks: bool = True
    health: HealthLimits = field(default_factory=HealthLimits)
    agreement: AgreementRules = field(default_factory=AgreementRules)
    callers: CallerLimits = field(default_factory=CallerLimits)
    identity: IdentityAt | None = None
    mode: Mode = Mode.LIVE
    feeds: LiveFeeds = NO_FEEDS

    def __post_init__(self) -> None:
        if isinstance(self.market, LiveMarket) and not (
            self.feeds.feeds and self.ingest.wall_clock
        ):
            raise ValueError(
                "a live market needs feeds, and ingest.wall_clock that opens its slots"
            )
        if self.mode.on_paper is not (self.cloud.paper is not None):
            raise ValueError(f"cloud must be on paper where mode is, mode was {self.mode.value}")

    @property
    def recorded_market(self) -> Market:
        """The market, of which all is known; `ConfigError` where it is live."""
        if not isinstance(self.market, Market):
            raise ConfigError(
                f"market: expected a market file, found the live {self.market.source}"
            )
        return self.market

    def installed_identity(self) -> InstalledIdentity | None:
        """The identity, its servers reached as these options say; None for none.

        Raises
        ------
        ConfigError, ContractError
            Its folder, or its file of issuers, cannot be used.
        """
        if self.identity is None:
            return None
        bound = (
            *(self.allocator_address, self.configurator_address, self.placer_address),
            *(self.analytics_address, self.http_address),
        )
        hosts = (*self.identity.hosts, *map(host_of, bound), *self.http_hosts)
        return InstalledIdentity(replace(self.identity, hosts=hosts))

    def market_lease_s(self) -> int | None:
        """Seconds of market time that an instance goes on without us, None without end."""
        if self.mode.on_paper or not self.cloud.in_wall_time:
            return None
        return self.agents().times.market_lease_s

    def agents(self) -> AgentsAt:
        """Where agents dial in; `ConfigError` where that cannot be."""
        return AgentsAt(
            address=self.agents_address,
            folder=self.store / "agents",
            advertise=self.advertise,
            times=replace(self.agent_times, market_s_per_s=self.market_s_per_s),
            documents=self.cloud.documents,
        )

    def settings(self) -> dict[str, Any]:
        """What a log's manifest says of every service; verification rebuilds handlers from it."""
        return {
            "market_ingest": {
                **asdict(self.ingest),
                "source": self.market.source,
                "geography_sha256": _sha256(self.geography),
                **(self.feeds.described() if self.feeds.feeds else {}),
            },
            "forecaster": {
                "forecaster": self.forecaster,
                "horizon_slots": self.horizon_slots,
                **asdict(self.learning),
                "priors_sha256": shipped_priors().sha256 if self.priors else "",
            },
            "selector": asdict(self.selector),
            "allocator": {"allocate_timeout_s": self.allocate_timeout_s},
            "configurator": {
                "knowledge_sha256": _sha256(self.knowledge),
                "stack": self.knowledge_stack,
            },
            "placer": asdict(self.placer),
            "analytics": self.statistics.settings(),
            "cloud_actuator": self.cloud.described(),
        }


def _sha256(file: Path | None) -> str:
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


@dataclass(slots=True, kw_only=True)
class RunningSystem:
    """A run in progress: where its broker and gRPC servers are, and how its services fare."""

    bus: BusAddress
    ledger_url: str = field(repr=False)  # it may hold a password
    allocator_address: str = ""
    agents_address: str = ""
    configurator_address: str = ""
    placer_address: str = ""
    analytics_address: str = ""
    http_address: str = ""
    sign_in_path: str = field(default="", repr=False)  # of a link that signs in once
    probes: HealthProbes = field(default_factory=HealthProbes)


@asynccontextmanager
async def running_system(
    options: SystemOptions,
    *,
    gate: Gate | None = None,
    listeners: Mapping[str, Listener] | None = None,
) -> AsyncIterator[RunningSystem]:
    """Run broker and services inside `async with`; entered when gRPC is being answered.

    `listeners` by service name hear what that service applies.

    Raises
    ------
    ConfigError
        The store is in use, or was made with another market or geography; the broker is too old,
        an address taken.
    ContractError
        The geography file is absent or not what it should be.
    """
    geography = await asyncio.to_thread(geography_of, options.geography)
    traded = sold_by(options.market, options.cloud.notice_lead_s)
    identity = identity_of(traded, geography)
    known = checked_store(
        options.store, identity, partition=options.partition, from_now=options.ingest.wall_clock
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(tables_of_this_machine())
        options.store.mkdir(parents=True, exist_ok=True)
        identities = None
        if options.identity is not None:
            identities = await asyncio.to_thread(
                bus_identities, options.identity.store, options.nats_url
            )
        url = options.nats_url
        if not url:
            access = None if identities is None else identities.access(options.partition)
            broker = EmbeddedBroker(options.store / "broker", access=access)
            url = (await stack.enter_async_context(broker)).url
        bus = BusAddress(
            nats_url=url,
            partition=options.partition,
            identity=identities,
            most_events=options.most_events,
        )
        await settle_log(bus, options.store)
        if options.ingest.wall_clock:
            traded = await market_of_wall_clock(bus, traded, before=known.market)
        await check_same_market(bus, traded, geography, mode=options.mode)
        used_store(options.store, identity, partition=options.partition)
        system = RunningSystem(
            bus=bus,
            ledger_url=ledger_url(options.store / "ledger.sqlite"),
            probes=HealthProbes(limits=options.health),
        )
        # Called when all services have ended, and the broker has not.
        stack.push_async_exit(partial(noted_at_the_end, bus, options.store))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        installed = await asyncio.to_thread(options.installed_identity)
        audit = AuditAt(store=options.store)
        services = _Services(system, tasks, _Given(listeners or {}, gate, installed, audit))
        watched_by = bus.connection("health")
        services.watch(HealthMonitor(watched_by, system.probes, partition=options.partition))
        # Leaving the block ends the services; called before the group waits for them.
        stack.callback(services.cancel)
        await _start_servers(services, options)
        stack.callback(await asyncio.to_thread(_told_clients, system, installed))
        _start_followers(services, options, _Traded(traded, known.market, geography))
        yield system


def _told_clients(system: RunningSystem, identity: InstalledIdentity | None) -> Callable[[], None]:
    """Tell this machine's clients how to speak to the servers; the result takes it back."""
    stated = (
        *(system.allocator_address, system.configurator_address, system.placer_address),
        *(system.analytics_address, system.http_address),
    )
    addresses = [address for address in stated if address]
    if identity is not None:
        return identity.publish(addresses)
    serve_in_the_clear(addresses)
    return lambda: None


@dataclass(frozen=True, slots=True)
class _Given:
    """What the host of a system hands to its services."""

    listeners: Mapping[str, Listener]
    gate: Gate | None
    identity: InstalledIdentity | None
    audit: AuditAt


@dataclass(frozen=True, slots=True)
class _Traded:
    """The market on its grid, that of the store before, and where pipelines run."""

    market: AnyMarket
    before: MarketIdentity | None
    geography: Geography | None


class _Services:
    """The services of a system, each in a task of its own."""

    def __init__(
        self,
        system: RunningSystem,
        tasks: asyncio.TaskGroup,
        given: _Given,
    ) -> None:
        self.system = system
        self._tasks = tasks
        self._given = given
        self._running: list[asyncio.Task[None]] = []

    def hooks(self, service: str) -> PartHooks:
        """What a service tells of itself; its timers wait for the gate where they need one."""
        return PartHooks(
            started=self.system.probes.note,
            on_applied=self._given.listeners.get(service),
            gate=self._given.gate,
            health=self.system.probes,
            identity=self._given.identity,
            audit=self._given.audit,
        )

    def sign_in_link(self) -> SignInLink | None:
        """A link for the person who runs it; None where nobody is asked who he is."""
        known, told = self._given.identity, partial(setattr, self.system, "sign_in_path")
        return None if known is None else SignInLink(token=known.owners_token(), told=told)

    def watch(self, monitor: HealthMonitor) -> None:
        """Watch all of them, until they end."""
        self._running.append(self._tasks.create_task(monitor.run(), name="health"))

    def start(self, service: str, serve: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Start a service that only follows the log."""
        work = serve(self.system.bus, hooks=self.hooks(service))
        self._running.append(self._tasks.create_task(work, name=service))

    async def listening(self, service: str, serve: Callable[..., Awaitable[None]]) -> str:
        """Start a service that answers gRPC, and wait for its address."""
        bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def served(bus: BusAddress, *, hooks: PartHooks) -> None:
            await serve(bus, hooks=hooks, listening=bound.set_result)

        self.start(service, served)
        return await bound

    def cancel(self) -> None:
        """Ask all to end."""
        for task in self._running:
            task.cancel()


async def _start_servers(services: _Services, options: SystemOptions) -> None:
    system = services.system
    system.configurator_address = await services.listening(
        "configurator",
        partial(
            serve_configurator,
            address=options.configurator_address,
            knowledge=options.knowledge,
            stack=options.knowledge_stack,
        ),
    )

    def agents_listening(bound: str) -> None:
        system.agents_address = bound

    system.allocator_address = await services.listening(
        "allocator",
        partial(
            serve_allocator,
            parts=AllocatorParts(
                configurator_address=system.configurator_address,
                agents=options.agents(),
                quote_margin=options.quote_margin,
                selector=options.selector,
                outlooks=options.outlooks,
                callers=options.callers,
            ),
            address=options.allocator_address,
            agents_listening=agents_listening,
        ),
    )
    system.placer_address = await services.listening(
        "placer", partial(serve_placer, options=options.placer, address=options.placer_address)
    )
    system.analytics_address = await services.listening(
        "analytics",
        partial(
            serve_analytics_apart,
            parts=AnalyticsParts(options=options.statistics),
            address=options.analytics_address,
        ),
    )
    if options.http_address:
        system.http_address = await services.listening(
            "read_model",
            partial(
                serve_read_model,
                address=options.http_address,
                hosts=options.http_hosts,
                allocator_address=system.allocator_address,
                link=services.sign_in_link(),
            ),
        )


def _start_followers(services: _Services, options: SystemOptions, traded: _Traded) -> None:
    system = services.system
    parts = ActuatorParts(
        cloud=options.cloud,
        mode=options.mode,
        store=options.store,
        ledger_url=system.ledger_url,
        owner=LEDGER_OWNER,
        caps=options.caps,
        enrolment=options.agents().enrolment(system.agents_address),
        market_s_per_s=options.market_s_per_s,
        agreement=options.agreement,
        lease_s=options.market_lease_s(),
    )
    services.start("cloud_actuator", partial(serve_cloud_actuator, parts=parts))
    services.start(
        "forecaster",
        partial(
            serve_forecaster,
            forecaster=options.forecaster,
            horizon_slots=options.horizon_slots,
            learning=options.learning,
            priors=options.priors,
        ),
    )
    services.start(
        "selector",
        partial(
            serve_selector,
            options=options.selector,
            allocator_address=system.allocator_address,
            allocate_timeout_s=options.allocate_timeout_s,
        ),
    )
    services.start(
        "market_ingest",
        partial(
            serve_market_ingest,
            market=traded.market,
            options=options.ingest,
            geography=traded.geography,
            modes=options.cloud.modes(options.mode),
            feeds=options.feeds,
            before=traded.before,
        ),
    )
