"""What keeps gangs going: market time between two slots, and what is recorded once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from spotline.adapters.grpc.agent.keeper import GangKeeper
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.lifecycle import JobProgressReported, JobSubmitted
from spotline.domain.events.training import (
    AgentJoined,
    GenerationFormed,
    JobSilent,
    JobStalled,
    JobStallEnded,
)
from spotline.domain.jobs.lot import JobHolding, Lot
from tests.eventually import eventually
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    START_NS,
    FakeJobsHost,
    market_opened,
    slot_opened,
)
from tests.fakes.training_story import run_job

JOB = run_job()
NS = 10**9


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def keeping(*, times=None):
    clock = Clock()
    host = FakeJobsHost(
        market_opened(), slot_opened(0), JobSubmitted(job=JOB, ts_event_ns=START_NS)
    )
    keeper = GangKeeper(host, times or AgentTimes(heartbeat_s=0.04, silent_s=4.0), clock=clock)
    host.listeners.append(keeper.on_applied)
    return host, keeper, clock


def hold_and_join(host, keeper, name="i-1"):
    holding = JobHolding(
        job_id=JOB.job_id, lots=(Lot(offering_id=EAST, spot=1),), instance_ids=(name,)
    )
    host.record(CapacityReported(slot=0, revision=0, offset_s=0, settled=True, holdings=(holding,)))
    host.record(
        AgentJoined(
            job_id=JOB.job_id,
            tenant=JOB.tenant,
            instance_id=name,
            token_sha256="t",
            nonce_sha256="n",
            host="",
            ts_event_ns=0,
        )
    )
    gang = host.state.gangs.by_job[JOB.job_id]
    keeper.joined(gang, name)
    return gang


def recorded(host, event_type):
    return [event for _, event in host.stored.values() if isinstance(event, event_type)]


def test_market_time_goes_on_within_a_slot_and_no_further():
    host, keeper, clock = keeping(times=AgentTimes(market_s_per_s=60.0))
    keeper.begin(slot_age_s=2.0)

    assert keeper.now_ns() == START_NS + 120 * NS
    clock.now_s += 3.0
    assert keeper.now_ns() == START_NS + 300 * NS
    assert keeper.clock().market_ns == START_NS + 300 * NS
    clock.now_s += 1000.0
    assert keeper.now_ns() == START_NS + SLOT_NS - 1
    host.record(slot_opened(1))
    assert keeper.now_ns() == START_NS + SLOT_NS


async def test_what_follows_is_recorded_once_also_while_it_is_not_applied():
    host, keeper, clock = keeping()
    keeper.begin()
    hold_and_join(host, keeper)
    host.apply_later = True
    running = asyncio.create_task(keeper.run())
    await eventually(lambda: recorded(host, GenerationFormed))
    clock.now_s += 0.02
    await asyncio.sleep(0.05)
    host.apply()
    gang = host.state.gangs.by_job[JOB.job_id]
    await eventually(lambda: gang.generation == 1)
    clock.now_s += 5.0
    host.apply_later = False
    await eventually(lambda: recorded(host, JobSilent))
    await eventually(lambda: keeper.states()["silent"] == 1)
    running.cancel()

    assert len(recorded(host, GenerationFormed)) == 1
    assert len(recorded(host, JobSilent)) == 1


async def test_what_could_not_be_recorded_is_recorded_later():
    host, keeper, _ = keeping()
    keeper.begin()
    hold_and_join(host, keeper)
    host.down = True
    running = asyncio.create_task(keeper.run())
    await asyncio.sleep(0.05)
    assert recorded(host, GenerationFormed) == []

    host.down = False
    await eventually(lambda: recorded(host, GenerationFormed))
    running.cancel()


async def test_who_watches_is_woken_by_changes_and_at_the_end():
    host, keeper, _ = keeping()
    keeper.begin()
    changed = keeper.watch(JOB.job_id)
    hold_and_join(host, keeper)
    assert changed.is_set()

    changed.clear()
    keeper.end()
    assert changed.is_set()
    assert keeper.ended
    keeper.forget(JOB.job_id, changed)
    changed.clear()
    keeper.end()
    assert not changed.is_set()


@pytest.mark.parametrize("job", [run_job("other"), JOB])
async def test_an_event_of_a_job_that_is_not_known_is_none_of_its_business(job):
    host, keeper, _ = keeping()
    keeper.begin()
    host.record(
        GenerationFormed(
            job_id=job.job_id,
            tenant=job.tenant,
            generation=1,
            instance_ids=("i",),
            detail="",
            ts_event_ns=0,
        )
    )

    known = host.state.gangs.get(job.job_id)
    assert (known is not None) == (job is JOB)
    assert keeper.states()["silent"] == 0


async def test_a_stall_is_recorded_once_and_counted_until_a_report_ends_it():
    times = AgentTimes(heartbeat_s=0.04, silent_s=4.0, market_s_per_s=60.0)
    host, keeper, clock = keeping(times=times)
    keeper.begin()
    gang = hold_and_join(host, keeper)
    running = asyncio.create_task(keeper.run())
    await eventually(lambda: gang.generation == 1)
    formed_ns = gang.reported_ns

    def go_on(slots):
        # A slot of 600 s passes in 10 s, and the agent is heard of all the time.
        for _ in range(slots):
            clock.now_s += 10.0
            host.record(slot_opened(host.state.recent.opened.slot + 1))
            keeper.beat(gang, "i-1", 1)

    go_on(2)
    await asyncio.sleep(0.05)
    assert recorded(host, JobStalled) == []
    go_on(2)
    await eventually(lambda: keeper.stalled() == 1)
    (stalled,) = recorded(host, JobStalled)
    assert stalled.since_ns == formed_ns
    assert stalled.ts_event_ns - stalled.since_ns >= 3 * SLOT_NS

    host.record(
        JobProgressReported(
            job_id=JOB.job_id,
            tenant=JOB.tenant,
            done=1.0,
            ts_event_ns=keeper.now_ns(),
            generation=1,
        )
    )
    await eventually(lambda: recorded(host, JobStallEnded) and keeper.stalled() == 0)
    running.cancel()

    assert len(recorded(host, JobStalled)) == 1
    assert len(recorded(host, JobStallEnded)) == 1


def test_an_agent_that_was_away_for_its_lease_is_not_in_it_any_more():
    host, keeper, clock = keeping(times=AgentTimes(lease_s=60))
    keeper.begin()
    gang = hold_and_join(host, keeper)

    clock.now_s += 59.0
    assert keeper.in_lease(gang, "i-1")
    keeper.heard(gang, "i-1")
    clock.now_s += 59.0
    assert keeper.in_lease(gang, "i-1")
    clock.now_s += 1.0
    assert not keeper.in_lease(gang, "i-1")


def test_every_agent_is_in_its_lease_when_the_allocator_begins():
    host, keeper, clock = keeping(times=AgentTimes(lease_s=60))
    gang = hold_and_join(host, keeper)
    clock.now_s += 10_000.0

    again = GangKeeper(host, AgentTimes(lease_s=60), clock=clock)
    again.begin()

    assert again.in_lease(gang, "i-1")
