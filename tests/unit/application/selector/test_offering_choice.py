"""Where a job is to run beside others: by what they take in the mean, and at most."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.selector.loads import together
from spotline.application.selector.offering_choice import Load, RecentSpot, best_offering
from spotline.domain.market.offering import Reservation
from tests.fakes.selector import SelectorWorld, job_of, market_of

LOADS = st.builds(
    lambda mean, more: Load(mean=mean, most=mean + more), st.integers(0, 40), st.integers(0, 40)
)


def arrived() -> SelectorWorld:
    """A job that has just come."""
    world = SelectorWorld(job_of(1), market=market_of())
    world.open()
    return world


def home_beside(world: SelectorWorld, taken: dict[str, Load]) -> str | None:
    return best_offering(world.run_of().job, world.state.offerings, world.state.current, (), taken)


def test_a_place_that_others_may_fill_is_left_to_them_for_one_that_is_free() -> None:
    world = arrived()
    best = home_beside(world, {})
    assert best is not None
    (spot,) = (
        quoted.quote.spot_available.instances
        for quoted in world.state.current.quotes
        if quoted.quote.offering_id == best
    )

    assert home_beside(world, {best: Load.always(0)}) == best
    assert home_beside(world, {best: Load.always(spot)}) != best
    assert home_beside(world, {best: Load(mean=0, most=spot)}) != best


def test_jobs_on_a_reservation_need_no_spot() -> None:
    world = arrived()
    best = home_beside(world, {})
    assert best is not None
    taken = {best: Load(mean=0, most=1_000)}
    reserved = replace(
        world.state.offerings[best],
        offering_id="reserved",
        reservation=Reservation(instances=1_000),
    )
    world.state.offerings["reserved"] = reserved

    # As many on the reservation as there is spot elsewhere: that is still nobody's.
    assert home_beside(world, {**taken, "reserved": Load.always(1_000)}) == home_beside(
        world, taken
    )
    assert home_beside(world, taken) != best


@given(load=LOADS, wanted=st.integers(1, 16), filled=st.floats(0, 1))
def test_a_load_lies_between_its_mean_and_its_most(load: Load, wanted: int, filled: float) -> None:
    world = arrived()
    recent = RecentSpot([world.state.current])
    name = world.run_of().offering_id
    most, mean = (recent.share(name, taken, wanted) for taken in (load.most, load.mean))

    assert most - 1e-12 <= recent.share_beside(name, load, wanted, filled) <= mean
    assert recent.share_beside(name, load, wanted, 1.0) == mean
    assert recent.share_beside(name, load, wanted, 0.0) == pytest.approx(most)
    assert recent.share_beside(name, Load.always(load.most), wanted, filled) == most


@given(loads=st.lists(LOADS, max_size=3))
def test_what_is_filled_is_what_is_needed_of_all_spot(loads: list[Load]) -> None:
    world = arrived()
    recent = RecentSpot([world.state.current])
    spot = sum(quoted.quote.spot_available.instances for quoted in world.state.current.quotes)

    filled = recent.filled(loads)

    needed = sum(load.mean for load in loads)
    assert filled == pytest.approx(min(1.0, needed / spot))


@given(
    one=st.dictionaries(st.sampled_from("abc"), LOADS),
    other=st.dictionaries(st.sampled_from("abc"), LOADS),
)
def test_loads_of_two_groups_add_up(one: dict[str, Load], other: dict[str, Load]) -> None:
    both = together(one, other)

    assert Load.always(3) + Load(mean=1, most=4) == Load(mean=4, most=7)
    for part in ("mean", "most"):
        assert sum(getattr(load, part) for load in both.values()) == sum(
            getattr(load, part) for loads in (one, other) for load in loads.values()
        )
    assert both == together(other, one)
