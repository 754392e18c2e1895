"""A market put together from what the door of a running system tells of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.market_view import ClockReading, MarketState, MarketStatus
from spotline.contracts.errors import ContractError
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.market.market import Market
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S
from spotline.replay.recorded import market_seen
from spotline.replay.told_market import market_told
from tests.fakes.recorded_run import small_market

MARKET = small_market(slots=12)
SLOT_NS = MARKET.slot_s * NS_PER_S
ALL_S = 12 * MARKET.slot_s


def opened(slot: int, early_ns: int = 0) -> SlotOpened:
    """A slot whose quotes were taken so long before it."""
    at_ns = MARKET.start_ns + slot * SLOT_NS
    quotes = [replace(each, ts_event_ns=at_ns - early_ns) for each in MARKET.quotes(slot)]
    return SlotOpened(
        slot=slot,
        ts_event_ns=at_ns,
        slot_s=MARKET.slot_s,
        quotes=tuple(SlotQuote(quote=each, age_s=each.age_s(at_ns)) for each in quotes),
    )


def status(slot: int) -> MarketStatus:
    at_ns = MARKET.start_ns + slot * SLOT_NS
    return MarketStatus(
        state=MarketState.OPEN,
        clock=ClockReading(market_ns=at_ns, slot=slot, slot_s=MARKET.slot_s),
        offerings=MARKET.offerings,
        source="told",
    )


def told(slots: list[SlotOpened], now: int, last_s: int = ALL_S) -> Market:
    quotes = {
        offering.offering_id: [
            each
            for slot in slots
            for each in slot.quotes
            if each.quote.offering_id == offering.offering_id
        ]
        for offering in MARKET.offerings
    }
    return market_told(status(now), quotes, last_s=last_s)


def seen(slots: list[SlotOpened]) -> Market:
    opening = MarketOpened(
        offerings=MARKET.offerings,
        slot_s=MARKET.slot_s,
        first_slot_start_ns=MARKET.start_ns,
        source="told",
    )
    return replace(market_seen(opening, slots), source="told")


def assert_equal(one: Market, other: Market) -> None:
    assert (one.offerings, one.slot_s, one.start_ns, one.source) == (
        *(other.offerings, other.slot_s, other.start_ns),
        other.source,
    )
    for name in ("spot_price_micro_usd", "on_demand_price_micro_usd", "spot_available"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert np.array_equal(one.quoted_ns, other.quoted_ns)


@given(
    slots=st.sets(st.integers(0, 11), min_size=1),
    early_ns=st.integers(0, 3 * SLOT_NS),
    behind=st.integers(0, 2),
)
def test_it_is_the_market_that_the_log_shows_whatever_slots_were_missed(slots, early_ns, behind):
    """Law: slots are found by times and ages alone, those that opened since the first call too."""
    there = [opened(slot, early_ns) for slot in sorted(slots)]
    now = max(0, max(slots) - behind)

    assert_equal(told(there, now), seen(there))


def test_of_what_is_remembered_the_last_is_taken():
    there = [opened(slot) for slot in range(12)]

    assert_equal(told(there, 11, last_s=3 * MARKET.slot_s), seen(there[8:]))


def test_where_no_market_has_opened_it_says_so():
    for unopened in (None, ClockReading(market_ns=0, slot=-1, slot_s=1800)):
        with pytest.raises(ContractError, match="--address"):
            market_told(replace(status(0), clock=unopened), {}, last_s=1)
