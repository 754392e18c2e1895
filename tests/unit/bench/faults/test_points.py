"""Fail points: each has its turn, and what is left out says why."""

import random
from collections import Counter

import pytest

from spotline.bench.faults.families.kill import Kill, points_of_turn, seeds_for_all
from spotline.bench.faults.points import Killed, Lifeline, all_points
from spotline.bench.faults.scenario import scenario_of


@pytest.mark.parametrize("first", [0, 5, 1_000])
def test_over_neighbouring_seeds_every_point_has_its_turn(first):
    turns = [points_of_turn(seed) for seed in range(first, first + seeds_for_all())]

    assert {point for points in turns for point in points} == set(all_points())


def test_some_tens_of_seeds_are_enough():
    assert seeds_for_all() <= 30


def test_a_point_that_the_calm_run_never_reached_is_killed_at_when_trouble_leads_there():
    turn = points_of_turn(0)
    rare = next(point for point in all_points() if point not in turn)
    calm = Counter({point: 3 for point in all_points() if point != rare})
    family = Kill(scenario_of(0), random.Random(0), calm)
    line = Lifeline(rare.partition(".")[0], watcher=None)

    with pytest.raises(Killed):
        family.reach(line, rare)

    assert not line.alive
    assert family.faults == 1
    family.reach(line, rare)
