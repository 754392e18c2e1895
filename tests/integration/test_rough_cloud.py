"""A cloud that refuses launches and reclaims in mid-slot: deadlines hold and the books agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.clouds import chosen_cloud
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionNoticed,
    LaunchRefused,
)
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.market.generate import generate
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason
from spotline.replay.jobs import generated_jobs
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.composed import composed

START_NS = 1_767_571_200_000_000_000
MARKET = generate("mixed", seed=13, slots=72, slot_s=1800, start_ns=START_NS)
JOBS = generated_jobs(MARKET, 10, 13)
ROUGH = chosen_cloud(
    seed=1, refusal_probability=0.15, interruption_per_instance_hour=0.08, notice_lead_s=120
)


@pytest.mark.slow
async def test_refusals_and_mid_slot_losses_are_decided_at_once(tmp_path: Path) -> None:
    # Spot may be gone within the slot, so the safety net must not count on it.
    options = SelectorOptions(forecast_timeout_s=60.0, rehearsals=0, spot_firm=False)
    async with (
        asyncio.timeout(200),
        EmbeddedBroker() as broker,
        composed(broker.url, tmp_path, MARKET, selector=options, cloud=ROUGH) as system,
    ):
        await system.submit(JOBS)
        system.go.set()
        await system.wait_for(
            CapacityReported,
            lambda e: isinstance(e, CapacityReported) and e.slot == MARKET.slots - 1 and e.settled,
        )
        closed = {e.job_id: e for e in await system.events(JobClosed)}
        advanced = await system.events(JobAdvanced)
        accrued = await system.events(CostAccrued)
        decisions = await system.events(AllocationDecided)
        refused = await system.events(LaunchRefused)
        lost = await system.events(CapacityLost)
        noticed = await system.events(InterruptionNoticed)
        async with JobClient(system.address) as client:
            shown = await client.list_all()
            fleet = (await client.list()).fleet
    ledger = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), "default")
    try:
        charges, total = ledger.comparable()["charges"], ledger.total_micro_usd()
    finally:
        ledger.close()

    assert refused
    assert lost
    assert noticed
    assert any(d.offset_s > 0 and d.reason is DecisionReason.INTERRUPTED for d in decisions)
    assert any(d.reason is DecisionReason.LAUNCH_REFUSED for d in decisions)
    hard = [job for job in JOBS if job.deadline.kind is DeadlineKind.HARD]
    assert {job.job_id for job in hard} <= set(closed)
    missed = {job.job_id for job in hard if closed[job.job_id].outcome is not JobOutcome.COMPLETED}
    # The net relies on on-demand: only where the cloud refused that too may a deadline be missed.
    assert missed <= {r.job_id for r in refused if r.capacity_type is CapacityType.ON_DEMAND}
    assert len(missed) < len(hard)
    # To the micro-dollar, job by job and slot by slot.
    billed: dict[tuple[str, int], int] = {}
    for charge in accrued:
        key = (charge.job_id, charge.slot)
        billed[key] = billed.get(key, 0) + charge.cost_micro_usd
    decided = {
        (one.job_id, one.slot): one.slot_cost_micro_usd
        for one in advanced
        if one.slot_cost_micro_usd
    }
    assert billed == decided
    # And so says the board.
    by_job = Counter[str]()
    for row in charges:
        by_job[row["job_id"]] += row["cost_micro_usd"]
    money = {status.job.job_id: status.view.money for status in shown}
    assert {job_id: told.billed_micro_usd for job_id, told in money.items()} == by_job
    assert fleet.billed_micro_usd == sum(by_job.values()) == total > 0
    over = [job_id for job_id in money if job_id in closed]
    assert [money[job_id].spent_micro_usd for job_id in over] == [by_job[job_id] for job_id in over]
    counts = [status.view.counts for status in shown]
    assert sum(told.refusals for told in counts) == len(refused)
    assert sum(told.interruptions for told in counts) >= sum(len(e.instance_ids) for e in lost)
    assert all(told.on_demand_micro_usd > 0 for told in money.values())
