"""The life of an instance: defined everywhere, and never over because something was not seen once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.ledger.instance_life import (
    Graces,
    InstanceLife,
    LifeInput,
    LifeState,
    advance_life,
    needs_stop,
    next_look_ns,
)
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

GRACES = Graces()
SEEN = (
    LifeInput.SEEN_PENDING,
    LifeInput.SEEN_RUNNING,
    LifeInput.SEEN_STOPPING,
    LifeInput.SEEN_ENDED,
)
ALIVE = (LifeState.VISIBLE, LifeState.RUNNING, LifeState.NOTICED)


def life(state=LifeState.REQUESTED, *, launch=False, **others):
    fields = {
        "instance_id": "" if launch else "i",
        "token": "t",
        "command_id": "c",
        "attempt": 0,
        "job_id": "j",
        "tenant": "acme",
        "quota_pool": "pool",
        "offering_id": "a",
        "capacity_type": CapacityType.SPOT,
        "state": state,
        "since_ns": 0,
    }
    return InstanceLife(**(fields | others))


def after(start, *steps, graces=GRACES):
    """`steps` are (seconds, input)."""
    current = start
    for at_s, what in steps:
        current, _ = advance_life(current, what, at_s * NS_PER_S, graces)
    return current


@pytest.mark.parametrize("what", LifeInput)
@pytest.mark.parametrize("state", LifeState)
@pytest.mark.parametrize("launch", [False, True])
@pytest.mark.parametrize("ours", [True, False])
def test_every_input_is_defined_in_every_state(state, what, launch, ours):
    before = life(state, launch=launch, ours=ours)

    now, transition = advance_life(before, what, 5 * NS_PER_S, GRACES)

    assert isinstance(now.state, LifeState)
    assert (transition is None) == (now == before)
    if transition is not None:
        assert (transition.before, transition.life, transition.what) == (state, now, what)
    assert now.since_ns == (before.since_ns if now.state is state else 5 * NS_PER_S)


def test_a_grant_that_no_listing_shows_is_pending_and_not_lost():
    pending = after(life(), (0, LifeInput.GRANTED))

    unseen = after(pending, *((at_s, LifeInput.MISSING) for at_s in (1, 60, 300, 899)))

    assert (pending.state, unseen.state) == (LifeState.PENDING, LifeState.PENDING)


def test_a_grant_that_is_never_shown_is_asked_to_end_after_its_time_and_given_up_much_later():
    young = after(life(LifeState.PENDING), (30, LifeInput.MISSING), (899, LifeInput.TIME_PASSED))
    once = after(young, (900, LifeInput.MISSING), (929, LifeInput.TIME_PASSED))
    assert (young.state, once.state) == (LifeState.PENDING, LifeState.PENDING)

    stopping = after(once, (930, LifeInput.TIME_PASSED))
    missing = after(stopping, (931, LifeInput.MISSING), (2000, LifeInput.MISSING))

    assert needs_stop(stopping, 930 * NS_PER_S, GRACES)
    assert (stopping.state, missing.state) == (LifeState.STOPPING, LifeState.STOPPING)
    assert after(missing, (4530, LifeInput.TIME_PASSED)).state is LifeState.ENDED


@pytest.mark.parametrize("state", ALIVE)
def test_shown_once_it_is_lost_by_two_absences_apart_and_by_nothing_less(state):
    shown = life(state, shown=True)

    once = after(shown, (10, LifeInput.MISSING))
    too_soon = after(once, (39, LifeInput.MISSING))
    apart = after(once, (40, LifeInput.MISSING))
    seen_between = after(once, (20, LifeInput.SEEN_RUNNING), (40, LifeInput.MISSING))

    assert (once.state, too_soon.state) == (state, state)
    assert apart.state is LifeState.ENDED
    assert seen_between.state is not LifeState.ENDED


@pytest.mark.parametrize("state", LifeState)
def test_not_found_ends_nothing(state):
    assert after(life(state, shown=True), (9999, LifeInput.NOT_FOUND)).state is state


def test_what_was_asked_to_end_is_asked_again_until_it_is_seen_ended():
    asked = after(life(LifeState.RUNNING, shown=True), (0, LifeInput.STOP_ASKED))
    assert not needs_stop(asked, 29 * NS_PER_S, GRACES)
    assert needs_stop(asked, 30 * NS_PER_S, GRACES)

    still = after(asked, (30, LifeInput.SEEN_RUNNING), (99999, LifeInput.TIME_PASSED))

    assert still.state is LifeState.STOPPING
    assert after(still, (31, LifeInput.SEEN_ENDED)).state is LifeState.ENDED


def test_what_the_cloud_ends_is_not_asked_to_end():
    taken = after(life(LifeState.RUNNING), (5, LifeInput.SEEN_STOPPING))

    assert taken.state is LifeState.NOTICED
    assert not needs_stop(taken, 9999 * NS_PER_S, GRACES)


def test_a_notice_that_comes_to_nothing_lapses():
    noticed = after(life(LifeState.RUNNING, shown=True), (5, LifeInput.NOTICED))

    assert after(noticed, (6, LifeInput.SEEN_RUNNING)).state is LifeState.NOTICED
    assert after(noticed, (905, LifeInput.TIME_PASSED)).state is LifeState.RUNNING


@pytest.mark.parametrize(
    ("shown", "state"), [(True, LifeState.RUNNING), (False, LifeState.PENDING)]
)
def test_a_notice_that_is_withdrawn_leaves_things_as_they_were(shown, state):
    noticed = after(life(state, shown=shown), (5, LifeInput.NOTICED))

    assert after(noticed, (6, LifeInput.WITHDRAWN)).state is state


@pytest.mark.parametrize("state", [state for state in LifeState if state is not LifeState.NOTICED])
def test_to_withdraw_what_was_never_noticed_changes_nothing(state):
    assert after(life(state), (5, LifeInput.WITHDRAWN)) == life(state)


def test_a_lapsed_notice_of_what_was_never_shown_leaves_it_pending():
    noticed = after(life(LifeState.PENDING), (5, LifeInput.NOTICED), (6, LifeInput.MISSING))

    assert after(noticed, (905, LifeInput.TIME_PASSED)).state is LifeState.PENDING


def test_a_launch_of_unknown_outcome_is_looked_up_until_its_grace_is_over():
    unknown = after(life(launch=True), (0, LifeInput.OUTCOME_UNKNOWN))
    looked = after(
        unknown,
        (100, LifeInput.NOT_FOUND),
        (299, LifeInput.TIME_PASSED),
        (300, LifeInput.NOT_FOUND),
        (329, LifeInput.TIME_PASSED),
    )

    assert (unknown.state, looked.state) == (LifeState.UNKNOWN, LifeState.UNKNOWN)
    assert after(looked, (329, LifeInput.FOUND)).state is LifeState.ENDED
    assert after(looked, (330, LifeInput.TIME_PASSED)).state is LifeState.ENDED
    assert after(unknown, (9999, LifeInput.TIME_PASSED)).state is LifeState.UNKNOWN


def test_a_stranger_stays_one_until_somebody_asks_for_its_end_and_is_forgotten_when_it_is_gone():
    stranger = life(LifeState.UNKNOWN, ours=False)

    assert after(stranger, (9999, LifeInput.SEEN_RUNNING)).state is LifeState.UNKNOWN
    assert after(stranger, (30, LifeInput.STOP_ASKED)).state is LifeState.STOPPING
    assert after(stranger, (30, LifeInput.MISSING)).state is LifeState.ENDED


def test_what_comes_back_after_its_end_is_asked_to_end():
    back = after(life(LifeState.ENDED), (5, LifeInput.SEEN_RUNNING))

    assert back.state is LifeState.STOPPING
    assert needs_stop(back, 5 * NS_PER_S, GRACES)


def test_graces_are_positive():
    with pytest.raises(ValueError, match="grace apart_s must be > 0, was 0"):
        Graces(apart_s=0)


STEPS = st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(LifeInput)), max_size=40)


@given(
    state=st.sampled_from(LifeState),
    steps=STEPS,
    launch=st.booleans(),
    ours=st.booleans(),
    shown=st.booleans(),
)
def test_an_end_is_seen_or_proven_by_two_absences_or_given_up(state, steps, launch, ours, shown):
    current = life(state, launch=launch, ours=ours, shown=shown)
    now_s = 0
    for wait_s, what in steps:
        now_s += wait_s
        before = current
        current, transition = advance_life(before, what, now_s * NS_PER_S, GRACES)
        assert current.since_ns >= before.since_ns
        assert current.absent_ns is None or what not in SEEN
        if transition is None or current.state is not LifeState.ENDED:
            continue
        if before.state is LifeState.ENDED:
            continue
        stranger = not before.ours and before.state is LifeState.UNKNOWN
        if what is LifeInput.MISSING and not stranger:
            assert before.shown
            assert before.absent_ns is not None
            assert now_s * NS_PER_S - before.absent_ns >= GRACES.apart_s * NS_PER_S
        elif what is LifeInput.TIME_PASSED:
            # Given up: nobody ever saw it, and it was not simply pending.
            assert before.is_launch or not before.shown
            assert before.state in (LifeState.UNKNOWN, LifeState.STOPPING)
        elif what in (LifeInput.GRANTED, LifeInput.FOUND):
            assert before.is_launch
        elif what is LifeInput.REFUSED:
            assert before.is_launch or before.state is LifeState.REQUESTED
        else:
            assert what is LifeInput.SEEN_ENDED or (stranger and what is LifeInput.MISSING)


@given(state=st.sampled_from(LifeState), launch=st.booleans(), absent=st.booleans())
def test_looks_and_time_end_every_wait(state, launch, absent):
    """Whatever is waited for: after long enough the state changes, or the end is asked for again."""
    waiting = life(state, launch=launch, shown=absent, absent_ns=0 if absent else None)
    look_ns = next_look_ns(waiting, GRACES)
    if look_ns is None:
        assert state in (LifeState.ENDED, LifeState.RUNNING)
        return

    late_ns = look_ns + 86_400 * NS_PER_S
    later, _ = advance_life(waiting, LifeInput.TIME_PASSED, late_ns, GRACES)
    for lacking in (LifeInput.MISSING, LifeInput.NOT_FOUND, LifeInput.TIME_PASSED):
        # In what nobody has looked at nothing is concluded: two looks follow.
        later, _ = advance_life(later, lacking, late_ns, GRACES)
        later, _ = advance_life(later, lacking, 2 * late_ns, GRACES)
        late_ns *= 2

    if state is LifeState.RUNNING and not launch:
        assert later.state is LifeState.ENDED
    assert later.state is not state or needs_stop(later, late_ns, GRACES) or launch


def test_a_clock_that_goes_back_changes_nothing():
    noticed = life(LifeState.NOTICED, since_ns=100 * NS_PER_S)

    stopped, transition = advance_life(noticed, LifeInput.STOP_ASKED, 50 * NS_PER_S, GRACES)

    assert stopped == replace(
        noticed, state=LifeState.STOPPING, since_ns=100 * NS_PER_S, asked_ns=100 * NS_PER_S
    )
    assert transition is not None
    assert transition.at_ns == 100 * NS_PER_S
