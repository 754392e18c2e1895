"""What is published beside the log, and where it goes on after a crash."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from spotline.application.spec import derive_id
from spotline.contracts.batch import packed
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.errors import ProviderUnavailable
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import ProvisioningCommanded, SlotDecided
from spotline.domain.events.market import SlotOpened
from spotline.runtime import fan_out as module
from spotline.runtime.fan_out import LOG_PLACE, LOG_SEQ, SLOT_S, FanOut
from tests.eventually import eventually
from tests.fakes.stream import FakeStream
from tests.samples.events import SAMPLES


def sample(event_type, **changed):
    return replace(next(one for one in SAMPLES if type(one) is event_type), **changed)


def opened(slot):
    event = sample(SlotOpened, slot=slot, ts_event_ns=1_000_000 * slot, slot_s=300)
    return envelope_for(
        event,
        event_id=f"slot-{slot}",
        source="market_ingest",
        causation_id="",
        correlation_id=f"slot-{slot}",
    )


def decided(slot, *, jobs=2):
    decisions = [
        sample(AllocationDecided, job_id=f"job-{n}", slot=slot, offset_s=7) for n in range(jobs)
    ]
    events = [*decisions, sample(ProvisioningCommanded, slot=slot), sample(SlotDecided, slot=slot)]
    return [
        envelope_for(
            event,
            event_id=derive_id(f"slot-{slot}", KINDS[type(event)], index),
            source="selector",
            causation_id=f"slot-{slot}",
            correlation_id="chain",
            index=index,
        )
        for index, event in enumerate(events)
    ]


async def store(log, envelopes):
    await log.publish([entry.envelope for entry in packed(envelopes)])


@asynccontextmanager
async def running(log, beside):
    # What it fails of ends the test at once.
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(FanOut(log, beside).run())
        try:
            yield
        finally:
            task.cancel()


def expected(*slots):
    return [one.event_id for slot in slots for one in decided(slot)[:2]]


def ids(stream):
    return [entry.headers["ce-id"] for entry in stream.entries]


async def test_each_decision_is_published_alone_with_its_id_time_and_slot_length():
    log, beside = FakeStream(), FakeStream()
    await store(log, [opened(3)])
    await store(log, decided(3))
    async with running(log, beside):
        await eventually(lambda: len(beside.entries) == 2)

    first, second = beside.entries
    assert first.subject == "spotline.v1.decision.team_vision.job-0"
    assert ids(beside) == expected(3)
    assert first.headers["Nats-Msg-Id"] == first.headers["ce-id"]
    assert event_of(second) == sample(AllocationDecided, job_id="job-1", slot=3, offset_s=7)
    assert first.envelope().ts_event_ns == 3_000_000 + 7_000_000_000
    assert first.headers[SLOT_S] == "300"
    assert (second.headers[LOG_SEQ], second.headers[LOG_PLACE]) == ("2", "1")


async def test_a_restart_goes_on_where_it_was():
    log, beside = FakeStream(), FakeStream()
    for slot in (1, 2, 3):
        await store(log, [opened(slot)])
        await store(log, decided(slot))
        async with running(log, beside):
            await eventually(lambda: len(beside.entries) == 2 * slot)  # noqa: B023

    assert ids(beside) == expected(1, 2, 3)
    # The slot opened before the restart is known after it.
    await store(log, decided(3, jobs=5)[2:5])
    async with running(log, beside):
        await eventually(lambda: len(beside.entries) == 9)
    assert beside.entries[-1].headers[SLOT_S] == "300"


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_an_end_that_the_server_lost_is_published_again(lost):
    log, beside = FakeStream(), FakeStream()
    for slot in (1, 2):
        await store(log, [opened(slot)])
        await store(log, decided(slot))
    async with running(log, beside):
        await eventually(lambda: len(beside.entries) == 4)
    # All was acknowledged; the end of what was published is gone.
    del beside.entries[-lost:]

    async with running(log, beside):
        await eventually(lambda: len(beside.entries) == 4)

    assert ids(beside) == expected(1, 2)


async def test_an_end_lost_while_it_runs_is_noticed_with_the_next_message():
    log, beside = FakeStream(), FakeStream()
    await store(log, [opened(1)])
    await store(log, decided(1))
    async with running(log, beside):
        await eventually(lambda: len(beside.entries) == 2)
        del beside.entries[-1:]
        await store(log, decided(2))
        await eventually(lambda: set(ids(beside)) == set(expected(1, 2)))


class Failing(FakeStream):
    def __init__(self, times):
        super().__init__()
        self.times = times

    async def publish(self, envelopes):
        self.times -= 1
        if self.times >= 0:
            raise ProviderUnavailable("the broker is away")
        return await super().publish(envelopes)


async def test_it_waits_for_a_server_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    log, beside = FakeStream(), Failing(3)
    await store(log, [opened(1)])
    await store(log, decided(1))
    async with running(log, beside):
        await eventually(lambda: len(beside.entries) == 2)

    assert ids(beside) == expected(1)


async def test_what_cannot_be_read_is_passed_over():
    log, beside = FakeStream(), FakeStream()
    (batch,) = packed(decided(1))
    await log.publish([replace(batch.envelope, payload=b"\xff")])
    await store(log, decided(2))
    async with running(log, beside):
        await eventually(lambda: len(beside.entries) == 2)

    assert ids(beside) == expected(2)
    assert SLOT_S not in beside.entries[0].headers
