import asyncio
import base64
import itertools
import json
import os
import pickle
import signal
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.snapshots import NatsSnapshotStore
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.spec import Context
from spotline.contracts.batch import packed, unpacked
from spotline.contracts.build import event_of
from spotline.contracts.codec import decode_dead_letter
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable
from spotline.contracts.subjects import filter_of
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.events.market import SlotOpened
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.health import serve_health
from spotline.runtime.service import HostSettings, ServiceHost
from spotline.runtime.snapshots import Snapshot, Snapshots, sealed
from tests.eventually import eventually
from tests.fakes.events import cancelled, envelope, overdue, published
from tests.fakes.ports import free_port
from tests.fakes.stream import on_any
from tests.fakes.toy import ToyCalls, ToyCodec, ToyHandler, answer

pytestmark = pytest.mark.integration

QUICK = HostSettings(idle_s=0.02)
ONE_BY_ONE = HostSettings(idle_s=0.02, batch=1)
BATCHED = HostSettings(idle_s=0.02, flush_after_s=60.0)
INPUTS = filter_of(ForecastOverdue)
DECISIONS = filter_of(SlotDecided)
ANSWERS = filter_of(AllocationAnswered)


class Crash(BaseException):
    """The process dies here; what a handler raises otherwise parks its event."""


class CrashPlan:
    """Counts down at one place and crashes there once; `times` counts how often it was passed."""

    def __init__(self, place="", after=0):
        self.place = place
        self.left = after

    def passes(self, place):
        if place == self.place:
            self.left -= 1
            if self.left == 0:
                raise Crash(place)


class CrashingHandler(ToyHandler):
    def __init__(self, plan):
        super().__init__()
        self.plan = plan

    def evolve(self, state, event):
        super().evolve(state, event)
        if isinstance(event, ForecastOverdue):
            self.plan.passes("after evolve")


class CrashingStream:
    """The log, with a crash around publishing and acknowledging; refuses what is stored already.

    Refusing shows that the host itself remembers: the broker would drop what is repeated within
    two minutes, and only then.
    """

    def __init__(self, stream, plan):
        self.stream = stream
        self.plan = plan
        self.most_events = stream.most_events

    async def publish(self, envelopes):
        last_seq = await self.stream.last_seq()
        seqs = []
        for one in envelopes:
            self.plan.passes("before publish")
            (seq,) = await self.stream.publish([one])
            assert seq > last_seq, f"published again: {one}"
            seqs.append(seq)
            self.plan.passes("after publish")
        return seqs

    async def last_seq(self):
        return await self.stream.last_seq()

    def read(self, subjects, *, first_seq=1, last_seq):
        return self.stream.read(subjects, first_seq=first_seq, last_seq=last_seq)

    async def subscribe(self, name, subjects, *, first_seq=1):
        subscription = await self.stream.subscribe(name, subjects, first_seq=first_seq)
        acknowledge = subscription.ack

        async def ack(entry):
            self.plan.passes("before ack")
            await acknowledge(entry)
            self.plan.passes("after ack")

        subscription.ack = ack
        return subscription


@asynccontextmanager
async def running(host):
    """The host at work, stopped at the end."""
    task = asyncio.create_task(host.run())
    try:
        live = asyncio.create_task(host.live())
        await asyncio.wait((live, task), return_when=asyncio.FIRST_COMPLETED)
        live.cancel()
        if task.done():
            task.result()
        yield task
    finally:
        host.stop()
        await asyncio.wait((task,), timeout=60)
    task.result()


async def stored(stream, *subjects):
    last_seq = await stream.last_seq()
    return [
        event
        async for entry in stream.read((), last_seq=last_seq)
        for event in unpacked(entry)
        if on_any(subjects, event.subject)
    ]


async def reference(stream):
    """State and decisions of a plain fold over the recorded inputs."""
    handler = ToyHandler()
    state = handler.initial()
    decided = []
    for entry in await stored(stream, INPUTS, ANSWERS, filter_of(JobCancelled)):
        event, head = event_of(entry), entry.envelope()
        ctx = Context(
            seq=entry.seq,
            now_ns=entry.stored_ns,
            event_id=head.event_id,
            correlation_id=head.correlation_id,
        )
        handler.evolve(state, event)
        for output in handler.decide(state, event, ctx).events:
            handler.evolve(state, output)
            decided.append(output)
    return state, decided


async def assert_complete(stream, state, slots):
    """Every input led to its decisions and answers once, in the state as in the log."""
    expected, decided = await reference(stream)
    entries = await stored(stream, DECISIONS)
    assert [event_of(entry) for entry in entries] == decided
    assert state == expected
    assert state.inputs == slots
    answered = Counter(event_of(entry).slot for entry in await stored(stream, ANSWERS))
    assert answered == {slot: max(1, slot // 5 % 4) for slot in range(0, slots, 5)}
    ids = [entry.headers["ce-id"] for entry in await stored(stream)]
    assert len(ids) == len(set(ids))


async def entries_of(stream):
    return [entry async for entry in stream.read((), last_seq=await stream.last_seq())]


def in_one_entry(envelopes):
    """The events as outputs of one cause, as the selector would store them."""
    outputs = [
        replace(one, source="selector", causation_id="cause", correlation_id="chain")
        for one in envelopes
    ]
    return [entry.envelope for entry in packed(outputs)]


def answers_due(slots):
    return sum(max(1, slot // 5 % 4) for slot in range(0, slots, 5))


def done(host, slots):
    state = host.state
    return lambda: state.inputs == slots and state.answers == answers_due(slots)


def done_or_stopped(host, slots):
    return lambda: done(host, slots)() or host.health().detail["phase"] == "stopped"


# --- handling ---------------------------------------------------------------------------------


async def test_each_input_is_handled_once_and_its_outputs_are_stored(event_stream):
    host = ServiceHost(ToyHandler(), event_stream, calls=ToyCalls(), settings=QUICK)
    async with running(host):
        await event_stream.publish(published(overdue(slot) for slot in range(40)))
        await eventually(done(host, 40))

    await assert_complete(event_stream, host.state, 40)
    assert host.counters.handled == 40 + answers_due(40)
    assert host.counters.published == 60 + answers_due(40)


async def test_outputs_name_their_cause(event_stream):
    host = ServiceHost(ToyHandler(), event_stream, calls=ToyCalls(), settings=QUICK)
    async with running(host):
        cause = replace(envelope(overdue(10)), correlation_id="the job")
        await event_stream.publish([cause])
        await eventually(lambda: host.state.answers == 2)

    heads = [entry.envelope() for entry in (await stored(event_stream))[1:]]
    assert {head.causation_id for head in heads} == {cause.event_id}
    assert {head.correlation_id for head in heads} == {"the job"}
    assert {head.source for head in heads} == {"toy"}
    assert [(head.kind, head.index) for head in heads] == [
        ("provisioning.slot", 0),
        ("provisioning.slot", 1),
        ("allocation.answered", 0),
        ("allocation.answered", 1),
    ]


async def test_a_repeated_event_id_changes_nothing(event_stream):
    host = ServiceHost(ToyHandler(), event_stream, settings=QUICK)
    async with running(host):
        first = envelope(overdue(1))
        await event_stream.publish([first])
        # As after the broker's window: the same event under another deduplication id.
        await republish(event_stream, first)
        await event_stream.publish(published([overdue(3)]))
        await eventually(lambda: host.state.inputs == 2)

    assert host.state.decided == 2


async def republish(stream, one):
    link = await stream._connection.link(timeout_s=60)
    headers = one.headers() | {"Nats-Msg-Id": "again"}
    await link.client.jetstream().publish(one.subject, one.payload, headers=headers)


async def test_listener_sees_inputs_and_decisions_in_the_order_they_were_applied(event_stream):
    seen = []

    def listen(event, head, seq):
        seen.append((type(event).__name__, event.slot, seq))

    await event_stream.publish(published([overdue(1), overdue(2)]))
    host = ServiceHost(ToyHandler(), event_stream, on_applied=listen, settings=QUICK)
    async with running(host):
        live = list(seen)
    refolded_from = len(seen)
    async with running(ServiceHost(ToyHandler(), event_stream, on_applied=listen, settings=QUICK)):
        pass

    assert live == [
        ("ForecastOverdue", 1, 1),
        ("SlotDecided", 1, 3),
        ("ForecastOverdue", 2, 2),
        ("SlotDecided", 2, 4),
        ("SlotDecided", 2, 4),
    ]
    assert seen[refolded_from:] == live


async def test_a_decision_the_spec_does_not_list_is_our_bug(event_stream):
    class Undeclared(ToyHandler):
        spec = replace(ToyHandler.spec, decides=())

    await event_stream.publish(published([overdue(1)]))

    with pytest.raises(InvariantViolation, match="does not list under decides"):
        await ServiceHost(Undeclared(), event_stream, settings=QUICK).run()


# --- killed at any point ----------------------------------------------------------------------


@pytest.mark.parametrize("inputs", ["stored before", "arriving", "in batches"])
@pytest.mark.parametrize("settings", [ONE_BY_ONE, BATCHED], ids=["one by one", "batched"])
@pytest.mark.parametrize(
    "place", ["after evolve", "before publish", "after publish", "before ack", "after ack"]
)
async def test_a_crash_anywhere_leaves_exactly_one_output_per_input(
    event_stream, place, settings, inputs
):
    slots = 12
    all_of_them = published(overdue(slot) for slot in range(slots))
    batches = [all_of_them]
    if inputs != "stored before":
        batches = [all_of_them[:3], all_of_them[3:9], all_of_them[9:]]
    if inputs == "in batches":
        batches = [in_one_entry(batch) for batch in batches]
    crashes = 0
    for after in itertools.count(1):
        plan = CrashPlan(place, after)
        host = ServiceHost(
            CrashingHandler(plan),
            CrashingStream(event_stream, plan),
            calls=ToyCalls(),
            settings=settings,
        )
        try:
            if inputs == "stored before" and batches:
                await event_stream.publish(batches.pop(0))
            async with running(host):
                if batches:
                    await event_stream.publish(batches.pop(0))
                await eventually(done_or_stopped(host, slots))
                if done(host, slots)():
                    break
        except Crash:
            crashes += 1

    assert crashes > 0
    await assert_complete(event_stream, host.state, slots)


async def test_a_crash_at_every_single_publication(event_stream):
    slots = 8
    await event_stream.publish(published(overdue(slot) for slot in range(slots)))
    crashes = 0
    while True:
        plan = CrashPlan("after publish", 1)
        host = ServiceHost(
            ToyHandler(), CrashingStream(event_stream, plan), calls=ToyCalls(), settings=QUICK
        )
        try:
            async with running(host):
                await eventually(done_or_stopped(host, slots))
        except Crash:
            crashes += 1
            continue
        break

    # Two decisions of one input are one entry.
    assert crashes == len(await entries_of(event_stream)) - slots
    assert crashes < 12 + answers_due(slots)
    await assert_complete(event_stream, host.state, slots)


async def test_recorded_decisions_win_over_what_new_code_would_decide(event_stream):
    class Changed(ToyHandler):
        def decide(self, state, event, ctx):
            outcome = super().decide(state, event, ctx)
            return replace(outcome, events=tuple(replace(e, commands=-1) for e in outcome.events))

    event_stream.most_events = 1
    await event_stream.publish(published([overdue(2)]))
    plan = CrashPlan("after publish", 1)
    with pytest.raises(Crash):
        await ServiceHost(ToyHandler(), CrashingStream(event_stream, plan), settings=QUICK).run()

    async with running(ServiceHost(Changed(), event_stream, settings=QUICK)) as _:
        pass

    decisions = [event_of(entry).commands for entry in await stored(event_stream, DECISIONS)]
    assert decisions == [0, -1]


async def test_a_recorded_call_is_not_repeated(event_stream):
    await event_stream.publish(published([overdue(15)]))
    calls = ToyCalls()
    plan = CrashPlan("before ack", 1)
    with pytest.raises(Crash):
        await ServiceHost(
            ToyHandler(), CrashingStream(event_stream, plan), calls=calls, settings=ONE_BY_ONE
        ).run()

    host = ServiceHost(ToyHandler(), event_stream, calls=calls, settings=QUICK)
    async with running(host):
        await eventually(lambda: host.state.answers == 3)

    assert calls.performed == [15]


async def test_a_call_that_was_answered_in_part_is_performed_again(event_stream):
    event_stream.most_events = 1
    await event_stream.publish(published([overdue(15)]))
    calls = ToyCalls()
    plan = CrashPlan("after publish", 3)  # its decision, and two of three answers
    with pytest.raises(Crash):
        await ServiceHost(
            ToyHandler(), CrashingStream(event_stream, plan), calls=calls, settings=ONE_BY_ONE
        ).run()

    host = ServiceHost(ToyHandler(), event_stream, calls=calls, settings=QUICK)
    async with running(host):
        await eventually(lambda: host.state.answers == 3)

    assert calls.performed == [15, 15]
    answers = [event_of(entry) for entry in await stored(event_stream, ANSWERS)]
    assert answers == [answer(15, place) for place in range(3)]


async def test_an_unavailable_provider_is_asked_again(event_stream):
    class Recovering(ToyCalls):
        async def __call__(self, call):
            answers = await super().__call__(call)
            if len(self.performed) < 3:
                raise ProviderUnavailable("not yet")
            return answers

    calls = Recovering()
    host = ServiceHost(ToyHandler(), event_stream, calls=calls, settings=QUICK)
    async with running(host):
        await event_stream.publish(published([overdue(5)]))
        await eventually(lambda: host.state.answers == 1)

    assert calls.performed == [5, 5, 5]


async def test_a_stop_does_not_wait_for_a_provider_that_is_away(event_stream):
    async def away(call):
        raise ProviderUnavailable("never")

    host = ServiceHost(ToyHandler(), event_stream, calls=away, settings=QUICK)
    async with running(host):
        await event_stream.publish(published([overdue(5)]))
        await eventually(lambda: host.state.inputs == 1)
    calls = ToyCalls()
    host = ServiceHost(ToyHandler(), event_stream, calls=calls, settings=QUICK)
    async with running(host):
        await eventually(lambda: host.state.answers == 1)

    assert calls.performed == [5]


async def test_cancelling_finishes_the_input_in_hand(event_stream):
    calling = asyncio.Event()
    release = asyncio.Event()

    async def slow(call):
        calling.set()
        await release.wait()
        return [answer(call.request)]

    host = ServiceHost(ToyHandler(), event_stream, calls=slow, settings=QUICK)
    await event_stream.publish(published([overdue(5), overdue(6)]))
    task = asyncio.create_task(host.run())
    await calling.wait()

    task.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(await stored(event_stream, ANSWERS)) == 1
    assert host.state.inputs == 1


# --- bad input --------------------------------------------------------------------------------


async def test_an_unreadable_event_of_a_batch_is_dead_lettered_and_the_others_apply(event_stream):
    inputs = published([overdue(1), overdue(2), overdue(3)])
    inputs[1] = replace(inputs[1], payload=b"\xff\xff\xff")
    await event_stream.publish(in_one_entry(inputs))
    for _ in range(2):
        host = ServiceHost(ToyHandler(), event_stream, settings=QUICK)
        async with running(host):
            assert host.state.inputs == 2

    (letter,) = await stored(event_stream, "spotline.v1.deadletter.toy")
    assert letter.envelope().causation_id == inputs[1].event_id
    assert decode_dead_letter(letter.payload).payload == b"\xff\xff\xff"
    slots = [event_of(entry).slot for entry in await stored(event_stream, DECISIONS)]
    assert slots == [1, 3]


async def test_an_unreadable_batch_is_dead_lettered_as_a_whole(event_stream):
    (batch,) = in_one_entry(published([overdue(1), overdue(2)]))
    await event_stream.publish([replace(batch, payload=b"\xff")])
    await event_stream.publish(published([overdue(3)]))
    host = ServiceHost(ToyHandler(), event_stream, settings=QUICK)
    async with running(host):
        assert host.state.inputs == 1

    entries = [entry async for entry in event_stream.read((), last_seq=99)]
    letters = [entry for entry in entries if "deadletter" in entry.subject]
    assert [decode_dead_letter(entry.payload).payload for entry in letters] == [b"\xff"]


@pytest.mark.parametrize(
    ("headers", "payload"),
    [
        ({}, b""),
        ({"ce-id": "x", "ce-type": "spotline.v1.forecast.overdue"}, b"truncat"),
        (envelope(overdue(1)).headers(), b"\xff\xff\xff"),
        (envelope(cancelled(1)).headers(), envelope(cancelled(1)).payload),
        (envelope(overdue(1)).headers() | {"ce-index": "many"}, b""),
    ],
    ids=["no headers", "few headers", "no protobuf", "another kind", "malformed header"],
)
async def test_garbage_is_dead_lettered_and_the_service_lives(event_stream, headers, payload):
    link = await event_stream._connection.link(timeout_s=60)
    host = ServiceHost(ToyHandler(), event_stream, settings=QUICK)
    async with running(host):
        subject = envelope(overdue(1)).subject
        garbage = {name: text for name, text in headers.items() if name != "Nats-Msg-Id"}
        await link.client.jetstream().publish(subject, payload, headers=garbage or None)
        await event_stream.publish([envelope(overdue(1), event_id="good")])
        await eventually(lambda: host.state.inputs == 1)
    async with running(ServiceHost(ToyHandler(), event_stream, settings=QUICK)) as _:
        pass

    (entry,) = await stored(event_stream, "spotline.v1.deadletter.>")
    letter = decode_dead_letter(entry.payload)
    assert (letter.service, letter.payload, letter.original_subject) == ("toy", payload, subject)
    assert host.counters.dead_lettered == 1


async def test_garbage_is_dead_lettered_once_however_often_it_is_read(event_stream):
    link = await event_stream._connection.link(timeout_s=60)
    await link.client.jetstream().publish(envelope(overdue(1)).subject, b"junk")
    for place in ("after publish", "before ack"):
        plan = CrashPlan(place, 1)
        with pytest.raises(Crash):
            await ServiceHost(
                ToyHandler(), CrashingStream(event_stream, plan), settings=ONE_BY_ONE
            ).run()

    host = ServiceHost(ToyHandler(), CrashingStream(event_stream, CrashPlan()), settings=QUICK)
    async with running(host):
        await event_stream.publish(published([overdue(3)]))
        await eventually(lambda: host.state.inputs == 1)

    assert len(await stored(event_stream, "spotline.v1.deadletter.>")) == 1


# --- timers -----------------------------------------------------------------------------------


async def test_due_timers_fire_once_each_also_across_restarts(event_stream):
    for limit in (2, 5, 5):
        handler = ToyHandler(timers=limit)
        host = ServiceHost(handler, CrashingStream(event_stream, CrashPlan()), settings=QUICK)
        async with running(host):
            await eventually(lambda h=host, n=limit: h.state.fired == n)

    fired = [event_of(entry).job_id for entry in await stored(event_stream)]
    assert fired == [f"timer-{number}" for number in range(5)]


async def test_a_timer_that_is_not_due_any_more_does_not_fire(event_stream):
    opened = asyncio.Event()
    asked = []

    async def gate(timer):
        asked.append(timer.timer_id)
        await opened.wait()

    host = ServiceHost(ToyHandler(timers=1, gated=True), event_stream, gate=gate, settings=QUICK)
    async with running(host):
        await eventually(lambda: asked == ["cancel:0"])
        await event_stream.publish(published([cancelled(1)]))
        await eventually(lambda: host.state.fired == 1 and not host._timers)
        opened.set()
        # Had it fired, that would be stored before the latter of these.
        for number in (2, 3):
            await host.publish_observation(cancelled(number), event_id=f"later-{number}")
            await eventually(lambda number=number: host.state.fired == number)

    assert len(await stored(event_stream)) == 3


async def test_a_timer_waits_for_its_moment(event_stream):
    host = ServiceHost(ToyHandler(timers=1, timer_s=0.2), event_stream, settings=QUICK)
    begun = time.monotonic()
    async with running(host):
        await eventually(lambda: host.state.fired == 1)

    assert time.monotonic() - begun >= 0.2


async def test_a_gated_timer_waits_for_its_gate(event_stream):
    opened = asyncio.Event()
    asked = []

    async def gate(timer):
        asked.append(timer.timer_id)
        await opened.wait()

    host = ServiceHost(ToyHandler(timers=1, gated=True), event_stream, gate=gate, settings=QUICK)
    async with running(host):
        await eventually(lambda: asked == ["cancel:0"])
        assert await event_stream.last_seq() == 0
        opened.set()
        await eventually(lambda: host.state.fired == 1)


async def test_a_timer_is_not_armed_before_the_log_is_caught_up(event_stream):
    await event_stream.publish(published([cancelled(1)]))
    host = ServiceHost(ToyHandler(timers=1), event_stream, settings=QUICK)
    async with running(host):
        assert host.state.fired == 1
        assert not host._timers


# --- what the shell observes ------------------------------------------------------------------


async def test_an_observation_comes_back_as_an_input_once(event_stream):
    host = ServiceHost(ToyHandler(), event_stream, settings=QUICK)
    async with running(host):
        first = await host.publish_observation(cancelled(1), event_id="request-1")
        again = await host.publish_observation(cancelled(1), event_id="request-1")
        await eventually(lambda: host.state.fired == 1)
    restarted = ServiceHost(ToyHandler(), CrashingStream(event_stream, CrashPlan()), settings=QUICK)
    async with running(restarted):
        later = await restarted.publish_observation(cancelled(1), event_id="request-1")

    assert first == again == later == 1


async def test_an_observation_the_spec_does_not_list_is_refused(event_stream):
    host = ServiceHost(ToyHandler(), event_stream, settings=QUICK)
    opened = SlotOpened(slot=0, ts_event_ns=0, slot_s=60, quotes=())

    with pytest.raises(InvariantViolation, match="does not list under produces"):
        await host.publish_observation(opened, event_id="x")


# --- snapshots --------------------------------------------------------------------------------


def with_snapshots(stream, connection, *, every=10, codec=None, plan=None, seen=None):
    snapshots = Snapshots(store=NatsSnapshotStore(connection), codec=codec or ToyCodec())
    return ServiceHost(
        CrashingHandler(plan or CrashPlan()),
        CrashingStream(stream, plan or CrashPlan()),
        calls=ToyCalls(),
        snapshots=snapshots,
        on_applied=None if seen is None else lambda event, head, seq: seen.append(seq),
        settings=replace(QUICK, snapshot_every=every),
    )


async def test_a_restart_from_a_snapshot_folds_only_the_tail(nats_connection, event_stream):
    async with running(with_snapshots(event_stream, nats_connection)) as _:
        await event_stream.publish(published(overdue(slot) for slot in range(30)))
        await eventually(lambda: True)
    first = with_snapshots(event_stream, nats_connection)
    async with running(first):
        await eventually(done(first, 30))
    covered = await event_stream.last_seq()
    seen = []

    second = with_snapshots(event_stream, nats_connection, seen=seen)
    async with running(second):
        await event_stream.publish(published(overdue(slot) for slot in range(30, 40)))
        await eventually(done(second, 40))

    assert min(seen) > covered
    await assert_complete(event_stream, second.state, 40)


@pytest.mark.parametrize("place", ["after evolve", "before publish", "after publish", "before ack"])
async def test_crashes_around_snapshots_lose_and_repeat_nothing(
    nats_connection, event_stream, place
):
    slots = 12
    await event_stream.publish(published(overdue(slot) for slot in range(slots)))
    for after in itertools.count(1):
        plan = CrashPlan(place, after)
        host = with_snapshots(event_stream, nats_connection, every=1, plan=plan)
        host._settings = replace(host._settings, batch=2)
        try:
            async with running(host):
                await eventually(done_or_stopped(host, slots))
        except Crash:
            continue
        break

    await assert_complete(event_stream, host.state, slots)


async def test_a_snapshot_of_another_version_is_ignored(nats_connection, event_stream):
    class Newer(ToyCodec):
        version = "2"

        def load(self, dumped):
            raise AssertionError("must not be read")

    await event_stream.publish(published(overdue(slot) for slot in range(20)))
    first = with_snapshots(event_stream, nats_connection)
    async with running(first):
        await eventually(done(first, 20))

    second = with_snapshots(event_stream, nats_connection, codec=Newer())
    async with running(second):
        pass

    assert second.state == first.state


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a snapshot ran code",))


@pytest.mark.parametrize(
    "planted",
    [
        pickle.dumps(Evil()),
        sealed(Snapshot(seq=3, version="1", content=b"[]\n" + pickle.dumps(Evil()))),
        sealed(Snapshot(seq=10**9, version="1", content=b"[]\n{}")),
        sealed(Snapshot(seq=3, version="0", content=b"[]\n{}")),
        sealed(Snapshot(seq=3, version="1", content=b"[]\n{}"))[:-1],
        b"",
    ],
    ids=["pickled", "pickled inside", "of another log", "of another version", "cut", "empty"],
)
async def test_a_snapshot_that_cannot_be_used_is_set_aside(nats_connection, event_stream, planted):
    await event_stream.publish(published(overdue(slot) for slot in range(20)))
    first = with_snapshots(event_stream, nats_connection)
    async with running(first):
        await eventually(done(first, 20))
    store = NatsSnapshotStore(nats_connection)
    await store.put("toy", planted)

    second = with_snapshots(event_stream, nats_connection)
    async with running(second):
        assert second.counters.snapshots_set_aside == 1

    assert second.state == first.state
    assert await store.get("toy.set_aside") == planted
    third = with_snapshots(event_stream, nats_connection)
    async with running(third):
        assert third.counters.snapshots_set_aside == 0
    assert third.state == first.state


@pytest.mark.parametrize("entry", [b"no JSON", b"[]", b"{}", b'{"bucket": 1, "nuid": 2}'])
async def test_a_damaged_entry_of_the_store_costs_a_refold(nats_connection, event_stream, entry):
    await event_stream.publish(published(overdue(slot) for slot in range(20)))
    first = with_snapshots(event_stream, nats_connection)
    async with running(first):
        await eventually(done(first, 20))
    link = await nats_connection.link(timeout_s=5.0)
    name = base64.urlsafe_b64encode(b"toy").decode()
    await link.client.jetstream().publish(f"$O.spotline_snapshots_0.M.{name}", entry)

    second = with_snapshots(event_stream, nats_connection)
    async with running(second):
        await event_stream.publish(published(overdue(slot) for slot in range(20, 30)))
        await eventually(done(second, 30))
    third = with_snapshots(event_stream, nats_connection)
    async with running(third):
        pass

    assert third.state == second.state


# --- the broker goes and comes back -----------------------------------------------------------


async def test_a_restart_of_the_broker_in_mid_run_loses_nothing(tmp_path):
    slots = 300
    port = free_port()
    async with EmbeddedBroker(tmp_path, port=port) as broker:
        url = broker.url
        connections = [await NatsConnection(url).__aenter__() for _ in range(2)]
        streams = [await NatsEventStream.open(connection) for connection in connections]
        host = ServiceHost(ToyHandler(), streams[0], calls=ToyCalls(), settings=QUICK)
        work = asyncio.create_task(host.run())

        async def feed():
            for slot in range(slots):
                await streams[1].publish(published([overdue(slot)]))

        feeding = asyncio.create_task(feed())
        await eventually(lambda: host.state.inputs > 50)
        os.kill(broker.server_pid, signal.SIGKILL)
        await broker.stopped()
    await asyncio.sleep(1.0)  # away for a while
    assert not work.done()
    async with EmbeddedBroker(tmp_path, port=port):
        await feeding
        await eventually(done(host, slots))
        host.stop()
        await work
        await assert_complete(streams[1], host.state, slots)
        for connection in connections:
            await connection.close()


# --- health -----------------------------------------------------------------------------------


async def get(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def test_health_follows_the_host(event_stream):
    host = ServiceHost(ToyHandler(), event_stream, settings=QUICK)
    async with serve_health({"toy": host.health}) as port:
        before, _ = await get(port, "/healthz")
        async with running(host):
            during, body = await get(port, "/healthz")
        after, _ = await get(port, "/healthz")
        elsewhere, _ = await get(port, "/")

    assert (before, during, after, elsewhere) == (503, 200, 503, 404)
    assert body["toy"]["phase"] == "live"
