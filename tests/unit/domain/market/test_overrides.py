"""What a buyer pays where that is not what is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.overrides import PriceOverride, PriceOverrides, SavingsPlan
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import MICRO_USD_PER_USD
from tests.fakes.recorded_run import START_NS, small_market
from tests.fakes.reserved import with_one

MARKET = with_one(small_market(slots=2), instances=2)
OFFERINGS = MARKET.offerings
FIRST, SECOND = OFFERINGS[0], OFFERINGS[1]
QUOTES = tuple(SlotQuote(quote=quote, age_s=0) for quote in MARKET.quotes(0))
LISTED = QUOTES[0].quote.on_demand_price_micro_usd
HALF = 500_000
NAMED = {"first": FIRST, "second": SECOND}


def applied(*stated: PriceOverride, held: dict[str, int] | None = None, at_ns: int = START_NS):
    return PriceOverrides(stated=stated).applied(OFFERINGS, QUOTES, at_ns, held or {})


def test_without_overrides_prices_are_what_is_listed():
    assert applied() == QUOTES


def test_an_own_price_stands_and_what_is_listed_beside_it():
    first, *others = applied(PriceOverride(offerings=FIRST.offering_id, on_demand_micro_usd=7))

    assert first.quote.on_demand_price_micro_usd == 7
    assert first.quote.spot_price_micro_usd == QUOTES[0].quote.spot_price_micro_usd
    assert (first.listed_on_demand_price_micro_usd, first.listed_spot_price_micro_usd) == (
        LISTED,
        0,
    )
    assert first.as_listed == QUOTES[0]
    assert tuple(others) == QUOTES[1:]


def test_discounts_are_rounded_up_and_reservations_have_none():
    quoted = applied(
        PriceOverride(offerings="*", on_demand_discount_ppm=150_000, spot_discount_ppm=50_000)
    )

    for offering, before, after in zip(OFFERINGS, QUOTES, quoted, strict=True):
        if offering.reservation is not None:
            assert after == before
            continue
        spot, on_demand = before.quote.spot_price_micro_usd, before.quote.on_demand_price_micro_usd
        assert after.quote.on_demand_price_micro_usd == -(-on_demand * 85 // 100)
        assert after.quote.spot_price_micro_usd == -(-spot * 95 // 100)
        assert after.as_listed == before


def test_a_pattern_may_be_over_provider_account_region_zone_and_type():
    account = f"{FIRST.provider}:{FIRST.account}"
    pattern = f"{account}:*:{FIRST.zone}:{FIRST.instance_type}"

    changed = [
        offering.offering_id
        for offering, after, before in zip(
            OFFERINGS,
            applied(PriceOverride(offerings=pattern, on_demand_micro_usd=1)),
            QUOTES,
            strict=True,
        )
        if after != before
    ]

    assert FIRST.offering_id in changed
    assert len(changed) < len(OFFERINGS)
    assert applied(PriceOverride(offerings="elsewhere:*", on_demand_micro_usd=1)) == QUOTES


def test_an_override_counts_from_its_beginning_to_before_its_end():
    override = PriceOverride(
        offerings="*", on_demand_micro_usd=9, from_ns=START_NS, until_ns=START_NS + 10
    )

    def price(at_ns: int) -> int:
        return applied(override, at_ns=at_ns)[0].quote.on_demand_price_micro_usd

    assert [price(START_NS + each) for each in (-1, 0, 9, 10)] == [LISTED, 9, 9, LISTED]


def test_of_those_that_say_a_price_the_first_counts():
    own = PriceOverride(offerings=FIRST.offering_id, on_demand_micro_usd=9)
    all_of_them = PriceOverride(offerings="*", on_demand_discount_ppm=HALF, spot_discount_ppm=HALF)

    first, second, *_ = applied(own, all_of_them)

    assert first.quote.on_demand_price_micro_usd == 9
    assert first.quote.spot_price_micro_usd == -(-QUOTES[0].quote.spot_price_micro_usd // 2)
    assert second.quote.on_demand_price_micro_usd == -(
        -QUOTES[1].quote.on_demand_price_micro_usd // 2
    )


def test_a_savings_plan_is_shared_by_all_that_it_covers_and_dearer_once_used_up():
    plan = SavingsPlan(micro_usd_per_hour=LISTED, discount_ppm=HALF)
    covered = PriceOverride(offerings="*", savings_plan=plan)

    def price(**held: int) -> int:
        by_id = {offering.offering_id: held.get(name, 0) for name, offering in NAMED.items()}
        return applied(covered, held=by_id)[0].quote.on_demand_price_micro_usd

    named = price(first=2)
    assert price() == named == -(-LISTED // 2)
    # Half of four is paid by the plan's hour at half the price: three quarters on average.
    assert price(first=4) == LISTED * 3 // 4
    assert price(first=2, second=2) > named


prices = st.integers(1, 100 * MICRO_USD_PER_USD)


@given(prices, prices, st.integers(0, 999_999), st.integers(0, 100), st.integers(0, 100))
def test_what_a_plan_says_of_all_that_is_held_is_the_hour_that_is_billed(
    listed: int, commitment: int, discount_ppm: int, held: int, more: int
):
    """Laws: never above the list, never below the discount, no cheaper by use, exact in total."""
    plan = SavingsPlan(micro_usd_per_hour=commitment, discount_ppm=discount_ppm)
    price = plan.price(listed, held * listed)

    assert 1 <= price <= listed
    assert price * 1_000_000 >= listed * (1_000_000 - discount_ppm)
    assert plan.price(listed, (held + more) * listed) >= price
    if held:
        covered = min(held * listed, plan.covers_micro_usd)
        billed_ppm = covered * (1_000_000 - discount_ppm) + (held * listed - covered) * 1_000_000
        billed = billed_ppm / 1_000_000
        assert billed - 1e-6 * billed <= price * held <= billed + held + 1e-6 * billed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offerings": ""}, "offerings must be a pattern"),
        ({"on_demand_micro_usd": 0}, "must say a price"),
        ({"on_demand_micro_usd": -1}, "on_demand_micro_usd must lie in"),
        ({"on_demand_discount_ppm": 1_000_000}, "on_demand_discount_ppm must lie in"),
        ({"on_demand_discount_ppm": 5}, "expected one of them, found both"),
        ({"spot_discount_ppm": -1}, "spot_discount_ppm must lie in"),
        ({"from_ns": 5, "until_ns": 5}, "until_ns must be > from_ns 5"),
    ],
)
def test_what_says_nothing_or_too_much_is_refused(changes: dict[str, object], said: str):
    with pytest.raises(ValueError, match=said):
        replace(PriceOverride(offerings="*", on_demand_micro_usd=1), **changes)
    with pytest.raises(ValueError, match="micro_usd_per_hour must be > 0"):
        SavingsPlan(micro_usd_per_hour=0, discount_ppm=1)
