"""A service on a real log, and inputs that it cannot take."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from spotline.application.turn import Turns, context_of
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import OPERATOR, retry_id
from spotline.contracts.subjects import filter_of, subjects_with
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.parking import EntryParked
from spotline.runtime.parked_log import StreamParkedLog
from spotline.runtime.service import HostSettings, ServiceHost
from tests.eventually import eventually
from tests.fakes.events import envelope, overdue, published
from tests.fakes.stream import on_any
from tests.fakes.toy import ToyCalls, ToyHandler
from tests.samples.events import SAMPLES

pytestmark = pytest.mark.integration

QUICK = HostSettings(idle_s=0.02)
POISON = 13


class Fragile(ToyHandler):
    """Fails on one slot, behind what it has changed."""

    def evolve(self, state, event):
        super().evolve(state, event)
        if isinstance(event, ForecastOverdue) and event.slot == POISON:
            raise KeyError("nobody foresaw this")


@asynccontextmanager
async def running(host):
    task = asyncio.create_task(host.run())
    try:
        live = asyncio.create_task(host.live())
        await asyncio.wait((live, task), return_when=asyncio.FIRST_COMPLETED)
        live.cancel()
        if task.done():
            task.result()
        yield host
    finally:
        host.stop()
        await asyncio.wait((task,), timeout=60)
    task.result()


def hosted(stream, handler=None, on_applied=None):
    return ServiceHost(
        handler or Fragile(), stream, calls=ToyCalls(), settings=QUICK, on_applied=on_applied
    )


async def stored(stream, *event_types):
    subjects = [filter_of(event_type) for event_type in event_types]
    return [
        event
        async for entry in stream.read((), last_seq=await stream.last_seq())
        for event in unpacked(entry)
        if not subjects or on_any(subjects, event.subject)
    ]


async def without_poison(stream):
    """The state of a handler that never got what is parked."""
    turns = Turns(ToyHandler())
    for entry in await stored(stream):
        event = event_of(entry)
        if turns.consumes(event) and getattr(event, "slot", 0) != POISON:
            turns.take(event, context_of(entry, entry.envelope()))
    return turns.state


async def test_a_poisoned_input_is_parked_and_the_service_goes_on(event_stream):
    heard = []
    slots = [1, 2, POISON, 4, 5, 6]

    async with running(hosted(event_stream, on_applied=lambda *one: heard.append(one[0]))) as host:
        await event_stream.publish(published(overdue(slot) for slot in slots))
        await eventually(lambda: host.state.inputs == 5 and host.state.answers == 1)
        health = host.health()

    (entry,) = await stored(event_stream, EntryParked)
    parked, head = event_of(entry), entry.envelope()
    assert (parked.service, parked.seq, parked.slot) == ("toy", 3, POISON)
    assert parked.event_id == head.causation_id == envelope(overdue(POISON)).event_id
    assert (parked.error, parked.error_type) == ("'nobody foresaw this'", "KeyError")
    assert host.state == await without_poison(event_stream)
    assert host.counters.parked == {"forecast.overdue": 1}
    assert health.detail["parked"] == 1
    assert overdue(POISON) not in heard
    assert [event.slot for event in heard if isinstance(event, SlotDecided)] == [
        *(1, 2, 2, 4, 4, 5, 6, 6)
    ]


async def test_what_was_parked_stays_so_when_later_code_could_take_it(event_stream):
    async with running(hosted(event_stream)) as first:
        await event_stream.publish(published(overdue(slot) for slot in (1, POISON, 3)))
        await eventually(lambda: first.state.inputs == 2)
    await event_stream.publish(published([overdue(4)]))

    async with running(hosted(event_stream, ToyHandler())) as mended:
        await eventually(lambda: mended.state.inputs == 3)

    assert mended.state == await without_poison(event_stream)
    assert len(await stored(event_stream, EntryParked)) == 1
    assert mended.counters.parked.total() == 0


async def test_an_input_that_later_code_cannot_take_any_more_is_parked_at_the_restart(event_stream):
    async with running(hosted(event_stream, ToyHandler())) as before:
        await event_stream.publish(published(overdue(slot) for slot in (1, POISON, 3)))
        await eventually(lambda: before.state.inputs == 3)

    async with running(hosted(event_stream)) as host:
        assert host.state.inputs == 2
        await eventually(lambda: host.counters.parked.total() == 1)
    async with running(hosted(event_stream)) as again:
        assert again.state == host.state

    assert len(await stored(event_stream, EntryParked)) == 1


async def test_a_retry_is_taken_by_the_one_that_parked_it_and_by_nobody_else(event_stream):
    log = StreamParkedLog(event_stream)
    async with running(hosted(event_stream)) as first:
        await event_stream.publish(published(overdue(slot) for slot in (1, POISON, 3)))
        await eventually(lambda: first.state.inputs == 2)
    (parked,) = map(event_of, await stored(event_stream, EntryParked))

    original = await log.event_at(parked.seq, parked.place)
    ids = [await log.publish_again(original, "toy") for _ in range(2)]

    assert set(ids) == {retry_id(parked.event_id, "toy")}
    async with running(hosted(event_stream, ToyHandler())) as mended:
        await eventually(lambda: mended.state.inputs == 3)
    other = ToyHandler()
    other.spec = ToyHandler.spec.__class__(
        **{
            **{name: getattr(ToyHandler.spec, name) for name in ToyHandler.spec.__slots__},
            "service": "other",
        }
    )
    async with running(hosted(event_stream, other)) as bystander:
        assert bystander.state.inputs == 3
        assert {event_of(one).slot for one in await stored(event_stream, ForecastOverdue)} == {
            *(1, POISON, 3)
        }


async def test_an_event_that_only_batches_hold_is_retried_where_its_consumers_follow(event_stream):
    decided = next(event for event in SAMPLES if isinstance(event, AllocationDecided))
    log = StreamParkedLog(event_stream)
    from spotline.contracts.batch import packed

    (batch,) = packed([envelope(decided, source="selector", causation_id="x")])
    await event_stream.publish([batch.envelope])
    original = await log.event_at(1, 0)

    await log.publish_again(original, "allocator")

    *_, entry = [
        entry async for entry in event_stream.read((), last_seq=await event_stream.last_seq())
    ]
    (again,) = unpacked(entry)
    assert entry.subject == "spotline.v1.batch.operator"
    assert entry.subject in subjects_with([AllocationDecided])
    assert event_of(again) == decided
    head = again.envelope()
    assert (head.source, head.event_id) == (
        OPERATOR,
        retry_id(original.envelope().event_id, "allocator"),
    )
    assert head.is_for("allocator")
    assert not head.is_for("read_model")


async def test_an_entry_that_is_gone_is_not_there(event_stream):
    assert await StreamParkedLog(event_stream).event_at(7, 0) is None
