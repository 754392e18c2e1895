"""A market that waits for work, through the whole system: it is never over before it is used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions, IngestState
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.parts import AnyHost, open_stream
from spotline.bootstrap.system import SystemOptions, running_system
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.generate import generate
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.verify import verify
from tests.eventually import eventually
from tests.fakes.placer import START_NS, of_type
from tests.fakes.recorded_run import environment, manifest_of

pytestmark = pytest.mark.integration

MARKET = generate("mixed", seed=3, slots=400, slot_s=1800, start_ns=START_NS)
SOON = generate("mixed", seed=3, slots=72, slot_s=1800, start_ns=START_NS)
FIRST, *LATER = sorted(generated_jobs(SOON, 8, 3), key=lambda job: job.start_ns)
# Its deadline must still be ahead when the first job is over.
SECOND = next(job for job in LATER if job.start_ns > FIRST.deadline.expires_ns)


async def test_the_market_stands_until_a_job_comes_and_again_when_it_is_over(
    tmp_path: Path,
) -> None:
    options = SystemOptions(
        market=MARKET,
        store=tmp_path,
        ingest=IngestOptions(wait_for_work=True),
        selector=SelectorOptions(rehearsals=0),
    )
    clock = IngestHandler(MARKET, options.ingest)

    async with running_system(options) as system, JobClient(system.allocator_address) as client:
        await eventually(lambda: "market_ingest" in system.probes.hosts)
        host: AnyHost = system.probes.hosts["market_ingest"]

        def stands() -> bool:
            state: IngestState = host.state
            return state.settled and state.slot >= 0 and not clock.due(state)

        await eventually(stands, timeout_s=60)
        assert host.state.slot == 0
        stood = []
        for job in (FIRST, SECOND):
            before = host.state.slot
            await client.submit(job)
            await eventually(lambda before=before: host.state.slot > before)
            await eventually(stands)
            stood.append(host.state.slot)
        async with open_stream(system.bus, name="test") as (_, stream), asyncio.timeout(60):
            log = [entry async for entry in stream.read([], last_seq=await stream.last_seq())]

    events = [event_of(one) for entry in log for one in unpacked(entry)]
    assert {event.job_id for event in of_type(events, JobClosed)} == {FIRST.job_id, SECOND.job_id}
    admitted = of_type(events, JobAdmitted)
    # Each run of the market ends with the slot in which the selector learns from the job.
    assert stood == [event.deadline_slot + 1 for event in admitted]
    assert [event.slot for event in of_type(events, SlotOpened)] == list(range(stood[-1] + 1))
    assert stood[-1] < MARKET.slots - 1

    report = verify(log, handlers_of(options.settings()), manifest_of(log), here=environment())
    assert (report.divergences, report.exit_code) == ((), 0)
    assert report.decisions["selector"] > 0
