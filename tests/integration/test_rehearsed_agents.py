"""Instances of a rehearsed AWS run agents that join by themselves, and train a job to its end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.demo.train.rehearsed import RehearsedTraining, train_rehearsed
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.events.training import AgentJoined
from spotline.domain.jobs.run import Run
from spotline.domain.market.generate import generate
from spotline.replay.jobs import generated_jobs

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

SPEED, SLOT_S = 60.0, 300


async def test_an_instance_joins_by_its_document_and_its_program_ends_the_job(tmp_path: Path):
    market = generate("mixed", seed=3, slots=96, slot_s=SLOT_S, start_ns=1_767_571_200_000_000_000)
    (job,) = generated_jobs(market, 1, 3)
    job = replace(
        job,
        start_ns=market.start_ns + 2 * SLOT_S * 10**9,
        allowed_counts=(1,),
        awaits_exit=True,
        checkpoint=replace(job.checkpoint, location=str(tmp_path / "checkpoints")),
        run=Run(command=(sys.executable, "-c", "print('trained')")),
    )
    training = RehearsedTraining(
        folder=tmp_path,
        market=market,
        jobs=[job],
        speed=SPEED,
        seed=3,
        selector=SelectorOptions(),
        agent_times=AgentTimes(heartbeat_s=1.0, silent_s=10.0),
    )

    run = await train_rehearsed(training)

    events = [event_of(one) for entry in EventLogReader(run.log) for one in unpacked(entry)]
    assert [e.outcome for e in events if isinstance(e, JobClosed)] == [JobOutcome.COMPLETED]
    assert [e.job_id for e in events if isinstance(e, AgentJoined)]
