"""All services on a real log, and entries of every kind that they cannot take: every job ends."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.application.operations.messages import ParkedQuery
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.batch import packed
from spotline.contracts.subjects import subject_of
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.capacity import CapacityReported, SlotDecided
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.market.generate import generate
from spotline.domain.market.learning_rules import ALL_RULES
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.verify import verify
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.composed import composed
from tests.fakes.events import envelope
from tests.samples.events import SAMPLES

pytestmark = pytest.mark.integration

START_NS = 1_767_571_200_000_000_000
MARKET = generate("mixed", seed=5, slots=44, slot_s=1800, start_ns=START_NS)
JOBS = generated_jobs(MARKET, 4, 5)
OPTIONS = SelectorOptions(forecast_timeout_s=60.0, rehearsals=0)

# A market and a slot opened by somebody else, and jobs closed by nobody, are well-formed lies: they
# are taken, and identity on the bus is what keeps them out.
LIES = (MarketOpened, SlotOpened, JobClosed, CapacityReported, IncarnationBegun)
# These have a stream of their own.
ELSEWHERE = (MarketStatisticsIssued, PlatformStatisticsIssued)


def poison(opened: SlotOpened):
    """Entries that the one or other cannot take, and a sample of every kind that there is."""
    slot = opened.slot
    return [
        SlotDecided(slot=slot + 9, revision=0, offset_s=0, commands=0),
        SlotDecided(slot=slot, revision=7, offset_s=0, commands=99),
        replace(opened, slot=10**7),
        replace(opened, slot=slot + 12),
        replace(opened, slot=max(0, slot - 5)),
        *(event for event in SAMPLES if not isinstance(event, (*LIES, *ELSEWHERE))),
    ]


async def publish(stream, events, tag):
    for number, event in enumerate(events):
        subject_of(event, "somebody")
        # In the selector's name a decision of nobody would be one that verification finds.
        one = envelope(event, event_id=f"odd-{tag}-{number}", source="somebody")
        await stream.publish([entry.envelope for entry in packed([one])])


def verified(entries):
    settings = {
        "selector": asdict(OPTIONS),
        "forecaster": {"forecaster": "persistence", "horizon_slots": 6, **asdict(ALL_RULES)},
    }
    manifest = Manifest(
        run_id="poisoned",
        stream="SPOTLINE_0",
        environment=environment(),
        settings=settings,
        started_ns=0,
    )
    return verify(entries, handlers_of(settings), manifest, here=environment())


@pytest.mark.timeout(200)
async def test_every_job_ends_while_poison_comes_and_the_log_verifies(tmp_path: Path) -> None:
    async with asyncio.timeout(120), EmbeddedBroker() as broker:
        url, folder = broker.url, tmp_path / "odd"
        async with composed(url, folder, MARKET, selector=OPTIONS) as system:

            def poisoned(slot):
                async def put() -> None:
                    opened = [e for e in await system.events(SlotOpened) if e.slot < 10**6]
                    last = max(opened, key=lambda event: event.slot)
                    await publish(system.stream, poison(last), slot)

                return put

            for slot in (8, 20):
                system.before_slot[slot] = poisoned(slot)
            await system.submit(JOBS)
            system.go.set()
            await system.wait_for(
                CapacityReported,
                lambda event: event.slot == MARKET.slots - 1 and event.settled,
            )
            ours = {job.name for job in JOBS}
            async with JobClient(system.address) as client:
                jobs = [(await client.get(e.job_id)).job for e in await system.events(JobClosed)]
            assert {job.name for job in jobs} >= ours

            parked = await system.events(EntryParked)
            assert {"cloud_actuator", "selector", "forecaster", "allocator"} <= {
                one.service for one in parked
            }
            async with OperationsClient(system.address) as operator:
                page = await operator.parked(ParkedQuery(with_content=True, page_size=1000))
                assert {(e.parked.service, e.parked.event_id) for e in page.entries} == {
                    (one.service, one.event_id) for one in parked if one not in SAMPLES
                }
                assert all(entry.content_json for entry in page.entries)
                first, second = page.entries[0].parked, page.entries[1].parked
                await operator.drop_parked(first.service, first.event_id, request_id="d")
                await operator.retry_parked(second.service, second.event_id, request_id="r")
            assert len(await system.events(ParkedEntryDropped)) >= 1
            assert len(await system.events(ParkedEntryRetried)) >= 1
            assert not [name for name, task in system.tasks.items() if task.done()]
            last = await system.stream.last_seq()
            entries = [entry async for entry in system.stream.read([], last_seq=last)]
    report = await asyncio.to_thread(verified, entries)
    assert report.exit_code == 0, [one.describe() for one in report.divergences]
    assert report.parked >= len([one for one in parked if one not in SAMPLES])
