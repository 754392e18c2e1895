"""The services that follow the log and answer no calls, running until cancelled."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.nats.snapshots import NatsSnapshotStore
from spotline.application.cloud_actuator.ports import ActuatorMode
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.state import SelectorOptions
from spotline.bootstrap.parts import BusAddress, PartHooks, open_stream
from spotline.contracts.errors import ConfigError
from spotline.contracts.mapping import digest
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.market import Market
from spotline.domain.placement.geography import Geography
from spotline.runtime.service import ServiceHost
from spotline.runtime.snapshots import Snapshots
from spotline.runtime.telemetry import telemetry_for


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
