"""A live quote is recorded once, and only where it can be a price of its offering."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.market_ingest.vetting import QuoteVetting, Verdict
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, CapacityType
from spotline.domain.units import NS_PER_S
from tests.fakes.recorded_run import small_market
from tests.fakes.reserved import with_one

MARKET = with_one(small_market(slots=6), instances=2)
QUOTE = MARKET.quote(0, 0)


def later(quote, slots: int = 1, **changes):
    return replace(quote, ts_event_ns=quote.ts_event_ns + slots * 1800 * NS_PER_S, **changes)


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=6))
def test_whatever_the_order_each_quote_is_recorded_at_most_once_and_the_last_one_stays(
    order, again
):
    vetting = QuoteVetting.of(MARKET.offerings)
    quotes = [later(QUOTE, slot) for slot in (*order, *again)]

    recorded = [q for q in quotes if vetting.judge(q).verdict is Verdict.RECORDED]

    assert len(set(recorded)) == len(recorded)
    assert [q.ts_event_ns for q in recorded] == sorted(q.ts_event_ns for q in recorded)
    assert vetting.last[QUOTE.offering_id] == later(QUOTE, 5)


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"offering_id": "of another"}, Verdict.REFUSED, "offering_id must be one of the feed's"),
        (
            {"on_demand_price_micro_usd": 0},
            Verdict.REFUSED,
            "on_demand_price_micro_usd must be > 0, was 0",
        ),
        ({"spot_price_micro_usd": 1_213}, Verdict.QUARANTINED, "spot_price_micro_usd of "),
        (
            {"on_demand_price_micro_usd": 300 * 10**6},
            Verdict.QUARANTINED,
            "on_demand_price_micro_usd of ",
        ),
    ],
)
def test_what_cannot_be_its_price_is_set_aside_with_the_field(changes, verdict, said):
    vetting = QuoteVetting.of(MARKET.offerings)
    vetting.judge(QUOTE)

    vetted = vetting.judge(later(QUOTE, **changes))

    assert vetted.verdict is verdict
    assert vetted.detail.startswith(said)
    assert vetting.judge(later(QUOTE, 2)).verdict is Verdict.RECORDED


@pytest.mark.parametrize("name", ["spot_price_micro_usd", "on_demand_price_micro_usd"])
@pytest.mark.parametrize("price", [-1, MOST_PRICE_MICRO_USD + 1, 2**63 - 1])
def test_a_price_that_nothing_costs_makes_no_quote(name: str, price: int):
    with pytest.raises(ValueError, match=name):
        replace(QUOTE, **{name: price})


def test_a_reservation_is_free_and_nothing_else():
    vetting = QuoteVetting.of(MARKET.offerings)
    free = MARKET.quote(0, len(MARKET.offerings) - 1)

    assert vetting.judge(free).verdict is Verdict.RECORDED
    assert vetting.judge(later(free, on_demand_price_micro_usd=1)).verdict is Verdict.REFUSED


def test_a_thousandfold_price_is_not_believed_however_often_it_is_said():
    vetting = QuoteVetting.of(MARKET.offerings)
    vetting.judge(QUOTE)
    price = 1_000 * QUOTE.spot_price_micro_usd

    judged = [
        vetting.judge(later(QUOTE, slot, spot_price_micro_usd=price)) for slot in range(1, 500)
    ]

    assert {vetted.verdict for vetted in judged} == {Verdict.QUARANTINED}
    frozen = [event for vetted in judged for event in vetted.events if _is_freeze(event)]
    assert [(type(event), event.freeze.capacity_type) for event in frozen] == [
        (BuyingFrozen, CapacityType.SPOT)
    ]
    assert sum(isinstance(e, QuoteQuarantined) for v in judged for e in v.events) == len(judged)
    ends = [event for event in vetting.judge(later(QUOTE, 500)).events if _is_freeze(event)]
    assert [event.freeze_id for event in ends] == [frozen[0].freeze.freeze_id]


def test_a_silent_offering_is_frozen_once_until_something_is_said_of_it():
    vetting = QuoteVetting.of(MARKET.offerings)
    vetting.judge(QUOTE)

    begun = [
        event
        for _ in range(3)
        for event in vetting.fell_silent((QUOTE.offering_id,), QUOTE.ts_event_ns)
    ]
    ended = [event for event in vetting.judge(later(QUOTE)).events if _is_freeze(event)]

    assert [event.freeze.reason for event in begun] == [FreezeReason.STALE_QUOTES]
    assert [event.freeze_id for event in ended] == [begun[0].freeze.freeze_id]


def _is_freeze(event: object) -> bool:
    return isinstance(event, BuyingFrozen | BuyingUnfrozen)
