"""The whole system on a live market: fed while it runs, killed, restarted, and left by its feed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.market.recorded_feed import RecordedFeed
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.market_ingest.opening import NO_SLOT
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.live import LiveFeeds
from spotline.bootstrap.parts import open_stream
from spotline.bootstrap.system import RunningSystem, SystemOptions, running_system
from spotline.cli.market_record import _told
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ProviderUnavailable
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.events.market import MarketOpened, QuoteObserved, SlotOpened
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.recorded import market_of_log
from spotline.replay.verify import verify
from spotline.runtime.service import Listener
from spotline.runtime.timers import Timer
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.recorded_run import manifest_of, small_market

pytestmark = pytest.mark.integration

MARKET = small_market(slots=600)
SLOT_NS = MARKET.slot_s * NS_PER_S
SLOTS_PER_S = 8.0
SPEED = MARKET.slot_s * SLOTS_PER_S
AWAY_SLOTS = 3


class BrokenFeed(RecordedFeed):
    """A feed that answers unless a test has broken it."""

    broken = False

    def _answer(self) -> None:
        if self.broken:
            raise ProviderUnavailable("broken by the test")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientClock(MarketClock):
    """Market time that no machine is too slow for: it goes no further than the slot `latest`."""

    latest: list[int] = field(default_factory=lambda: [0])

    def market_at(self, wall_ns: int) -> int:
        """Market time at a moment of wall time, or the end of the latest slot."""
        ends_ns = MARKET.start_ns + (self.latest[0] + 1) * SLOT_NS
        return min(MarketClock.market_at(self, wall_ns), ends_ns - 1)


class PatientFeedClock:
    """Implements `FeedClock` with the time of such a market."""

    def __init__(self, clock: PatientClock) -> None:
        self._clock = clock

    def now_s(self) -> float:
        return self._clock.market_at(time.time_ns()) / NS_PER_S / SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class LiveStore:
    """A live market, its feed that goes on whoever listens, and the store of whoever does."""

    def __init__(self, store: Path) -> None:
        self.clock = clock = PatientClock(
            wall_ns=time.time_ns(), market_ns=MARKET.start_ns, market_s_per_s=SPEED
        )
        self.feed = BrokenFeed(MARKET, PatientFeedClock(clock), speed=SPEED)
        self.options = SystemOptions(
            market=LiveMarket(
                source="a live market",
                offerings=MARKET.offerings,
                slot_s=MARKET.slot_s,
                # As a caller says it at each start: the log knows better.
                start_ns=MARKET.start_ns,
            ),
            feeds=LiveFeeds(feeds=(self.feed,), clock=clock, silent_after_s=MARKET.slot_s),
            store=store,
            ingest=IngestOptions(
                barrier=False, wall_clock=True, price_sanity=True, stale_after_s=0
            ),
            forecaster="persistence",
            selector=SelectorOptions(rehearsals=0, forecast_timeout_s=60.0),
            outlooks=False,
        )

    def slot(self) -> int:
        """Where the market is by now, however long a start has taken."""
        now_ns = self.options.feeds.clock.market_at(time.time_ns())
        return (now_ns - MARKET.start_ns) // SLOT_NS


async def logged(system: RunningSystem) -> list[StoredEntry]:
    async with open_stream(system.bus, name="test") as (_, stream):
        return [entry async for entry in stream.read([], last_seq=await stream.last_seq())]


def events_of(log: list[StoredEntry], *kinds: type[Event]) -> list[Event]:
    events = [event_of(one) for entry in log for one in unpacked(entry)]
    return [event for event in events if isinstance(event, kinds)]


class Settling:
    """Lets a slot open once the one before is settled, however slow the machine is."""

    def __init__(self, clock: PatientClock) -> None:
        self._settled = asyncio.Event()
        self._settled.set()
        self._slot = -1
        self._clock = clock

    async def gate(self, timer: Timer) -> None:
        """Wait for the slot before; see `running_system`."""
        await self._settled.wait()

    def applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Hear what the selector applies."""
        if isinstance(event, SlotOpened):
            self._slot = event.slot
            self._clock.latest[0] = max(self._clock.latest[0], event.slot + 1)
            self._settled.clear()
        elif isinstance(event, CapacityReported) and event.slot == self._slot and event.settled:
            self._settled.set()


def running(live: LiveStore, *listening: Listener):
    """The system, with what hears the selector."""
    settling = Settling(live.clock)

    def applied(event: Event, envelope: Envelope, seq: int) -> None:
        settling.applied(event, envelope, seq)
        for each in listening:
            each(event, envelope, seq)

    return running_system(live.options, gate=settling.gate, listeners={"selector": applied})


def reached(wanted: Callable[[Event], bool]) -> tuple[asyncio.Event, Callable[..., None]]:
    """An event that is set once something of a service is applied, and its listener."""
    there = asyncio.Event()

    def on_applied(event: Event, envelope: Envelope, seq: int) -> None:
        if wanted(event):
            there.set()

    return there, on_applied


async def test_jobs_end_on_a_live_market_that_is_killed_and_goes_on(tmp_path: Path) -> None:
    live = LiveStore(tmp_path)
    jobs: list[Job] = []
    closed: set[str] = set()

    def all_closed(event: Event) -> bool:
        if isinstance(event, JobClosed):
            closed.add(event.job_id)
        return closed == {job.job_id for job in jobs}

    some, on_slot = reached(lambda event: isinstance(event, SlotOpened) and event.slot >= 4)
    async with running(live, on_slot) as system:
        async with JobClient(system.allocator_address) as client:
            slot = live.slot() + 8
            jobs += generated_jobs(MARKET.between(slot, slot + 40), 2, 5)
            for job in jobs:
                await submit_until_taken(client, job)
        await asyncio.wait_for(some.wait(), PATIENCE_S)
    # Market time goes on while nobody is there.
    live.clock.latest[0] += AWAY_SLOTS
    await asyncio.sleep(AWAY_SLOTS / SLOTS_PER_S)

    done, on_closed = reached(all_closed)
    async with running(live, on_closed) as system:
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        log = await logged(system)
        told = await _told(system.allocator_address, 192 * MARKET.slot_s)

    slots = events_of(log, SlotOpened)
    for slot, following in pairwise(slots):
        assert following.slot == slot.slot + 1 + following.missed
    # The slot that was open when it was killed may have ended, too.
    assert [slot.missed for slot in slots if slot.missed] in ([AWAY_SLOTS - 1], [AWAY_SLOTS])
    assert [slot.ts_event_ns for slot in slots] == [
        MARKET.start_ns + slot.slot * SLOT_NS for slot in slots
    ]
    assert not any(slot.last for slot in slots)
    (opened,) = events_of(log, MarketOpened)
    assert opened.ends_ns == 0
    # What a slot shows is never newer than its opening, and comes from the feed.
    said = {event.quote for event in events_of(log, QuoteObserved)}
    for slot in slots[1:]:
        for each in slot.quotes:
            assert each.quote.ts_event_ns <= slot.ts_event_ns
            assert each.doubted or each.quote in said or slot.slot < 2
    outcomes = {event.outcome for event in events_of(log, JobClosed)}
    assert outcomes == {JobOutcome.COMPLETED}
    # Its door tells what its log shows, and perhaps what came since.
    kept = market_of_log(log)
    assert told.start_ns == kept.start_ns
    assert np.array_equal(
        told.spot_price_micro_usd[: kept.slots], kept.spot_price_micro_usd[: told.slots]
    )
    report = verify(log, handlers_of(live.options.settings()), manifest_of(log), here=environment())
    assert report.decisions
    assert not report.divergences


def unwell(system: RunningSystem) -> list[str]:
    """What is said of conditions of market_ingest that are not as they should be."""
    found = system.probes.judged("market_ingest")
    return [judged.detail for judged in found if not judged.healthy]


async def test_a_feed_that_dies_is_seen_and_stops_new_spot_until_it_answers(
    tmp_path: Path,
) -> None:
    live = LiveStore(tmp_path)
    frozen: list[BuyingFrozen] = []
    # The stops that stand by now: a slow start may well have had some that are over.
    standing: set[str] = set()

    def on_freeze(event: Event) -> bool:
        if isinstance(event, BuyingFrozen):
            frozen.append(event)
            # The feed's own, beside those of quotes that a slow start has let grow old.
            if event.freeze.slot == NO_SLOT:
                standing.add(event.freeze.freeze_id)
        if isinstance(event, BuyingUnfrozen) and event.slot == NO_SLOT:
            standing.discard(event.freeze_id)
        return False

    _, on_frozen = reached(on_freeze)
    quoted, on_slot = reached(lambda event: isinstance(event, SlotOpened) and event.slot >= 2)
    over, on_over = reached(lambda event: isinstance(event, JobClosed))
    aged, on_aged = reached(
        lambda event: (
            isinstance(event, SlotOpened)
            and all(each.age_s >= 2 * MARKET.slot_s for each in event.quotes)
        )
    )

    async with running(live, on_slot, on_frozen, on_over, on_aged) as system:
        await asyncio.wait_for(quoted.wait(), PATIENCE_S)
        live.feed.broken = True
        await eventually(lambda: any("broken by the test" in said for said in unwell(system)))
        await eventually(lambda: len(standing) == len(MARKET.offerings))
        async with JobClient(system.allocator_address) as client:
            slot = live.slot() + 4
            jobs = generated_jobs(MARKET.between(slot, slot + 40), 12, 5)
            hard = next(job for job in jobs if job.deadline.kind is DeadlineKind.HARD)
            await submit_until_taken(client, hard)
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        # Time goes on without it, and ages say so.
        await asyncio.wait_for(aged.wait(), PATIENCE_S)
        live.feed.broken = False
        await eventually(lambda: not standing)
        log = await logged(system)

    assert {event.freeze.reason for event in frozen} == {FreezeReason.STALE_QUOTES}
    assert {event.freeze.capacity_type for event in frozen} == {CapacityType.SPOT}
    # What an admitted hard deadline needs is bought all the same, on demand.
    (closed,) = events_of(log, JobClosed)
    assert closed.outcome is JobOutcome.COMPLETED
    held = [lot for event in events_of(log, AllocationDecided) for lot in event.lots]
    assert any(lot.on_demand for lot in held)
    assert not any(lot.spot for lot in held)
