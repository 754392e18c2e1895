"""SIGKILL of each service in turn: the run ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.bootstrap.explaining import SERVED
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.subjects import KINDS, filter_of, subjects_with
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.domain.market.learning_rules import ALL_RULES
from spotline.domain.market.prior_laws import shipped_priors
from spotline.replay.divergence import VerifyReport
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.verify import verify
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.processes import SERVICES, ServiceProcesses

START_NS = 1_767_571_200_000_000_000
MARKET = generate("mixed", seed=3, slots=44, slot_s=1800, start_ns=START_NS)
JOBS = generated_jobs(MARKET, 4, 3)
# Long enough that a restart of any service is waited for; the fallbacks have tests of their own.
PATIENT = {
    "SPOTLINE_FORECAST_TIMEOUT_S": "90",
    "SPOTLINE_ALLOCATE_TIMEOUT_S": "90",
    "SPOTLINE_REHEARSALS": "4",
}


async def opened_slots(stream: NatsEventStream) -> AsyncGenerator[int]:
    """The slots as they open."""
    subscription = await stream.subscribe("test_watch", [filter_of(SlotOpened)])
    try:
        while True:
            for entry in await subscription.fetch(limit=10, timeout_s=1.0):
                event = event_of(entry)
                assert isinstance(event, SlotOpened)
                yield event.slot
                await subscription.ack(entry)
    finally:
        await subscription.close()


async def submit_all(address: str, jobs: Sequence[Job]) -> None:
    async with JobClient(address) as client:
        for job in jobs:
            await submit_until_taken(client, job)


async def closed_jobs(stream: NatsEventStream, wanted: int) -> None:
    subscription = await stream.subscribe("test_closed", subjects_with([JobClosed]))
    seen = 0
    while seen < wanted:
        entries = await subscription.fetch(limit=10, timeout_s=1.0)
        for entry in entries:
            seen += len(unpacked(entry, {KINDS[JobClosed]}))
            await subscription.ack(entry)
    await subscription.close()


async def run(
    folder: Path, *, killed_at: dict[int, str]
) -> tuple[dict[tuple[str, int, int], AllocationDecided], dict[str, list[dict[str, Any]]]]:
    """Run all jobs, killing a service when a slot opens; returns decisions and ledger."""
    # A kill is to find the others at work; undisturbed, slots open as fast as they are decided.
    pace = "4" if killed_at else "0"
    async with (
        EmbeddedBroker(folder / "broker") as broker,
        ServiceProcesses(
            broker.url, folder, MARKET, SPOTLINE_SLOTS_PER_S=pace, **PATIENT
        ) as services,
        NatsConnection(broker.url, name="test") as connection,
    ):
        stream = await NatsEventStream.open(connection)
        for service in SERVICES[:-1]:
            await services.start(service)
        async with asyncio.timeout(90), grpc.aio.insecure_channel(services.address) as channel:
            await channel.channel_ready()
        # However long it takes to submit the jobs, the first slot stands until all are: where each
        # arrives is no matter of time.
        await services.start("market_ingest", SPOTLINE_SLOTS_PER_S="0.001")
        async with asyncio.timeout(90), aclosing(opened_slots(stream)) as opened:
            await anext(opened)
            await submit_all(services.address, JOBS)
        await services.kill("market_ingest")
        await services.start("market_ingest")

        async def disturb() -> None:
            left = dict(killed_at)
            async for slot in opened_slots(stream):
                if slot in left:
                    service = left.pop(slot)
                    await services.kill(service)
                    await services.start(service)
                if not left:
                    return

        try:
            async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
                if killed_at:
                    tasks.create_task(disturb())
                tasks.create_task(closed_jobs(stream, len(JOBS)))
        except TimeoutError:
            pytest.fail(f"not finished in time; ended: {services.dead()}\n{services.said()}")
        decisions = {}
        last = await stream.last_seq()
        entries = [entry async for entry in stream.read([], last_seq=last)]
        report = await asyncio.to_thread(verified, entries)
        assert report.exit_code == 0, [one.describe() for one in report.divergences]
        for event in (event_of(one) for entry in entries for one in unpacked(entry)):
            if not isinstance(event, AllocationDecided):
                continue
            key = (event.job_id, event.slot, event.revision)
            assert key not in decisions, f"decided twice: {key}"
            decisions[key] = event
    ledger = SqlLedger(ledger_url(folder / "store" / "ledger.sqlite"), "default")
    try:
        return decisions, ledger.comparable()
    finally:
        ledger.close()


def verified(entries: Sequence[StoredEntry]) -> VerifyReport:
    """Recompute every decision of the run, whoever was killed in it."""
    options = replace(
        SERVED,
        forecast_timeout_s=float(PATIENT["SPOTLINE_FORECAST_TIMEOUT_S"]),
        rehearsals=int(PATIENT["SPOTLINE_REHEARSALS"]),
    )
    settings = {
        "selector": asdict(options),
        "forecaster": {
            "horizon_slots": 12,
            **asdict(ALL_RULES),
            "priors_sha256": shipped_priors().sha256,
        },
    }
    manifest = Manifest(
        run_id="killed",
        stream="SPOTLINE_0",
        environment=environment(),
        settings=settings,
        started_ns=0,
    )
    return verify(entries, handlers_of(settings), manifest, here=environment())


def until(ledger: dict[str, list[dict[str, Any]]], slot: int) -> dict[str, list[dict[str, Any]]]:
    """The rows of slots before `slot`: where a run stops after its last job is a matter of time."""
    return {
        table: [row for row in rows if row.get("slot", 0) < slot] for table, rows in ledger.items()
    }


# Those with most to lose: what is decided, and what is bought. In virtual time every point at which
# a service may be killed is tried in the default suite (`tests/unit/bench/faults`).
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("selector", "cloud_actuator"), id="two", marks=pytest.mark.slow),
        pytest.param(
            ("forecaster", "selector", "allocator", "cloud_actuator", "market_ingest"),
            id="each",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_killing_services_changes_neither_decisions_nor_ledger(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    (tmp_path / "calm").mkdir()
    (tmp_path / "killed").mkdir()
    calm_decisions, calm_ledger = await run(tmp_path / "calm", killed_at={})
    first = min(slot for _, slot, _ in calm_decisions)
    last = max(slot for _, slot, _ in calm_decisions)
    step = max(1, (last - first) // (len(order) + 1))
    plan = {first + (i + 1) * step: service for i, service in enumerate(order)}

    decisions, ledger = await run(tmp_path / "killed", killed_at=plan)

    assert decisions == calm_decisions
    expected = until(calm_ledger, last)
    assert until(ledger, last) == expected
    assert expected["charges"]
    assert expected["intents"]
