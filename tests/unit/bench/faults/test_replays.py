"""What is remembered of a replay is what the same arrays gave, and nothing else."""

import numpy as np
import pytest

from spotline.bench.faults.replays import RememberedReplays


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, job, market, slots):
        self.calls += 1
        return job[0] + market, job[1] * slots


def array(*values):
    return np.array(values, dtype=np.int64)


def test_the_same_arrays_are_replayed_once():
    replay = Counting()
    remembered = RememberedReplays(replay)
    first = remembered((array(1, 2), array(3)), array(4, 5), 6)

    again = remembered((array(1, 2), array(3)), array(4, 5), 6)

    assert replay.calls == 1
    assert [each.tolist() for each in again] == [each.tolist() for each in first]


@pytest.mark.parametrize(
    "other",
    [
        ((array(1, 2), array(3)), array(4, 6), 6),
        ((array(1, 2), array(3)), array(4, 5), 7),
        ((array(1, 2), array(3)), array(4, 5).astype(np.int32), 6),
        ((array(1, 2), array(3)), array(4, 5).reshape(2, 1), 6),
        ((array(2, 1), array(3)), array(4, 5), 6),
    ],
)
def test_what_differs_in_anything_is_replayed_itself(other):
    replay = Counting()
    remembered = RememberedReplays(replay)
    remembered((array(1, 2), array(3)), array(4, 5), 6)

    found = remembered(*other)

    assert replay.calls == 2
    expected = Counting()(*other)
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_nobody_writes_to_what_is_remembered():
    found, _ = RememberedReplays(Counting())((array(1), array(2)), array(3), 4)

    with pytest.raises(ValueError, match="read-only"):
        found[0] = 7


def test_no_more_is_kept_than_is_allowed():
    replay = Counting()
    remembered = RememberedReplays(replay, most_kept=2)
    for value in (1, 2, 3, 1):
        remembered((array(value), array(1)), array(1), 1)

    assert replay.calls == 4
