"""The services that follow the log and answer no calls, running until cancelled."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.adapters.nats.configured import DECISIONS_KEPT, StreamLimits
from spotline.adapters.nats.snapshots import NatsSnapshotStore
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.application.cloud_actuator.ports import Enrolment
from spotline.application.health.flow import snapshot
from spotline.application.installation import Installation
from spotline.application.market_ingest.continuing import MarketIdentity
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions, IngestState
from spotline.application.market_ingest.opening import doubted_by_reason
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.clouds import ChosenCloud, CloudContext
from spotline.bootstrap.facts import (
    MarketWatch,
    WatchedSnapshots,
    free_space,
    ledger_folder,
    limits_of,
)
from spotline.bootstrap.installed import installation_of, note_end, note_last, remembered_log
from spotline.bootstrap.live import NO_FEEDS, FeedWatch, LiveFeeds
from spotline.bootstrap.parts import BusAddress, PartHooks, open_part, open_stream
from spotline.bootstrap.same_market import check_same_market, market_of_wall_clock
from spotline.contracts.errors import ConfigError
from spotline.contracts.mapping import digest
from spotline.contracts.subjects import StreamPart
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.learning_rules import ALL_RULES, LearningRules
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.modes import LIVE_FROM_THE_START, Mode, StatedModes
from spotline.domain.placement.geography import Geography
from spotline.runtime.fan_out import FanOut
from spotline.runtime.lineage import SnapshotsOfLog
from spotline.runtime.metrics import REASON, Readings
from spotline.runtime.retelling import tell_again
from spotline.runtime.service import ServiceHost
from spotline.runtime.snapshots import Snapshots
from spotline.runtime.stream import EventStream
from spotline.runtime.telemetry import telemetry_for

if TYPE_CHECKING:
    from spotline.application.cloud_actuator.handler import ActuateState
    from spotline.bootstrap.cloud_signals import BillSettling, CloudSignals


def geography_of(file: Path | None) -> Geography | None:
    """The geography of a file, None without one; `ContractError` as `read_geography`."""
    if file is None:
        return None
    # Validating a file takes libraries that not everybody here needs.
    from spotline.adapters.files.geography.geography_file import read_geography

    return read_geography(file)


def _check_rented(geography: Geography | None, market: AnyMarket) -> None:
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
    market: AnyMarket,
    options: IngestOptions,
    hooks: PartHooks,
    *,
    geography: Geography | None = None,
    modes: StatedModes = LIVE_FROM_THE_START,
    feeds: LiveFeeds = NO_FEEDS,
    before: MarketIdentity | None = None,
) -> None:
    """Open the market's slots, and show the geography along with them.

    By the wall clock a market begins when it was opened first: what is given begins now. Where the
    log was lost, the store remembers the market of `before`. What the feeds of a live market say is
    recorded as long as its slots open.

    Raises
    ------
    ConfigError
        A region is rented as an offering that the market does not have, or the log has another
        market or mode.
    """
    if options.wall_clock:
        market = await market_of_wall_clock(bus, market, before=before)
    _check_rented(geography, market)
    await check_same_market(bus, market, geography, mode=modes.run)
    async with open_stream(bus, name="market_ingest") as (connection, stream):
        clock = MarketWatch(market, options, hooks.gate, clock=feeds.clock)
        host = ServiceHost(
            IngestHandler(market, options, geography, modes, feeds.clock, feeds.overrides),
            stream,
            gate=clock.gate,
            on_applied=hooks.on_applied,
        )
        hooks.note("market_ingest", host, connection)
        hooks.probe("market_ingest", clock.probe(host, limits_of(hooks)))
        stop_showing = telemetry_for("market_ingest").observe(
            "spotline.offerings.doubted", lambda: _doubted(host.state)
        )
        try:
            await _fed(host, stream, market, feeds, hooks)
        finally:
            stop_showing()


async def _fed(
    host: ServiceHost[IngestState],
    stream: EventStream,
    market: AnyMarket,
    feeds: LiveFeeds,
    hooks: PartHooks,
) -> None:
    """Run the host, and record what the feeds of its market say for as long as it runs."""
    if not isinstance(market, LiveMarket):
        await host.run()
        return
    watch = FeedWatch(feeds, market)
    hooks.probe("market_ingest", watch.judged)
    try:
        async with asyncio.TaskGroup() as tasks:
            following = [
                tasks.create_task(watch.record(feed, host, stream), name=f"feed:{feed.name}")
                for feed in feeds.feeds
            ]
            try:
                await host.run()
            finally:
                for task in following:
                    task.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


def _doubted(state: IngestState) -> Readings:
    # Copied at once: whoever reads metrics is in a thread of its own.
    counts = doubted_by_reason(tuple(state.frozen))
    return [(count, {REASON: reason.value}) for reason, count in counts.items()]


async def serve_forecaster(
    bus: BusAddress,
    *,
    forecaster: str,
    horizon_slots: int,
    hooks: PartHooks,
    learning: LearningRules = ALL_RULES,
    priors: bool = False,
) -> None:
    """Forecast every slot; laws are learned by `learning`, with `priors` drawn towards those in the wheel."""
    # River takes a second to import; only this service needs it.
    from spotline.application.forecaster.handler import ForecastHandler, ForecastStateCodec
    from spotline.domain.forecasting.registry import forecaster_factory
    from spotline.domain.market.prior_laws import NO_PRIORS, shipped_priors

    factory = forecaster_factory(forecaster)
    async with open_stream(bus, name="forecaster") as (connection, stream):
        saving = WatchedSnapshots(NatsSnapshotStore(connection, partition=bus.partition))
        hooks.probe("forecaster", lambda now_s: [snapshot(saving.trouble.failing, now_s)])
        snapshots = Snapshots(
            store=SnapshotsOfLog(saving, stream),
            codec=ForecastStateCodec(
                factory,
                horizon_slots=horizon_slots,
                learning=learning,
            ),
        )
        host = ServiceHost(
            ForecastHandler(
                factory,
                horizon_slots=horizon_slots,
                learning=learning,
                priors=shipped_priors() if priors else NO_PRIORS,
            ),
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
    decisions: StreamLimits = DECISIONS_KEPT,
) -> None:
    """Decide every slot through the allocator at `allocator_address`.

    Decisions are published beside the log, too, and kept there within the limits `decisions`.
    """
    from spotline.adapters.grpc.allocator.allocating import AllocateCallPort

    async with AsyncExitStack() as stack:
        connection, stream = await stack.enter_async_context(open_stream(bus, name="selector"))
        calls = AllocateCallPort(
            allocator_address,
            timeout_s=allocate_timeout_s,
            identity=hooks.client_identity("selector"),
        )
        stack.push_async_callback(calls.close)
        host = ServiceHost(
            SelectHandler(options, digest=digest),
            stream,
            calls=calls.perform,
            on_applied=hooks.on_applied,
        )
        hooks.note("selector", host, connection)
        # On a connection of its own: what it sends does not stand in the way of what is decided.
        beside, log = await stack.enter_async_context(open_stream(bus, name="fan_out"))
        fan_out = FanOut(log, await open_part(beside, bus, StreamPart.DECISIONS, limits=decisions))
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(fan_out.run(), name="fan_out")
            try:
                await host.run()
            finally:
                publishing.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuatorParts:
    """What the actuator acts on; see `services/cloud_actuator/settings.py`.

    Instances that `agreement` may end carry the id of the store's installation. They go on for
    `lease_s` of market time without us; None: without end.
    """

    cloud: ChosenCloud
    mode: Mode
    store: Path
    ledger_url: str = field(repr=False)
    owner: str
    caps: Caps
    enrolment: Enrolment | None = None
    market_s_per_s: float = 1.0
    agreement: AgreementRules = field(default_factory=AgreementRules)
    lease_s: int | None = None

    @property
    def installation(self) -> Installation:
        """Whose store it is; see `installation_of`."""
        return installation_of(self.store)

    def agreement_rules(self) -> AgreementRules:
        """How log, ledger and cloud are compared, for this installation."""
        installation_id = self.installation.installation_id
        reap = replace(self.agreement.reap, installation_id=installation_id)
        return replace(self.agreement, reap=reap)

    def context(self) -> CloudContext:
        """What the cloud is opened on."""
        return CloudContext(
            store=self.store,
            enrolment=self.enrolment,
            market_s_per_s=self.market_s_per_s,
            installation=self.installation,
        )


async def serve_cloud_actuator(bus: BusAddress, parts: ActuatorParts, hooks: PartHooks) -> None:
    """Carry out commands, ledger first."""
    from spotline.adapters.ledger.figures import show_ledger
    from spotline.adapters.ledger.threaded import ThreadedLedger, opened_ledger
    from spotline.application.cloud_actuator.actuation import CloudActuation
    from spotline.application.cloud_actuator.handler import ActuateHandler
    from spotline.application.cloud_actuator.options import ActuationOptions
    from spotline.bootstrap.cloud_signals import BillSettling, CloudSignals, Looks, started

    parts.store.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(opened_ledger(parts.ledger_url, parts.owner))
        remembered = await asyncio.to_thread(remembered_log, parts.store, ledger)
        connection, stream = await stack.enter_async_context(
            open_stream(bus, name="cloud_actuator", remembered=remembered)
        )
        await asyncio.to_thread(
            ledger.claim, remembered.installation_id, stream.continuity.incarnation
        )
        await tell_again(stream, ThreadedLedger(ledger), remembered)
        await note_end(parts.store, stream)
        stack.push_async_callback(note_last, parts.store, stream)
        cloud = parts.cloud.open(parts.context())
        stack.callback(cloud.close)
        stack.callback(show_ledger(telemetry_for("cloud_actuator"), ledger, parts.caps))
        looks, telemetry = Looks(), telemetry_for("cloud_actuator")
        stack.callback(looks.show(telemetry))
        for name, reader in cloud.readings.items():
            stack.callback(telemetry.observe(name, reader))
        actuation = CloudActuation(
            cloud.provider,
            ThreadedLedger(ledger),
            ActuationOptions(
                caps=parts.caps,
                modes=parts.cloud.modes(parts.mode),
                clock=cloud.clock,
                on_look=looks.note,
                agreement=parts.agreement_rules(),
                on_agreed=looks.note_agreed,
                lease_s=parts.lease_s,
                biller=cloud.biller,
                on_settled=looks.note_settled,
            ),
        )
        bills = BillSettling(actuation)
        looks.followed_by = bills.note
        await started(actuation)
        signals = CloudSignals(
            cloud.provider,
            cloud.drive(actuation.perform),
            clock=cloud.clock,
            next_look_ns=lambda: actuation.next_look_ns,
            market_s_per_s=parts.market_s_per_s,
        )
        host = ServiceHost(
            ActuateHandler(), stream, calls=signals.perform, on_applied=hooks.on_applied
        )
        hooks.note("cloud_actuator", host, connection)
        kept = {"the store": parts.store, **ledger_folder(parts.ledger_url)}
        hooks.probe("cloud_actuator", free_space(kept, limits_of(hooks)))
        await _run_with_signals(host, signals, bills)


async def _run_with_signals(
    host: ServiceHost[ActuateState], signals: CloudSignals, bills: BillSettling
) -> None:
    """Run the host, signal and settle until it ends; an error of any ends all, as itself."""
    try:
        async with asyncio.TaskGroup() as tasks:
            signalling = tasks.create_task(signals.run(host), name="cloud_signals")
            settling = tasks.create_task(bills.run(), name="bills")
            await host.run()
            signalling.cancel()
            settling.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
