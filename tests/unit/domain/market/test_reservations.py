"""A reservation is an offering of its own: free on demand while it lasts, without spot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.market.market import OBSERVED
from spotline.domain.market.offering import Reservation, check_price, is_reserved
from spotline.domain.market.reservations import with_reservations
from spotline.domain.units import NS_PER_S
from tests.depth import examples
from tests.fakes.recorded_run import small_market
from tests.fakes.reserved import reserved_of, with_one

MARKET = small_market(slots=24)


def test_it_is_free_on_demand_while_it_lasts_and_has_no_spot():
    market = with_one(MARKET, instances=5, slots=7)

    column = len(MARKET.offerings)
    assert (
        market.offerings[column].offering_id == f"{MARKET.offerings[0].offering_id}/reserved/block"
    )
    assert market.on_demand_available[:, column].tolist() == [5] * 7 + [0] * 17
    assert set(market.on_demand_provenance[:, column]) == {OBSERVED}
    assert not market.on_demand_price_micro_usd[:, column].any()
    assert not market.spot_available[:, column].any()
    assert is_reserved(market.quote(3, column))


def test_the_offerings_that_were_there_stay_as_they_were():
    market = with_one(MARKET, instances=5)

    assert market.quotes(9)[:-1] == MARKET.quotes(9)
    assert with_reservations(MARKET, []) is MARKET


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 24 * 1800 + 5), st.sampled_from([1800, 3600, 7200]))
def test_instances_are_there_only_in_slots_that_it_covers_whole(lasts_s, slot_s):
    ends_ns = MARKET.start_ns + max(1, lasts_s) * NS_PER_S
    whole = replace(
        reserved_of(MARKET, instances=3), reservation=Reservation(instances=3, ends_ns=ends_ns)
    )
    market = with_reservations(MARKET, [whole]).resampled(slot_s)

    starts_ns = market.slot_starts_ns()
    there = market.on_demand_available[:, -1] > 0
    assert there.tolist() == (starts_ns + slot_s * NS_PER_S <= ends_ns).tolist()
    covered = whole.reservation.whole_slots(MARKET.start_ns, slot_s)
    assert int(there.sum()) == min(covered, market.slots)


def test_only_a_reservation_may_be_free():
    free = MARKET.on_demand_price_micro_usd.copy()
    free[5, 1] = 0
    with pytest.raises(ValueError, match=r"on_demand_price_micro_usd of .* must be > 0 everywhere"):
        replace(MARKET, on_demand_price_micro_usd=free)

    market = with_one(MARKET, instances=5)
    dear = market.on_demand_price_micro_usd.copy()
    dear[5, -1] = 7
    with pytest.raises(ValueError, match="must be 0, it is a reservation, everywhere"):
        replace(market, on_demand_price_micro_usd=dear)

    traded, reserved = market.offerings[0], market.offerings[-1]
    check_price(traded, market.quote(0, 0))
    check_price(reserved, market.quote(0, len(MARKET.offerings)))
    with pytest.raises(ValueError, match="must be > 0, was 0"):
        check_price(traded, market.quote(0, len(MARKET.offerings)))
    with pytest.raises(ValueError, match="of a reservation must be 0, was"):
        check_price(reserved, market.quote(0, 0))


def test_what_is_no_reservation_is_refused():
    with pytest.raises(ValueError, match="must be a reservation"):
        with_reservations(MARKET, [replace(MARKET.offerings[0], offering_id="another")])
    with pytest.raises(ValueError, match="unique"):
        with_reservations(MARKET, [reserved_of(MARKET, instances=1)] * 2)


def test_quotes_of_a_reservation_are_never_late():
    market = with_one(MARKET, instances=1, slots=2)
    assert np.array_equal(market.quoted_ns[:, -1], market.slot_starts_ns())
