"""Prices with disks: of spot and on demand alike, of a reservation too; what is listed stays beside."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.disk_prices import priced_with_disks, with_disk_prices
from spotline.domain.market.offering import Disks, Reservation, check_price, is_reserved
from spotline.domain.market.reservations import (
    reserved_offering,
    reserved_quote,
    with_reservations,
)
from spotline.domain.market.slot_quote import SlotQuote
from tests.fakes.rehearsed_ec2 import made_market

DISKS = Disks(gb=730, micro_usd_per_gb_month=80_000)
RATE = 80_000
MARKET = made_market()
PLAIN = MARKET.offerings[0]
WITH = replace(PLAIN, disks=DISKS)


def shown(offering, **said):
    return SlotQuote(quote=MARKET.quote(0, 0), age_s=0, **said), offering


def test_without_disks_a_slot_shows_what_it_did():
    quoted, offering = shown(PLAIN)

    assert with_disk_prices([offering], [quoted]) == (quoted,)


def test_disks_are_on_both_sides_and_what_is_listed_beside():
    quoted, offering = shown(WITH)

    (found,) = with_disk_prices([offering], [quoted])

    assert found.quote.spot_price_micro_usd == quoted.quote.spot_price_micro_usd + RATE
    assert found.quote.on_demand_price_micro_usd == quoted.quote.on_demand_price_micro_usd + RATE
    assert found.listed == quoted.quote


def test_a_price_of_this_buyers_own_keeps_what_is_listed():
    quoted, offering = shown(WITH, listed_on_demand_price_micro_usd=77_000_000)

    (found,) = with_disk_prices([offering], [quoted])

    assert found.listed.on_demand_price_micro_usd == 77_000_000
    assert found.listed.spot_price_micro_usd == quoted.quote.spot_price_micro_usd


def test_a_reservation_costs_its_disks_and_is_one_still():
    reserved = reserved_offering(WITH, "r", Reservation(instances=3))
    quote = reserved_quote(reserved, MARKET.start_ns, MARKET.slot_s)

    (found,) = with_disk_prices([reserved], [SlotQuote(quote=quote, age_s=0)])

    assert found.quote.on_demand_price_micro_usd == RATE
    assert is_reserved(found.quote)
    check_price(reserved, found.quote)


def test_nothing_stands_where_nobody_said_a_price():
    quote = MARKET.quote(0, 0)
    unquoted = SlotQuote(
        quote=quote,
        age_s=0,
        quarantined_spot_price_micro_usd=quote.spot_price_micro_usd,
        quarantined_on_demand_price_micro_usd=quote.on_demand_price_micro_usd,
    )

    assert with_disk_prices([WITH], [unquoted]) == (unquoted,)


@given(st.integers(1, 10_000), st.integers(1, 10**6))
def test_a_market_is_priced_as_its_slots_are(gb, price):
    offering = replace(PLAIN, disks=Disks(gb=gb, micro_usd_per_gb_month=price))
    market = with_reservations(
        replace(MARKET, offerings=(offering, *MARKET.offerings[1:])),
        [reserved_offering(offering, "r", Reservation(instances=2))],
    )

    priced = priced_with_disks(market)

    quotes = [SlotQuote(quote=quote, age_s=0) for quote in market.quotes(0)]
    slot = with_disk_prices(market.offerings, quotes)
    assert priced.quotes(0) == tuple(quoted.quote for quoted in slot)


def test_a_market_without_disks_is_the_same_one():
    assert priced_with_disks(MARKET) is MARKET
    assert np.array_equal(
        priced_with_disks(MARKET).spot_price_micro_usd, MARKET.spot_price_micro_usd
    )
