"""A crowd too large to bid: what its jobs are told of, and that they are served in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spotline.application.selector.asking import allocate_request
from spotline.application.selector.options import (
    MOST_BIDDERS,
    SelectorOptions,
    for_crowds,
    where_uncounted,
)
from spotline.bench.fleet.policies import SHIPPED
from spotline.bootstrap.explaining import SERVED
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.market.market import Market
from tests.fakes.selector import SelectorWorld
from tests.unit.application.selector.test_homes_and_stays import (
    UP_MOSTLY,
    both_up,
    market_with,
    world_on,
)

IN_TURN = replace(for_crowds(SelectorOptions()), most_bidders=1)


def crowd_on(market: Market, jobs: int, **other: Any) -> SelectorWorld:
    """Jobs that have lived three slots on the first of two offerings."""
    world = world_on(market, {0: UP_MOSTLY, 1: UP_MOSTLY}, jobs=jobs, **other)
    for _ in range(3):
        world.next_slot()
    return world


def names(jobs: int) -> list[str]:
    return [f"job-{number}" for number in range(1, jobs + 1)]


def test_services_and_their_benchmark_bid_in_crowds_of_this_many() -> None:
    for options in (SERVED, SHIPPED):
        assert options.most_bidders == MOST_BIDDERS
    assert where_uncounted(SHIPPED).most_bidders == 0
    assert SelectorOptions().most_bidders == 0
    with pytest.raises(ValueError, match="most_bidders"):
        SelectorOptions(most_bidders=-1)


def test_only_more_jobs_than_bid_are_served_in_turn() -> None:
    world = crowd_on(market_with(both_up()), 2)
    world.open()

    for most, in_turn in ((0, False), (1, True), (2, False)):
        options = replace(IN_TURN, most_bidders=most)
        request = allocate_request(world.state, names(2), options)
        assert request.serves_in_turn is in_turn


def test_who_finds_all_at_home_is_told_of_nothing() -> None:
    world = crowd_on(market_with(both_up()), 2)
    world.open()
    request = allocate_request(world.state, names(2), IN_TURN)

    assert [task.alternatives for task in request.tasks] == [(), ()]


def test_who_finds_none_at_home_is_told_of_idle_spot_without_table_or_stay() -> None:
    spot = both_up()
    spot[3:, 0] = 0
    world = crowd_on(market_with(spot), 2)
    world.open()
    request = allocate_request(world.state, names(2), IN_TURN)

    other = world.market.offerings[1].offering_id
    places = [place for task in request.tasks for place in task.alternatives]
    assert [place.offering_id for place in places] == [other, other]
    assert all(place.table_use is None and place.stay is None for place in places)


def test_spot_that_others_hold_is_not_told_of() -> None:
    spot = both_up()
    spot[:, 1] = 1
    spot[3:, 0] = 0
    world = crowd_on(market_with(spot), 2)
    world.open()
    request = allocate_request(world.state, names(2), IN_TURN)

    # Two at most may be held by each, and there is one.
    assert [task.alternatives for task in request.tasks] == [(), ()]


def test_a_crowd_that_loses_its_spot_goes_to_idle_spot_in_its_turn() -> None:
    spot = both_up()
    spot[3:, 0] = 0
    spot[3:, 1] = 3
    world = crowd_on(market_with(spot), 3, most_bidders=2)
    home, other = (offering.offering_id for offering in world.market.offerings)
    assert {world.state.runs[job_id].offering_id for job_id in names(3)} == {home}
    decided = {
        event.job_id: event for event in world.next_slot() if isinstance(event, AllocationDecided)
    }

    # A job may hold two: the first in its turn finds them, the next one too few.
    first, *others = world.state.in_order()
    assert [(lot.offering_id, lot.spot) for lot in decided[first].lots] == [(other, 2)]
    assert decided[first].move is not None
    assert all(decided[job_id].move is None for job_id in others)


def test_inside_a_slot_nothing_is_told() -> None:
    spot: np.ndarray[Any, Any] = both_up()
    spot[3:, 0] = 0
    world = crowd_on(market_with(spot), 2)
    world.open()
    world.state.offset_s = 60
    request = allocate_request(world.state, names(2), IN_TURN)

    assert [task.alternatives for task in request.tasks] == [(), ()]
