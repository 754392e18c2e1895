"""The five services in one process, each to be stopped, replaced or held back by a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Handler, Timer
from spotline.bootstrap.clouds import ChosenCloud, chosen_cloud
from spotline.bootstrap.followers import (
    ActuatorParts,
    serve_cloud_actuator,
    serve_forecaster,
    serve_market_ingest,
    serve_selector,
)
from spotline.bootstrap.parts import BusAddress, HealthProbes, PartHooks, open_stream
from spotline.bootstrap.servers import AllocatorParts, serve_allocator
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import subjects_with
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.event import Event
from spotline.domain.jobs.job import Job
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.market import Market
from spotline.domain.modes import Mode
from spotline.runtime.service import ServiceHost

Hook = Callable[[], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Composed:
    """A running system under test.

    `before_slot[k]` is awaited before slot k opens; `ended` is set when the market is over.
    """

    bus: BusAddress
    address: str
    stream: NatsEventStream
    tasks: dict[str, asyncio.Task[None]]
    group: asyncio.TaskGroup
    probes: HealthProbes
    before_slot: dict[int, Hook] = field(default_factory=dict)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def gate(self, timer: Timer) -> None:
        """Hold the market's clock until the test lets it go."""
        await self.go.wait()
        slot = int(timer.timer_id.removeprefix("slot:"))
        hook = self.before_slot.get(slot)
        if hook is not None:
            await hook()

    async def stop(self, service: str) -> None:
        """End a service."""
        task = self.tasks.pop(service)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def start_forecaster(self, name: str = "persistence") -> None:
        """Start the real forecaster service."""
        work = serve_forecaster(
            self.bus, forecaster=name, horizon_slots=6, priors=False, hooks=PartHooks()
        )
        self.tasks["forecaster"] = self.group.create_task(work)

    def start_handler(self, service: str, handler: Handler[object]) -> None:
        """Host another handler in a service's place."""

        async def serve() -> None:
            async with open_stream(self.bus, name=service) as (_, stream):
                await ServiceHost(handler, stream).run()

        self.tasks[service] = self.group.create_task(serve())

    async def submit(self, jobs: Sequence[Job]) -> None:
        """Hand jobs over gRPC."""
        async with JobClient(self.address) as client:
            for job in jobs:
                await submit_until_taken(client, job)

    async def events(self, event_type: type[Event]) -> list[Event]:
        """All recorded events of a type."""
        last = await self.stream.last_seq()
        entries = self.stream.read(subjects_with([event_type]), last_seq=last)
        found = [event async for entry in entries for event in readable(entry)]
        return [event for event in found if isinstance(event, event_type)]

    async def wait_for(self, event_type: type[Event], until: Callable[[Event], bool]) -> Event:
        """Wait for an event."""
        subscription = await self.stream.subscribe("test_wait", subjects_with([event_type]))
        try:
            while True:
                for entry in await subscription.fetch(limit=50, timeout_s=1.0):
                    await subscription.ack(entry)
                    for event in readable(entry):
                        if isinstance(event, event_type) and until(event):
                            return event
        finally:
            await subscription.close()


def readable(entry: StoredEntry) -> list[Event]:
    """The events of an entry; none for garbage that a test has planted."""
    try:
        return [event_of(one) for one in unpacked(entry)]
    except ContractError:
        return []


@asynccontextmanager
async def composed(
    nats_url: str,
    folder: Path,
    market: Market,
    *,
    selector: SelectorOptions,
    cloud: ChosenCloud | None = None,
    forecaster: str = "persistence",
) -> AsyncIterator[Composed]:
    """Start all services; the market waits for `go`."""
    bus = BusAddress(nats_url=nats_url)
    probes = HealthProbes()
    watched = PartHooks(started=probes.note)
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    parts = ActuatorParts(
        cloud=cloud or chosen_cloud(),
        mode=Mode.LIVE,
        store=folder,
        ledger_url=ledger_url(folder / "ledger.sqlite"),
        owner="default",
        caps=Caps(),
    )
    async with open_stream(bus, name="test") as (_, stream), asyncio.TaskGroup() as group:
        tasks = {
            "allocator": group.create_task(
                serve_allocator(
                    bus,
                    AllocatorParts(),
                    address="127.0.0.1:0",
                    hooks=watched,
                    listening=listening.set_result,
                )
            ),
            "cloud_actuator": group.create_task(serve_cloud_actuator(bus, parts, watched)),
        }
        system = Composed(
            bus=bus,
            address=await listening,
            stream=stream,
            tasks=tasks,
            group=group,
            probes=probes,
        )
        tasks["selector"] = group.create_task(
            serve_selector(
                bus,
                selector,
                allocator_address=system.address,
                # Beyond it another decision is made: no test here is about that.
                allocate_timeout_s=90.0,
                hooks=watched,
            )
        )
        tasks["market_ingest"] = group.create_task(
            serve_market_ingest(bus, market, IngestOptions(), PartHooks(gate=system.gate))
        )
        if forecaster:
            system.start_forecaster(forecaster)
        try:
            yield system
        finally:
            for task in system.tasks.values():
                task.cancel()
