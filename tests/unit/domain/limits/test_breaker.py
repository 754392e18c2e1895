"""The breaker: trips by unwell instances alone, opens longer each time, and lets buying go on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.limits.breaker import (
    LONGEST_OPEN_S,
    MEMORY_S,
    OPEN_S,
    TRIAL_S,
    Breaker,
    breaker_id,
    trips,
)
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.units import NS_PER_S
from tests.depth import examples


def failed(breaker: Breaker, count: int, at_s: int, account: str = "a", *, gone: bool = True):
    for index in range(count):
        breaker.note_failed(f"{account}-{at_s}-{index}", account, at_s * NS_PER_S, gone=gone)


def judged(breaker: Breaker, held: dict[str, int], at_s: int):
    breaker.note_slot(at_s * NS_PER_S)
    begun, ended = breaker.judge(held, at_s * NS_PER_S, slot=at_s)
    for freeze in begun:
        breaker.note_frozen(freeze)
    for freeze_id in ended:
        breaker.note_unfrozen(freeze_id, at_s * NS_PER_S)
    return begun, ended


@given(st.integers(0, 50), st.integers(0, 50))
def test_it_trips_at_more_than_three_and_over_45_percent(unwell, well):
    instances = unwell + well

    assert trips(unwell, instances) == (unwell > 3 and unwell / instances > 0.45)


def test_an_account_that_fails_is_stopped_alone():
    breaker = Breaker()
    failed(breaker, 4, at_s=10)

    begun, _ = judged(breaker, {"a": 2, "b": 20}, 20)

    assert [(freeze.scope, freeze.key) for freeze in begun] == [(FreezeScope.ACCOUNT, "a")]
    assert "4 of 6" in begun[0].detail
    assert judged(breaker, {"a": 2, "b": 20}, 30) == ((), ())


def test_what_no_account_explains_stops_all():
    breaker = Breaker()
    failed(breaker, 2, at_s=10, account="a")
    failed(breaker, 2, at_s=10, account="b")

    begun, _ = judged(breaker, {"a": 1, "b": 1}, 20)

    assert [freeze.scope for freeze in begun] == [FreezeScope.SYSTEM]


@given(st.lists(st.integers(0, 99), max_size=60), st.integers(0, 30))
def test_reclaimed_instances_never_trip_it(reclaimed, held):
    breaker = Breaker()
    for instance in reclaimed:
        breaker.note_reclaim(f"i-{instance}", 0)
        breaker.note_failed(f"i-{instance}", "a", NS_PER_S, gone=True)

    assert judged(breaker, {"a": held}, 20)[0] == ()


def test_silent_agents_that_are_heard_again_are_well():
    breaker = Breaker()
    failed(breaker, 5, at_s=10, gone=False)
    for index in range(5):
        breaker.note_well(f"a-10-{index}")

    assert judged(breaker, {"a": 5}, 20)[0] == ()


def test_it_stays_open_while_so_many_are_unwell_and_at_least_a_while():
    breaker = Breaker()
    failed(breaker, 4, at_s=0)
    assert judged(breaker, {"a": 0}, 1)[0]

    assert judged(breaker, {"a": 20}, OPEN_S - 1) == ((), ())
    assert judged(breaker, {"a": 0}, OPEN_S + 2) == ((), ())
    assert judged(breaker, {"a": 20}, OPEN_S + 3)[1] == (breaker_id("a"),)


def test_what_trips_again_on_trial_is_open_for_twice_as_long_and_never_for_ever():
    breaker = Breaker()
    at_s, waits = 0, []
    for _ in range(8):
        failed(breaker, 4, at_s=at_s)
        assert judged(breaker, {"a": 0}, at_s)[0]
        began_s = at_s
        while not judged(breaker, {"a": 20}, at_s)[1]:
            at_s += 60
        waits.append(at_s - began_s)
        at_s += 60

    assert waits == [min(OPEN_S << turn, LONGEST_OPEN_S) for turn in range(8)]


def test_after_a_trial_without_trouble_it_opens_for_the_first_time_again():
    breaker = Breaker()
    failed(breaker, 4, at_s=0)
    judged(breaker, {"a": 0}, 0)
    judged(breaker, {"a": 20}, OPEN_S)
    later_s = OPEN_S + TRIAL_S + 1
    failed(breaker, 4, at_s=later_s)

    assert judged(breaker, {"a": 0}, later_s)[0]
    assert breaker.opened["a"].open_s == OPEN_S


_STEPS = st.lists(
    st.tuples(st.sampled_from(("fail", "silent", "reclaim", "heard", "slot")), st.integers(0, 9)),
    max_size=80,
)


@settings(max_examples=examples(200), deadline=None)
@given(_STEPS)
def test_buying_always_goes_on_once_nothing_is_unwell_any_more(steps):
    breaker, at_s = Breaker(), 0
    for step, instance in steps:
        at_s += 300
        name = f"i-{instance}"
        match step:
            case "fail":
                breaker.note_failed(name, "a", at_s * NS_PER_S, gone=True)
            case "silent":
                breaker.note_failed(name, "a", at_s * NS_PER_S, gone=False)
            case "reclaim":
                breaker.note_reclaim(name, at_s * NS_PER_S)
            case "heard":
                breaker.note_well(name)
            case _:
                judged(breaker, {"a": 1}, at_s)

    judged(breaker, {"a": 1}, at_s + MEMORY_S + LONGEST_OPEN_S)

    assert all(opened.half_open_ns for opened in breaker.opened.values())
