"""A turn that fails changes nothing, and says what it left out."""

from array import array
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.rollback import LEAST_EVENTS, Copying, Rollback
from spotline.application.spec import NOTHING, Context, Outcome
from spotline.application.turn import Turn, Turns
from spotline.application.unfit import Unfit
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.events.parking import EntryParked
from tests.fakes.events import overdue
from tests.fakes.toy import ToyHandler

SLOTS = st.lists(st.integers(0, 30), max_size=40)
# What goes wrong, and where: before and after the state was changed, in deciding, and behind it.
FAULTS = ("before", "after", "decide", "apply", "encode", "route")


def context(event_id="cause", seq=7, place=2):
    return Context(seq=seq, place=place, now_ns=1, event_id=event_id, correlation_id=event_id)


class Failing(ToyHandler):
    """Fails on slots >= 1000, in the way that the slot says."""

    def evolve(self, state, event):
        fault = fault_of(event)
        if fault == "before":
            raise Unfit("slot", "< 1000", event.slot)
        super().evolve(state, event)
        if fault == "after" or (isinstance(event, SlotDecided) and event.revision == 99):
            raise KeyError("nobody\nforesaw this")

    def decide(self, state, event, ctx):
        match fault_of(event):
            case "decide":
                raise ZeroDivisionError("in deciding")
            case "apply":
                good = SlotDecided(slot=1, revision=0, offset_s=0, commands=0)
                return Outcome(events=(good, replace(good, revision=99)))
            case "encode":
                return Outcome(
                    events=(SlotDecided(slot=1 << 70, revision=0, offset_s=0, commands=0),)
                )
            case "route":
                return Outcome(events=(JobCancelled(job_id="", tenant="a"),))
        return super().decide(state, event, ctx) if isinstance(event, type(overdue(1))) else NOTHING


Failing.spec = replace(
    ToyHandler.spec,
    decides=(SlotDecided, JobCancelled),
)


def fault_of(event):
    slot = getattr(event, "slot", 0)
    at = slot - 1000 if isinstance(event, type(overdue(1))) else -1
    return FAULTS[at] if 0 <= at < len(FAULTS) else ""


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_fails_parks_the_event_and_leaves_the_state_as_it_was(fault):
    turns = Turns(Failing())
    turns.take(overdue(2), context("first"))
    before = replace(turns.state)

    turn = turns.take(overdue(1000 + FAULTS.index(fault)), context())

    assert turns.state == before
    assert [type(output.event) for output in turn.outputs] == [EntryParked]
    parked = turn.parked
    assert parked == turn.outputs[0].event
    assert (parked.service, parked.seq, parked.place) == ("toy", 7, 2)
    assert (parked.event_id, parked.kind) == ("cause", "forecast.overdue")
    assert parked.slot == 1000 + FAULTS.index(fault)
    assert parked.error.isprintable()
    assert turn.outputs[0].causation_id == "cause"


def test_the_reason_of_an_event_that_does_not_fit_names_field_expectation_and_value():
    parked = Turns(Failing()).take(overdue(1000), context()).parked

    assert parked.error == "slot must be < 1000, was 1000"
    assert parked.error_type == "Unfit"


@given(SLOTS, st.lists(st.sampled_from(FAULTS), max_size=6), st.data())
def test_a_run_with_parked_events_ends_as_the_run_without_them(slots, faults, data):
    inputs = [(f"good:{place}", overdue(slot)) for place, slot in enumerate(slots)]
    clean = Turns(Failing())
    for event_id, event in inputs:
        clean.take(event, context(event_id))
    for place, fault in enumerate(faults):
        at = data.draw(st.integers(0, len(inputs)))
        inputs.insert(at, (f"bad:{place}", overdue(1000 + FAULTS.index(fault))))

    turns = Turns(Failing())
    parked = 0
    for event_id, event in inputs:
        parked += turns.take(event, context(event_id)).parked is not None

    assert parked == len(faults)
    assert turns.state == clean.state


def test_a_parked_event_that_comes_again_is_not_tried_again():
    turns = Turns(Failing())
    turns.take(overdue(1001), context())

    assert turns.take(overdue(1001), context()) == Turn()


def test_two_services_that_park_the_same_event_say_so_with_different_ids():
    other = Failing()
    other.spec = replace(Failing.spec, service="other")

    ours = Turns(Failing()).take(overdue(1001), context()).outputs[0].event_id
    theirs = Turns(other).take(overdue(1001), context()).outputs[0].event_id

    assert ours != theirs
    assert ours == Turns(Failing()).take(overdue(1001), context()).outputs[0].event_id


def test_what_the_log_says_is_parked_is_left_out_even_if_it_could_be_taken():
    bad = Turns(Failing()).take(overdue(1001), context()).outputs[0]
    turns = Turns(ToyHandler())
    before = replace(turns.state)

    turn = turns.leave_out(context("cause"), bad)

    assert turn.parked == bad.event
    assert turn.error is None
    assert turns.state == before
    assert turns.take(overdue(1001), context()) == Turn()


def test_an_acknowledged_event_that_cannot_be_applied_any_more_is_parked():
    turns = Turns(Failing())

    turn = turns.refold(overdue(1001), context(), {})

    assert turn.parked is not None
    assert turns.state == Failing().initial()


def test_an_attempt_changes_nothing():
    turns = Turns(Failing())
    turns.take(overdue(2), context("first"))
    before = replace(turns.state)

    assert turns.attempt(overdue(4), context()).error is None
    assert turns.attempt(overdue(1001), context()).error is not None
    assert turns.state == before
    assert turns.take(overdue(4), context()).outputs


class Deaf(ToyHandler):
    """Cannot take that something is parked."""

    spec = replace(ToyHandler.spec, consumes=(*ToyHandler.spec.consumes, EntryParked))

    def evolve(self, state, event):
        if isinstance(event, EntryParked):
            raise KeyError("deaf")


def test_parking_of_a_parking_ends():
    turns = Turns(Deaf())
    said = EntryParked(
        service="toy", seq=1, place=0, event_id="x", kind="decision", error="?", error_type="?"
    )

    first = turns.take(said, context("a"))
    second = turns.take(first.parked, context(first.outputs[0].event_id))

    assert first.parked.kind == "parked.entry"
    assert (second.outputs, second.parked) == ((), None)


# --- the copy ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Holder:
    event: object = None
    nested: dict = field(default_factory=dict)
    same: list = field(default_factory=list)


def test_a_copy_shares_what_cannot_change_and_nothing_else():
    event = overdue(1)
    inner = [event]
    holder = Holder(event=event, nested={"a": ({1, 2}, inner)}, same=inner)

    copied = Copying().copied(holder)

    assert copied == holder
    assert copied.event is event
    assert copied.same is copied.nested["a"][1]
    assert copied.same is not inner
    copied.nested["a"][0].add(3)
    assert holder.nested["a"][0] == {1, 2}


@dataclass(slots=True)
class Sole:
    counts: object


def test_a_copy_is_of_the_same_kinds_and_knows_what_was_never_set():
    unset = object.__new__(Holder)
    unset.same = [1]
    sole = Sole(Counter(a=2))
    ordered = OrderedDict(b=[1], a=[2])
    found = defaultdict(list, {"x": [3]})

    copied = Copying().copied([unset, sole, ordered, found])

    assert [type(value) for value in copied] == [Holder, Sole, OrderedDict, defaultdict]
    assert copied[0].same == [1]
    assert copied[0].same is not unset.same
    assert not hasattr(copied[0], "nested")
    assert copied[1].counts == Counter(a=2)
    assert copied[1].counts is not sole.counts
    assert list(copied[2].items()) == [("b", [1]), ("a", [2])]
    copied[2].move_to_end("b")
    assert list(ordered) == ["b", "a"]
    assert copied[3]["y"] == []
    assert "y" not in found


class Guarded:
    """Written only by those who go round it."""

    __slots__ = ("counts", "name")

    def __setattr__(self, name, value):
        raise AttributeError(name)


def test_numbers_tuples_and_guarded_slots_are_copied_with_what_they_hold():
    guarded = object.__new__(Guarded)
    object.__setattr__(guarded, "counts", [1])
    object.__setattr__(guarded, "name", "a")
    numbers, fixed, mixed = array("q", [1, 2]), (1, "b"), ([3], "c")

    copied = Copying().copied([numbers, fixed, mixed, guarded])

    copied[0].append(3)
    copied[2][0].append(4)
    copied[3].counts.append(2)
    assert copied[:3] == [array("q", [1, 2, 3]), (1, "b"), ([3, 4], "c")]
    assert (copied[3].counts, copied[3].name) == ([1, 2], "a")
    assert copied[1] is fixed
    assert (numbers, mixed, guarded.counts) == (array("q", [1, 2]), ([3], "c"), [1])


def test_a_small_state_is_copied_once_in_so_many_events():
    turns = ToyHandler()
    state = turns.initial()
    rollback = Rollback(state)
    for _ in range(10 * LEAST_EVENTS):
        turns.evolve(state, overdue(1))
        rollback.note(state, [overdue(1)])

    assert rollback.copies == 11
    assert rollback.back(turns.evolve) == state


class Checked(Failing):
    """Refuses before anything has changed."""

    def check(self, state, event):
        if fault_of(event):
            raise Unfit("slot", "< 1000", event.slot)


def test_what_is_refused_before_it_is_applied_needs_no_way_back():
    turns = Turns(Checked())
    state = turns.state

    turn = turns.take(overdue(1003), context())

    assert turn.parked.error_type == "Unfit"
    assert turns.state is state
    assert turns.attempt(overdue(1003), context("b")).parked is not None


def test_a_state_whose_events_are_heavy_is_copied_more_often():
    turns = ToyHandler()
    state = turns.initial()
    rollback = Rollback(state, LEAST_EVENTS // 2)
    for _ in range(10):
        turns.evolve(state, overdue(1))
        rollback.note(state, [overdue(1)])

    assert rollback.copies == 6
