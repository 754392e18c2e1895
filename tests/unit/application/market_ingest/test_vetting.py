"""A quote is recorded once, and only where it can be a price of its offering."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.market_ingest.vetting import BELIEVED_AFTER, QuoteVetting, Verdict
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
    ("changes", "said"),
    [
        ({"offering_id": "of another"}, "offering_id must be one of the feed's"),
        ({"on_demand_price_micro_usd": 0}, "on_demand_price_micro_usd must be > 0, was 0"),
        ({"spot_price_micro_usd": 2 * 10**12}, "spot_price_micro_usd must be <= 1000000000000"),
        ({"spot_price_micro_usd": 12_135}, "is its unit micro-USD per instance-hour?"),
        ({"on_demand_price_micro_usd": 300 * 10**6}, "on_demand_price_micro_usd must lie within"),
    ],
)
def test_what_cannot_be_its_price_is_refused_with_the_field(changes, said):
    vetting = QuoteVetting.of(MARKET.offerings)
    vetting.judge(QUOTE)

    vetted = vetting.judge(later(QUOTE, **changes))

    assert vetted.verdict is Verdict.REFUSED
    assert said in vetted.detail
    assert vetting.judge(later(QUOTE, 2)).verdict is Verdict.RECORDED


def test_a_reservation_is_free_and_nothing_else():
    vetting = QuoteVetting.of(MARKET.offerings)
    free = MARKET.quote(0, len(MARKET.offerings) - 1)

    assert vetting.judge(free).verdict is Verdict.RECORDED
    assert vetting.judge(later(free, on_demand_price_micro_usd=1)).verdict is Verdict.REFUSED


def test_a_jump_that_is_said_again_and_again_is_believed():
    vetting = QuoteVetting.of(MARKET.offerings)
    vetting.judge(QUOTE)

    jumped = [
        vetting.judge(later(QUOTE, slot, spot_price_micro_usd=1_000)).verdict
        for slot in range(1, BELIEVED_AFTER + 1)
    ]

    assert jumped == [Verdict.REFUSED] * (BELIEVED_AFTER - 1) + [Verdict.RECORDED]
