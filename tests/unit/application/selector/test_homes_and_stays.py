"""Where jobs of a crowd live by laws of spot, where they stay without a table, and tables that come late."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from spotline.application.selector import tables
from spotline.application.selector.asking import allocate_request
from spotline.application.selector.home_prospects import HomeProspects
from spotline.application.selector.options import CROWD_FIELDS, SelectorOptions, for_crowds
from spotline.application.selector.stays import MOST_STAYS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.law import MarketLawLearned, ValueTableRequested
from spotline.domain.market.law import choose_space, law_id_of, learn_law
from spotline.domain.market.market import OBSERVED, Market
from spotline.domain.market.named_law import NamedLaw
from tests.fakes.selector import SelectorWorld, job_of, market_of

SLOTS = 40


def named(counts: list[int], *, falling_ends: bool = False) -> NamedLaw:
    prices = [300_000] * len(counts)
    space = choose_space(counts, prices, most_instances=16)
    law = learn_law(counts, prices, space, falling_ends=falling_ends)
    return NamedLaw(law_id=law_id_of(law), law=law)


UP_MOSTLY = named([0] + [16] * 19)
DOWN_MOSTLY = named(([0] * 9 + [16]) * 2)


def market_with(spot: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Market:
    """Offerings of one price, with these spot counts, as many as there are columns."""
    market = market_of(slots=SLOTS)
    columns = spot.shape[1]
    price = np.full((SLOTS, columns), 1_000_000, dtype=np.int64)
    return replace(
        market,
        offerings=market.offerings[:columns],
        spot_price_micro_usd=price,
        on_demand_price_micro_usd=4 * price,
        spot_available=spot,
        spot_provenance=np.full((SLOTS, columns), OBSERVED, market.spot_provenance.dtype),
        on_demand_available=market.on_demand_available[:, :columns].copy(),
        on_demand_provenance=market.on_demand_provenance[:, :columns].copy(),
        quoted_ns=market.quoted_ns[:, :columns].copy(),
    )


def world_on(
    market: Market, laws: dict[int, NamedLaw], jobs: int = 1, **other: bool
) -> SelectorWorld:
    """Jobs on a market, each of whose offerings follows a law, before their first slot."""
    crowd = dict.fromkeys(CROWD_FIELDS, True)
    world = SelectorWorld(
        *(job_of(number) for number in range(1, jobs + 1)), market=market, **{**crowd, **other}
    )
    world.worth = ()
    for column, law in laws.items():
        offering_id = market.offerings[column].offering_id
        world.feed(MarketLawLearned(slot=0, offering_id=offering_id, named=law))
    return world


def both_up() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.full((SLOTS, 2), 16, dtype=np.int64)


def test_a_job_lives_where_its_law_says_that_spot_stays() -> None:
    # Both have spot now, and had all of it so far; by its law the first loses it at once.
    market = market_with(both_up())
    for law_of_first, home in ((DOWN_MOSTLY, 1), (UP_MOSTLY, 0)):
        others = UP_MOSTLY if home else DOWN_MOSTLY
        world = world_on(market, {0: law_of_first, 1: others})
        world.next_slot()

        assert world.run_of().offering_id == market.offerings[home].offering_id


def test_where_ends_fall_spot_that_has_lasted_is_the_cheaper_home() -> None:
    market = market_with(both_up())
    young, old = (offering.offering_id for offering in market.offerings)
    law = named([0, 16] * 3 + [0] * 8 + [16] * 20, falling_ends=True)
    up = law.law.space.level_of(16) * law.law.space.ages
    world = world_on(market, {0: law, 1: law})
    world.next_slot()
    program = world.run_of().compiled
    prospects = HomeProspects(
        laws={young: law, old: law},
        run_states={young: up, old: up + law.law.space.ages - 1},
        worths={},
    )

    quotes = {each.quote.offering_id: each.quote for each in world.state.current.quotes}
    prices = {
        name: prospects.price(quotes[name], program, 0, 0, known=0.0) for name in (young, old)
    }
    spot, on_demand = 1_000_000, 4_000_000
    assert spot < prices[old] < prices[young] < on_demand


def test_without_the_option_the_past_decides() -> None:
    market = market_with(both_up())
    world = world_on(market, {0: DOWN_MOSTLY, 1: UP_MOSTLY}, homes_by_law=False)
    world.next_slot()

    assert world.run_of().offering_id == min(o.offering_id for o in market.offerings)
    assert HomeProspects.of(world.state, SelectorOptions()) is None


@pytest.mark.parametrize("even_cells", [False, True])
@pytest.mark.parametrize("on_the_way", [False, True])
def test_a_job_whose_home_goes_down_bids_for_idle_spot_where_it_has_no_table(
    *, even_cells: bool, on_the_way: bool
) -> None:
    spot = both_up()
    spot[3:, 0] = 0
    market = market_with(spot)
    with patch.object(tables, "other_offerings", lambda *args, **named: ()):
        world = world_on(
            market,
            {0: UP_MOSTLY, 1: UP_MOSTLY},
            even_cells=even_cells,
            tables_on_the_way=on_the_way,
        )
        home, other = (offering.offering_id for offering in market.offerings)
        for _ in range(3):
            world.next_slot()
        assert world.run_of().offering_id == home
        assert set(world.run_of().tables) == {home}
        decided = world.next_slot()

    (moved,) = [event for event in decided if isinstance(event, AllocationDecided)]
    assert moved.move is not None
    assert [(lot.offering_id, lot.spot) for lot in moved.lots] == [(other, 2)]
    # What it had at home is let go of, and one of where it lives now is asked for: on the way, or behind it.
    opened = world.open()
    first, then = (decided, opened) if on_the_way else (opened, decided)
    assert not [event for event in then if isinstance(event, ValueTableRequested)]
    asked = [event for event in first if isinstance(event, ValueTableRequested)]
    assert [event.table.offering_id for event in asked] == [other]
    assert set(world.run_of().tables) == {other}
    assert asked[0].table.even_cells is even_cells
    assert asked[0].table.first_slot_start_ns == world.run_of().first_slot_start_ns
    # By the slot behind the move it has been built, and that slot's decision names it.
    (task,) = allocate_request(world.state, ["job-1"], for_crowds(SelectorOptions())).tasks
    assert (task.table_use is not None) is on_the_way


def test_who_has_a_table_at_home_is_given_no_other_on_the_way() -> None:
    market = market_with(both_up())
    with patch.object(tables, "other_offerings", lambda *args, **named: ()):
        world = world_on(market, {0: UP_MOSTLY, 1: UP_MOSTLY})
        # The job's first slot asks for its table; no slot behind that does.
        world.next_slot()
        later = [event for _ in range(3) for event in world.next_slot()]

    assert not [event for event in later if isinstance(event, ValueTableRequested)]


def test_who_finds_enough_at_home_is_offered_no_stay() -> None:
    market = market_with(both_up())
    with patch.object(tables, "other_offerings", lambda *args, **named: ()):
        world = world_on(market, {0: UP_MOSTLY, 1: UP_MOSTLY})
        for _ in range(3):
            world.next_slot()
        world.open()
    options = for_crowds(SelectorOptions())
    (task,) = allocate_request(world.state, ["job-1"], options).tasks

    assert task.alternatives == ()


def test_spot_that_others_hold_is_not_idle() -> None:
    spot = both_up()
    spot[:, 1] = 1
    spot[3:, 0] = 0
    market = market_with(spot)
    with patch.object(tables, "other_offerings", lambda *args, **named: ()):
        world = world_on(market, {0: UP_MOSTLY, 1: UP_MOSTLY}, jobs=2)
        for _ in range(3):
            world.next_slot()
        world.open()
    request = allocate_request(world.state, ["job-1", "job-2"], for_crowds(SelectorOptions()))
    stays = [place for task in request.tasks for place in task.alternatives if place.stay]

    assert len(stays) == 2 <= 2 * MOST_STAYS
    assert {place.offering_id for place in stays} == {market.offerings[1].offering_id}
    assert {law.law_id for law in request.laws} >= {UP_MOSTLY.law_id}


def test_logs_from_before_keep_fewer_tables() -> None:
    assert tables.most_tables(SelectorOptions()) < tables.most_tables(for_crowds(SelectorOptions()))
