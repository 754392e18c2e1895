"""A market that ends under a job: what it says then, and what a cancellation still does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.board.messages import JobPhase, JobView
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.market.generate import generate
from spotline.domain.units import NS_PER_S
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.allocator import job
from tests.fakes.composed import composed

START_NS = 1_767_571_200_000_000_000
MARKET = generate("mixed", seed=13, slots=6, slot_s=1800, start_ns=START_NS)
END_NS = START_NS + 6 * 1800 * NS_PER_S
DEADLINE_NS = END_NS + 3600 * NS_PER_S
# In haste: 3 h 30 min of work on two instances, 4 h to do it in, of which the market has three.
JOB = replace(
    job(instance_hours=7.0, counts=(2,)),
    deadline=Deadline(kind=DeadlineKind.HARD, at_ns=DEADLINE_NS, expires_ns=DEADLINE_NS),
)


async def test_a_job_that_its_market_leaves_says_so_and_a_cancellation_releases_all(
    tmp_path: Path,
) -> None:
    options = SelectorOptions(forecast_timeout_s=60.0, rehearsals=0)
    async with (
        asyncio.timeout(120),
        EmbeddedBroker() as broker,
        composed(broker.url, tmp_path, MARKET, selector=options) as system,
        JobClient(system.address) as client,
    ):
        await system.submit([JOB])
        system.go.set()
        await system.wait_for(
            CapacityReported,
            lambda e: isinstance(e, CapacityReported) and e.slot == MARKET.slots - 1 and e.settled,
        )
        left = await shown_as(client, JobPhase.MARKET_ENDED, held=True)
        await client.cancel(JOB.job_id)
        over = await shown_as(client, JobPhase.CANCELLED, held=False)
    ledger = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), "default")
    try:
        total, held = ledger.total_micro_usd(), ledger.held()
    finally:
        ledger.close()

    assert "nothing more is decided; it goes on holding 2 " in left.headline
    assert left.since_ns == over.since_ns == END_NS
    assert "all that it held was released" in over.headline
    # Nothing costs on: the bill is what was decided, and no instance is left.
    assert held == []
    assert over.money.billed_micro_usd == over.money.spent_micro_usd == total > 0


async def shown_as(client: JobClient, phase: JobPhase, *, held: bool) -> JobView:
    """The job's view, once it is in a phase and holds something or nothing."""
    async for update in client.watch(JOB.job_id):
        view = update.status.view
        if view.phase is phase:
            break
    while bool(view.held) != held:
        await asyncio.sleep(0.01)
        view = (await client.get(JOB.job_id)).view
    return view
