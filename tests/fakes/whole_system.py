"""A whole system on a store, whose market stands still at a slot, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.identity import IdentityAt
from spotline.bootstrap.parts import open_stream
from spotline.bootstrap.system import LEDGER_OWNER, RunningSystem, SystemOptions, running_system
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job
from spotline.domain.market.generate import generate
from spotline.replay.handlers import handlers_of
from spotline.replay.verify import verify
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.timers import Timer
from tests.eventually import PATIENCE_S
from tests.fakes.allocator import job
from tests.fakes.jetstream import jetstream_of
from tests.fakes.log_losses import delete_log
from tests.fakes.recorded_run import environment, manifest_of

START_NS = 1_772_323_200 * 10**9
SLOT_S = 1800
MARKET = generate("mixed", seed=11, slots=24, slot_s=SLOT_S, start_ns=START_NS)
DEADLINE_NS = START_NS + 23 * SLOT_S * 10**9
JOBS = tuple(
    replace(
        job(f"r{number}", tenant=f"tenant-{number % 2}", instance_hours=12.0, counts=(2,)),
        deadline=Deadline(kind=DeadlineKind.HARD, at_ns=DEADLINE_NS, expires_ns=DEADLINE_NS),
    )
    for number in range(3)
)


def options(store: Path, *, identity: bool = False) -> SystemOptions:
    patient = SelectorOptions(forecast_timeout_s=90, rehearsals=0)
    return SystemOptions(
        market=MARKET,
        store=store,
        allocate_timeout_s=90,
        selector=patient,
        outlooks=False,
        identity=IdentityAt(store=store) if identity else None,
    )


@asynccontextmanager
async def until_slot(
    store: Path,
    slot: int,
    jobs: Sequence[Job] = (),
    *,
    identity: bool = False,
    given: SystemOptions | None = None,
) -> AsyncIterator[RunningSystem]:
    """A system that takes the jobs first, and whose market stands still when a slot is settled."""
    go, reached = asyncio.Event(), asyncio.Event()

    async def gate(timer: Timer) -> None:
        await go.wait()
        if int(timer.timer_id.removeprefix("slot:")) > slot:
            await asyncio.Event().wait()

    def on_applied(event: Event, envelope: object, seq: int) -> None:
        if isinstance(event, CapacityReported) and event.slot == slot and event.settled:
            reached.set()

    listeners = {"market_ingest": on_applied}
    chosen = given or options(store, identity=identity)
    async with running_system(chosen, gate=gate, listeners=listeners) as system:
        async with JobClient(system.allocator_address) as client:
            for each in jobs:
                await submit_until_taken(client, each)
        go.set()
        await asyncio.wait_for(reached.wait(), PATIENCE_S)
        yield system


async def log_in(store: Path) -> list[StoredEntry]:
    async with EmbeddedBroker(store / "broker") as broker, opened_log(broker) as stream:
        return [entry async for entry in stream.read([], last_seq=await stream.last_seq())]


@asynccontextmanager
async def opened_log(broker):
    from spotline.bootstrap.parts import BusAddress

    async with open_stream(BusAddress(nats_url=broker.url), name="test") as (_, stream):
        yield stream


def events_in(log: Sequence[StoredEntry]) -> list[Event]:
    found: list[Event] = []
    for entry in log:
        try:
            found += [event_of(event) for event in unpacked(entry)]
        except ContractError:
            continue
    return found


def ledger_of(store: Path) -> tuple[dict[str, int], list[str], Counter[str]]:
    """Spend by job, all instances that were ever launched, and how many each job holds now."""
    ledger = SqlLedger.looked_at(ledger_url(store / "ledger.sqlite"), LEDGER_OWNER)
    try:
        launched = [row["instance_id"] for row in ledger.comparable()["instances"]]
        held = Counter(instance.job_id for instance in ledger.held())
        return dict(ledger.spend_by_job()), launched, held
    finally:
        ledger.close()


async def wipe(store: Path) -> None:
    async with EmbeddedBroker(store / "broker") as broker, opened_log(broker) as stream:
        await delete_log(await jetstream_of(stream._connection))


def verified(log: Sequence[StoredEntry], store: Path) -> None:
    report = verify(
        log, handlers_of(options(store).settings()), manifest_of(log), here=environment()
    )
    assert report.divergences == ()
    assert report.exit_code == 0
