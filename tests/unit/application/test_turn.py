"""One turn, in every host: live, in a loop, and in verification."""

import asyncio
from dataclasses import replace

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.spec import Context, Timer
from spotline.application.turn import RecentIds, Turn, Turns
from spotline.contracts.batch import is_batch, unpacked
from spotline.contracts.build import event_of
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import SlotDecided
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.host import LocalHost
from spotline.replay.verify import verify
from spotline.runtime.service import HostSettings, ServiceHost
from tests.eventually import eventually
from tests.fakes.events import overdue
from tests.fakes.recorded_run import altered, manifest_of
from tests.fakes.stream import FakeStream
from tests.fakes.toy import ToyCalls, ToyHandler, answer

QUICK = HostSettings(idle_s=0.02)
SLOTS = (2, 10, 15, 20)  # calls with two, three and one answers


def played():
    """What a loop records of the toy: each call has as many answers as live."""
    log = []
    host = LocalHost(
        [ToyHandler()],
        answers={"ask": lambda call: [answer(call.request, i) for i in range(answers(call))]},
        record=log.append,
    )
    for slot in SLOTS:
        host.publish(overdue(slot), source="selector")
    return log, host.state_of("toy")


def answers(call):
    return max(1, call.request // 5 % 4)


async def lived():
    """What a service records of the same inputs."""
    inputs = [entry.envelope() for entry in played()[0] if not entry.headers["ce-causationid"]]
    stream = FakeStream()
    host = ServiceHost(ToyHandler(), stream, calls=ToyCalls(), settings=QUICK)
    work = asyncio.create_task(host.run())
    wanted = ToyHandler().initial()
    for envelope, slot in zip(inputs, SLOTS, strict=True):
        await stream.publish([envelope])
        wanted.inputs += 1
        wanted.answers += max(1, slot // 5 % 4) if slot % 5 == 0 else 0
        await eventually(
            lambda: (
                (host.state.inputs, host.state.answers) == (wanted.inputs, wanted.answers)
                and not host.backlog
            )
        )
    host.stop()
    await work
    return stream.entries, host.state


def heads(log):
    return [
        (entry.headers["ce-type"], entry.headers["ce-id"], entry.headers["ce-index"])
        for entry in log
    ]


async def test_live_and_in_a_loop_the_same_inputs_lead_to_the_same_ids_in_the_same_order():
    stored, live_state = await lived()
    loop, loop_state = played()

    # What follows from one cause is one entry of the log; a loop records each event by itself.
    assert any(is_batch(entry) for entry in stored)
    live = [event for entry in stored for event in unpacked(entry)]
    assert heads(live) == heads(loop)
    assert [entry.payload for entry in live] == [entry.payload for entry in loop]
    assert live_state == loop_state


def verified(log):
    return verify(log, [ToyHandler()], manifest_of(log), here=environment())


async def test_what_was_recorded_live_or_in_a_loop_is_verified_with_every_answer():
    for log, _ in (await lived(), played()):
        report = verified(log)

        assert report.exit_code == SAME, report.divergences
        assert report.answers == 1 + 2 + 3
        assert report.open_inputs == 0


@pytest.mark.parametrize("nth", range(6))
def test_each_of_several_answers_is_recomputed(nth):
    log, _ = played()
    changed, seq = altered(log, AllocationAnswered, lambda e: replace(e, slot=99), nth=nth)

    report = verified(changed)

    assert report.exit_code == DIVERGED
    assert [divergence.seq for divergence in report.divergences] == [seq]
    assert "slot: 99 recorded" in report.divergences[0].describe()


def test_answers_out_of_order_diverge():
    log, _ = played()
    first, second, _ = (
        place for place, entry in enumerate(log) if event_of(entry).slot == 15 and place_of(entry)
    )
    log[first], log[second] = (
        replace(log[second], seq=log[first].seq),
        replace(log[first], seq=log[second].seq),
    )

    report = verified(log)

    assert report.exit_code == DIVERGED
    assert report.divergences[0].recomputed == "no such call"


def place_of(entry):
    return isinstance(event_of(entry), AllocationAnswered)


def test_a_decision_that_is_consumed_is_applied_once_in_a_loop():
    log, state = played()

    decided = [entry for entry in log if isinstance(event_of(entry), SlotDecided)]
    assert state.decided == len(decided) == 2 + 2 + 1 + 2


# --- the SPEC ---------------------------------------------------------------------------------


def context(event_id="cause"):
    return Context(seq=1, now_ns=1, event_id=event_id, correlation_id=event_id)


def toy_with(**changes):
    handler = ToyHandler()
    handler.spec = replace(ToyHandler.spec, **changes)
    return handler


def test_a_decision_that_the_spec_does_not_list_is_refused():
    turns = Turns(toy_with(decides=()))

    with pytest.raises(InvariantViolation, match="decided SlotDecided, which its SPEC"):
        turns.take(overdue(1), context())


def test_a_call_that_the_spec_does_not_list_is_refused():
    turns = Turns(toy_with(calls=()))

    with pytest.raises(InvariantViolation, match="asks for ask, which its SPEC"):
        turns.take(overdue(5), context())


def test_an_answer_that_the_spec_does_not_list_is_refused():
    (pending,) = Turns(ToyHandler()).take(overdue(5), context()).calls

    with pytest.raises(InvariantViolation, match="ask was answered by ForecastOverdue"):
        pending.answers([overdue(5)])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"consumes": ()}, "toy consumes nothing"),
        ({"produces": (AllocationAnswered,)}, "made SlotDecided"),
        ({"produces": (SlotDecided,)}, "made AllocationAnswered"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(changes, problem):
    with pytest.raises(InvariantViolation, match=problem):
        Turns(toy_with(**changes))


def test_an_observation_or_a_timer_that_the_spec_does_not_list_is_refused():
    turns = Turns(ToyHandler())

    with pytest.raises(InvariantViolation, match="made ForecastOverdue"):
        turns.observation(overdue(1), event_id="x")
    with pytest.raises(InvariantViolation, match="made ForecastOverdue"):
        turns.timer_outputs(Timer(timer_id="t", after_s=0, events=(overdue(1),)))


# --- ids and repetition -----------------------------------------------------------------------


def test_the_last_answer_has_the_id_of_its_call():
    (pending,) = Turns(ToyHandler()).take(overdue(5), context()).calls

    one = pending.answers([answer(5)])
    three = pending.answers([answer(5, place) for place in range(3)])

    assert one[0].event_id == three[2].event_id == pending.call_id
    assert [output.index for output in three] == [0, 1, 2]
    assert len({output.event_id for output in three}) == 3
    assert [pending.left_after(output.event_id) for output in three] == [2, 1, 0]
    assert pending.left_after("another") is None


def test_an_event_that_was_applied_changes_nothing():
    turns = Turns(ToyHandler())
    first = turns.take(overdue(5), context())
    digest = turns.state.digest

    again = turns.take(overdue(5), context())
    own = turns.take(first.outputs[0].event, context(first.outputs[0].event_id))

    assert (again, own) == (Turn(), Turn())
    assert turns.state.digest == digest


def test_recorded_outputs_stand_for_what_would_be_decided_now():
    recorded = replace(
        Turns(ToyHandler()).take(overdue(2), context()).outputs[1],
        event=SlotDecided(slot=2, revision=7, offset_s=0, commands=0),
    )

    turn = Turns(ToyHandler()).take(overdue(2), context(), {1: recorded, 3: recorded})

    assert [output.event.revision for output in turn.outputs] == [0, 7, 7]


def test_a_turn_refolded_is_the_turn_that_was_taken():
    taken = Turns(ToyHandler())
    outputs = taken.take(overdue(2), context()).outputs
    refolded = Turns(ToyHandler())

    refolded.refold(overdue(2), context(), {output.index: output for output in outputs})

    assert refolded.state == taken.state
    assert refolded.applied_ids() == taken.applied_ids()


def test_a_restored_handler_knows_what_it_applied():
    before = Turns(ToyHandler())
    before.take(overdue(2), context())
    after = Turns(ToyHandler())

    after.restore(before.state, before.applied_ids())

    assert after.take(overdue(2), context()) == Turn()


def test_only_the_latest_ids_are_remembered():
    ids = RecentIds(2)

    assert [ids.add(name) for name in "aabcb"] == [True, False, True, True, False]
    assert ids.latest() == ["b", "c"]
