"""However long a process stands still, it has tried three times before it gives up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.runtime.patience import Patience


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@given(seconds=st.floats(0.5, 100), tries_s=st.lists(st.floats(0, 1e6), min_size=1))
def test_at_least_three_tries_and_never_more_time_than_was_granted(seconds, tries_s):
    clock = Clock()
    patience = Patience(seconds, clock=clock)
    counted_s = 0.0

    for number, try_s in enumerate(tries_s, start=1):
        assert patience.next_try_s() <= seconds / 3
        clock.now_s += try_s
        counted_s += min(try_s, seconds / 3)
        left_s = patience.left_s()
        assert left_s == pytest.approx(max(seconds - counted_s, 0), abs=1e-6)
        if number < 3:
            assert left_s > 0


def test_waits_of_the_length_it_states_take_as_long_as_was_granted():
    clock = Clock()
    patience = Patience(30, clock=clock)

    for number in itertools.count(1):  # noqa: B007 - counted
        clock.now_s += patience.next_try_s()
        if patience.left_s() <= 0:
            break

    assert number == 3
    assert clock.now_s == pytest.approx(1030)


def test_without_patience_there_is_no_time():
    assert Patience(0).left_s() == 0
    assert Patience(0).next_try_s() == 0
