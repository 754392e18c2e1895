"""A program on the local cloud that stops saying anything: noticed, killed, and started again.

On a busy machine its instance may be exchanged before the silence is long enough, and that is no
stall. The program therefore goes by what has become of it, not by how often it was started.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.admission import job_id_for
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.allocator.gangs import STALLED
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.clouds import chosen_cloud
from spotline.bootstrap.pace import MarketPace
from spotline.bootstrap.system import SystemOptions
from spotline.demo.train.report import events_in
from spotline.demo.train.run import run_training
from spotline.domain.events.lifecycle import JobClosed, JobExited, JobOutcome, JobRetryScheduled
from spotline.domain.events.training import GenerationFormed, JobStalled
from spotline.domain.jobs.job import Job, Throughput, Work
from spotline.domain.jobs.run import OnStall, ProgressReading, ProgressSource, Run
from spotline.domain.units import NS_PER_S
from tests.fakes.placer import of_type
from tests.fakes.ports import free_port
from tests.fakes.selector import job_of
from tests.fakes.short_training import SLOT_S, SPEED, START_NS, counted_market

pytestmark = pytest.mark.integration

SLOTS = 400
# Until a retry of it was seen, it says that it has begun, and never anything again.
PROGRAM = 'echo "done 1"; if [ ! -e "{seen}" ]; then exec sleep 1000; fi; echo "done 62"'


def stalling_job(checkpoints: Path, seen: Path) -> Job:
    made = job_of(1, slots=3 * SLOTS // 4)
    deadline_ns = START_NS + (SLOTS - 10) * SLOT_S * NS_PER_S
    return replace(
        made,
        job_id=job_id_for(made.tenant, made.client_request_id),
        # By its rate it takes nearly all the time there is: whatever its policy, it is not let wait.
        work=Work(amount=62, unit="steps"),
        start_ns=START_NS,
        deadline=replace(made.deadline, at_ns=deadline_ns, expires_ns=deadline_ns),
        throughputs=(Throughput(offering="*", alpha=1.0),),
        allowed_counts=(1,),
        checkpoint=replace(made.checkpoint, location=str(checkpoints)),
        value_micro_usd=10**10,
        # It may be started, and stall, once more while its first retry is being read of.
        retries=5,
        awaits_exit=True,
        run=Run(
            command=("sh", "-c", PROGRAM.format(seen=seen)),
            progress=ProgressReading(source=ProgressSource.OUTPUT, pattern=r"done (?P<done>\d+)"),
            stalled_after_s=2 * SLOT_S,
            on_stall=OnStall.RESTART,
        ),
    )


def system(folder: Path, http_port: int) -> SystemOptions:
    return SystemOptions(
        market=counted_market([2] * SLOTS),
        store=folder / "store",
        ingest=MarketPace(by_time=True, market_s_per_s=SPEED).ingest(SLOT_S, wait_for_work=False),
        market_s_per_s=SPEED,
        selector=SelectorOptions(rehearsals=0),
        cloud=chosen_cloud("local", most_instances=2, notice_lead_s=2400, stop_grace_s=0.5),
        agent_times=AgentTimes(heartbeat_s=0.25, silent_s=4.0),
        http_address=f"127.0.0.1:{http_port}",
    )


def read(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@pytest.mark.timeout(400)
async def test_a_program_that_says_nothing_is_killed_and_ends_well_when_started_again(
    tmp_path: Path,
) -> None:
    seen = tmp_path / "seen"
    job, port = stalling_job(tmp_path / "checkpoints", seen), free_port()
    kinds: list[str] = []

    async def hold(slot: int) -> None:
        nonlocal kinds
        if slot and "job.retried" not in kinds:
            page = await asyncio.to_thread(read, port, f"/v1/jobs/{job.job_id}/events")
            kinds = [event["kind"] for event in page.get("events", ())]
            if "job.retried" in kinds:
                seen.touch()

    async with asyncio.timeout(360):
        run = await run_training(
            system(tmp_path, port), [job], tmp_path / "log", run_id="stalled", seeds={}, hold=hold
        )

    events = list(events_in(EventLogReader(run.log)))
    stalls = {event.generation: event for event in of_type(events, JobStalled)}
    for stalled in stalls.values():
        assert stalled.on_stall is OnStall.RESTART
        assert stalled.ts_event_ns - stalled.since_ns >= 2 * SLOT_S * NS_PER_S
    *killed, ended = of_type(events, JobExited)
    assert killed
    assert {event.generation for event in killed} <= set(stalls)
    assert {event.exit_code for event in killed} == {STALLED}
    # A start on an instance that is released meanwhile is followed by another one.
    last = of_type(events, GenerationFormed)[-1].generation
    assert ended.generation == last > killed[-1].generation
    assert ended.exit_code == 0
    retried = of_type(events, JobRetryScheduled)
    assert len(retried) == len(killed)
    assert all(e.detail.startswith("the program reported nothing for ") for e in retried)
    (closed,) = of_type(events, JobClosed)
    assert closed.outcome is JobOutcome.COMPLETED
    # The read model told of it while it went on.
    assert kinds.index("job.stalled") < kinds.index("job.exited") < kinds.index("job.retried")
