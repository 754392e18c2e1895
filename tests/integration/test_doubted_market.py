"""The whole system on a market that is not believed, and one by the wall clock that is restarted."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.parts import open_stream
from spotline.bootstrap.system import RunningSystem, SystemOptions, running_system
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import Envelope
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.runtime.timers import Timer
from tests.eventually import PATIENCE_S
from tests.fakes.recorded_run import small_market
from tests.replay.test_price_sanity import early, steady, thousandfold

pytestmark = pytest.mark.integration

SLOTS = 48


@dataclass(frozen=True, slots=True)
class Ran:
    """What the log of a run says, each event with when it was stored, and what the ledger does."""

    events: Sequence[tuple[Event, int]]
    billed_micro_usd: int

    def of(self, *kinds: type[Event]) -> list[Event]:
        return [event for event, _ in self.events if isinstance(event, kinds)]


async def logged(system: RunningSystem) -> list[tuple[Event, int]]:
    async with open_stream(system.bus, name="test") as (_, stream):
        return [
            (event_of(one), entry.stored_ns)
            async for entry in stream.read([], last_seq=await stream.last_seq())
            for one in unpacked(entry)
        ]


def options(market: Market, store: Path, ingest: IngestOptions) -> SystemOptions:
    return SystemOptions(
        market=market,
        store=store,
        ingest=ingest,
        forecaster="persistence",
        selector=SelectorOptions(rehearsals=0, forecast_timeout_s=60.0),
        outlooks=False,
    )


async def run_whole(market: Market, store: Path, jobs: Sequence[Job]) -> Ran:
    """Run a market to its end."""
    go, ended = asyncio.Event(), asyncio.Event()

    async def gate(timer: Timer) -> None:
        await go.wait()

    def settled(event: Event, envelope: Envelope, seq: int) -> None:
        last = isinstance(event, CapacityReported) and event.slot == market.slots - 1
        if last and event.settled:
            ended.set()

    ingest = IngestOptions(price_sanity=True, stale_after_s=0)
    async with (
        running_system(
            options(market, store, ingest), gate=gate, listeners={"selector": settled}
        ) as system,
        JobClient(system.allocator_address) as client,
    ):
        for job in jobs:
            await submit_until_taken(client, job)
        go.set()
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        events = await logged(system)
    ledger = SqlLedger(ledger_url(store / "ledger.sqlite"), "default")
    try:
        return Ran(events, ledger.total_micro_usd())
    finally:
        ledger.close()


@pytest.mark.slow
async def test_prices_times_a_thousand_from_slot_30_on_change_no_decision_and_no_bill(
    tmp_path: Path,
) -> None:
    market = steady(small_market(slots=SLOTS))
    jobs = early(market, 3)

    before = await run_whole(market, tmp_path / "true", jobs)
    after = await run_whole(thousandfold(market), tmp_path / "doubted", jobs)

    assert len(after.of(JobClosed)) == len(jobs)
    # What was believed last is not old enough for it.
    assert not after.of(BuyingFrozen)
    assert len(after.of(QuoteQuarantined)) == 2 * len(market.offerings) * (SLOTS - 30)
    for kind in (AllocationDecided, JobAdvanced, JobClosed):
        assert after.of(kind) == before.of(kind)
    assert after.billed_micro_usd == before.billed_micro_usd > 0


async def test_a_market_by_the_wall_clock_goes_on_where_wall_time_is(tmp_path: Path) -> None:
    ingest = IngestOptions(barrier=False, wall_clock=True)

    async def up_to(slot: int) -> list[tuple[Event, int]]:
        """A process that is started now and ends once a slot is open."""
        reached = asyncio.Event()

        def on_applied(event: Event, envelope: Envelope, seq: int) -> None:
            if isinstance(event, SlotOpened) and event.slot >= slot:
                reached.set()

        market = generate("mixed", seed=3, slots=2000, slot_s=1, start_ns=time.time_ns())
        given = options(market, tmp_path, ingest)
        async with running_system(given, listeners={"market_ingest": on_applied}) as system:
            await asyncio.wait_for(reached.wait(), PATIENCE_S)
            return await logged(system)

    await up_to(2)
    events = await up_to(6)

    (opened,) = [event for event, _ in events if isinstance(event, MarketOpened)]
    slots = [(event, stored_ns) for event, stored_ns in events if isinstance(event, SlotOpened)]
    assert [slot.slot for slot, _ in slots] == list(range(len(slots)))
    for slot, stored_ns in slots:
        assert slot.ts_event_ns == opened.first_slot_start_ns + slot.slot * 10**9
        # Market time is never ahead of wall time.
        assert slot.ts_event_ns <= stored_ns


async def test_a_market_by_the_wall_clock_whose_log_is_gone_goes_on_on_its_old_grid(
    tmp_path: Path,
) -> None:
    ingest = IngestOptions(barrier=False, wall_clock=True)

    async def up(slots: int) -> list[tuple[Event, int]]:
        """A process that is started now and ends once so many slots were opened by it."""
        opened: list[int] = []
        reached = asyncio.Event()

        def on_applied(event: Event, envelope: Envelope, seq: int) -> None:
            if isinstance(event, SlotOpened):
                opened.append(event.slot)
            if len(opened) >= slots:
                reached.set()

        market = generate("mixed", seed=3, slots=2000, slot_s=1, start_ns=time.time_ns())
        given = options(market, tmp_path, ingest)
        async with running_system(given, listeners={"market_ingest": on_applied}) as system:
            await asyncio.wait_for(reached.wait(), PATIENCE_S)
            return await logged(system)

    before = [event for event, _ in await up(3) if isinstance(event, MarketOpened | SlotOpened)]
    await asyncio.sleep(1.5)
    shutil.rmtree(tmp_path / "broker")
    await up(2)
    events = await up(1)

    (was, *_) = [event for event in before if isinstance(event, MarketOpened)]
    (opened,) = [event for event, _ in events if isinstance(event, MarketOpened)]
    assert opened.first_slot_start_ns == was.first_slot_start_ns
    slots = [event for event, _ in events if isinstance(event, SlotOpened)]
    assert slots[0].slot > 0
    for number, slot in enumerate(slots, start=slots[0].slot):
        assert slot.slot == number
        assert slot.ts_event_ns == was.first_slot_start_ns + number * 10**9
