"""Arrivals of late, and those that are drawn from them."""

from __future__ import annotations

import numpy as np

from spotline.domain.crowd.arrivals import ARRIVAL_SLOTS, MOST_DRAWN, Arrivals
from spotline.domain.crowd.fluid import FluidWork

WORK = FluidWork(begins=0, due=6, most=4, amount=12, where=("p/east/a/g",))


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def arrivals_of(*slots: int) -> Arrivals:
    arrivals = Arrivals()
    for slot in slots:
        arrivals.note(slot, WORK)
    return arrivals


def test_one_batch_tells_nothing_of_another_however_large() -> None:
    assert arrivals_of(3).drawn(3, 36, generator()) == []
    assert arrivals_of(*[3] * 240).drawn(3, 36, generator()) == []
    assert Arrivals().drawn(0, 36, generator()) == []


def test_jobs_come_as_often_as_they_did_with_the_time_that_they_had() -> None:
    arrivals = arrivals_of(*(slot // 2 for slot in range(80)))
    drawn = [arrivals.drawn(39, 25, generator(seed)) for seed in range(200)]
    mean = sum(map(len, drawn)) / len(drawn)

    # 40 slots with two jobs each have 39 gaps; for 24 slots.
    assert abs(mean - 24 * 2 * 39 / 40) < 1.5
    assert {work.due - work.begins for works in drawn for work in works} == {6}
    assert {work.begins for works in drawn for work in works} == set(range(1, 25))


def test_what_came_together_comes_together() -> None:
    drawn = arrivals_of(*[0] * 30, *[20] * 30).drawn(20, 36, generator())
    begins = [work.begins for work in drawn]

    assert begins
    assert {begins.count(begin) for begin in begins} == {30}


def test_of_large_batches_a_bounded_number_is_drawn() -> None:
    arrivals = arrivals_of(*[slot for slot in range(10) for _ in range(300)])

    assert MOST_DRAWN <= len(arrivals.drawn(9, 144, generator())) < MOST_DRAWN + 300


def test_equal_generators_draw_equal_arrivals() -> None:
    arrivals = arrivals_of(0, 0, 1, 2)

    assert arrivals.drawn(3, 36, generator()) == arrivals.drawn(3, 36, generator())


def test_what_came_long_ago_is_forgotten() -> None:
    arrivals = arrivals_of(0, 0, 0, ARRIVAL_SLOTS, ARRIVAL_SLOTS + 1)

    assert [slot for slot, _ in arrivals.jobs] == [ARRIVAL_SLOTS, ARRIVAL_SLOTS + 1]
    assert arrivals.drawn(3 * ARRIVAL_SLOTS, 36, generator()) == []


def test_the_longest_deadline_is_known_and_a_copy_does_not_change() -> None:
    arrivals = arrivals_of(0)
    copied = arrivals.copied()
    arrivals.note(1, WORK._replace(due=9))

    assert (Arrivals().longest, copied.longest, arrivals.longest) == (0, 6, 9)
    assert copied == arrivals_of(0)
