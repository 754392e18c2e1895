"""What is said of a running market."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.market_view import ClockReading, MarketState, MarketStatus
from spotline.cli.market_status import _said
from spotline.domain.market.overrides import PriceOverride, PriceOverrides
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import SpotWorth
from tests.fakes.recorded_run import START_NS, small_market

MARKET = small_market(slots=1)
QUOTES = tuple(SlotQuote(quote=quote, age_s=60) for quote in MARKET.quotes(0))


def quotes_of(*quotes: SlotQuote) -> str:
    status = MarketStatus(
        state=MarketState.OPEN,
        clock=ClockReading(market_ns=START_NS, slot=0, slot_s=1800),
        quotes=quotes,
    )
    return dict(_said(status))["quotes"]


def test_the_oldest_quote_is_named_with_its_age():
    old = replace(QUOTES[1], age_s=7_200)

    said = quotes_of(QUOTES[0], old)

    assert said.startswith("2, the oldest 2 h")
    assert old.quote.offering_id in said
    assert "own prices" not in said


def test_own_prices_doubted_ones_and_none_are_counted():
    own = PriceOverrides(stated=(PriceOverride(offerings="*", spot_discount_ppm=500_000),))
    (cheaper,) = own.applied(MARKET.offerings[:1], QUOTES[:1], START_NS, {})
    quote = QUOTES[1].quote
    never = replace(
        QUOTES[1],
        quarantined_spot_price_micro_usd=quote.spot_price_micro_usd,
        quarantined_on_demand_price_micro_usd=quote.on_demand_price_micro_usd,
    )
    doubted = replace(QUOTES[2], quarantined_spot_price_micro_usd=10**9)

    said = quotes_of(cheaper, never, doubted)

    assert said.endswith("1 never quoted, 1 with a doubted price, 1 at own prices")


def test_what_spot_is_worth_beyond_its_price_is_said_the_dearest_first():
    status = MarketStatus(
        state=MarketState.OPEN,
        shadow_prices=(
            SpotWorth(offering_id="east", micro_usd_per_instance_hour=250_000),
            SpotWorth(offering_id="west", micro_usd_per_instance_hour=1_100_000),
        ),
    )

    assert dict(_said(status))["spot worth"] == "west +1.10 USD/h, east +0.25 USD/h"
    assert "spot worth" not in dict(_said(replace(status, shadow_prices=())))


def test_advice_is_said_with_its_age_and_what_it_is_worth():
    given = replace(QUOTES[0].quote, placement_score=7, scored_ns=START_NS - 3 * 3600 * 10**9)
    status = MarketStatus(
        state=MarketState.OPEN,
        clock=ClockReading(market_ns=START_NS, slot=0, slot_s=1800),
        quotes=(replace(QUOTES[0], quote=given), QUOTES[1]),
    )

    said = dict(_said(status))["advice"]

    assert said == f"{given.offering_id} 7/10 (3 h old); worth what launches have shown"
    assert "advice" not in dict(_said(replace(status, quotes=QUOTES)))
