"""Which prices are believed, whatever is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.limits.price_sanity import BelievedPrices, JudgedQuote, PriceField, SanityRule
from spotline.domain.market.generate import generate
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, CapacityType, Quote
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S

MARKET = generate("mixed", seed=1, slots=1, slot_s=1800, start_ns=0)
(OFFERING, *_) = MARKET.offerings
RULE = SanityRule()
SLOT_NS = 1800 * NS_PER_S
LIST = 4 * MICRO_USD_PER_USD
SPOT = 1_200_000


def quote(slot: int, spot: int = SPOT, on_demand: int = LIST) -> Quote:
    return replace(
        MARKET.quote(0, 0),
        ts_event_ns=slot * SLOT_NS,
        spot_price_micro_usd=spot,
        on_demand_price_micro_usd=on_demand,
    )


class Followed:
    """An offering's quotes, judged one after the other as slots show them."""

    def __init__(self, rule: SanityRule = RULE) -> None:
        self.rule = rule
        self.prices = BelievedPrices()
        self.slot = 0

    def say(self, spot: int = SPOT, on_demand: int = LIST) -> JudgedQuote:
        said = quote(self.slot, spot, on_demand)
        judged = self.prices.judge(OFFERING, said, self.slot * SLOT_NS, self.rule)
        for doubt in judged.doubts:
            self.prices.note_doubt(said, doubt.field.value)
        self.prices.note_slot(judged.stands, self.slot * SLOT_NS, self.rule)
        self.slot += 1
        return judged

    def usual(self, slots: int = 20) -> Followed:
        for _ in range(slots):
            assert not self.say().doubts
        return self


anything = st.lists(
    st.tuples(st.integers(1, MOST_PRICE_MICRO_USD), st.integers(1, MOST_PRICE_MICRO_USD)),
    max_size=30,
)


@given(anything)
def test_after_usual_prices_nothing_said_in_a_day_makes_anything_dearer_than_the_list_allows(
    said: list[tuple[int, int]],
) -> None:
    followed = Followed().usual()

    for spot, on_demand in said:
        stands = followed.say(spot, on_demand).stands.quote
        assert stands.spot_price_micro_usd * 100 <= LIST * 110
        assert stands.on_demand_price_micro_usd * 100 <= LIST * 110


@given(anything)
def test_what_stands_is_what_is_said_or_was_believed_and_each_doubt_names_bounds_that_it_breaks(
    said: list[tuple[int, int]],
) -> None:
    followed = Followed()
    believed: dict[PriceField, set[int]] = {each: set() for each in PriceField}

    for spot, on_demand in said:
        judged = followed.say(spot, on_demand)
        doubted = {doubt.field: doubt for doubt in judged.doubts}
        for each in PriceField:
            price, stands = each.of(judged.said), each.of(judged.stands.quote)
            if each not in doubted:
                assert stands == price
                believed[each].add(price)
                continue
            doubt = doubted[each]
            assert doubt.price_micro_usd == price
            assert not doubt.lowest_micro_usd <= price <= doubt.highest_micro_usd
            assert each.value in doubt.detail
            assert stands in believed[each] or not believed[each]
        for kind, each in (
            (CapacityType.SPOT, PriceField.SPOT),
            (CapacityType.ON_DEMAND, PriceField.ON_DEMAND),
        ):
            assert judged.stands.worst_price(kind) >= each.of(judged.said)
            assert judged.stands.worst_price(kind) >= each.of(judged.stands.quote)


@given(anything)
def test_judging_changes_nothing(said: list[tuple[int, int]]) -> None:
    followed = Followed()
    for spot, on_demand in said:
        followed.say(spot, on_demand)
    at_ns = followed.slot * SLOT_NS

    first = followed.prices.judge(OFFERING, quote(followed.slot), at_ns, RULE)

    assert followed.prices.judge(OFFERING, quote(followed.slot), at_ns, RULE) == first


@given(
    st.sampled_from([1_000, 100, 3_600, 60, 24, 8, 2]),
    st.sampled_from([(True, True), (True, False), (False, True)]),
    st.integers(1, 200),
)
def test_a_dearer_unit_is_never_believed_however_often_it_is_said(
    factor: int, which: tuple[bool, bool], times: int
) -> None:
    followed = Followed().usual()
    spot = 10 * SPOT if which[0] and factor == 2 else SPOT * factor if which[0] else SPOT
    on_demand = LIST * factor if which[1] else LIST

    doubts = [followed.say(spot, on_demand).doubts for _ in range(times)]

    assert all(doubts)


@pytest.mark.parametrize("factor", [24, 60, 100, 1_000, 3_600])
def test_a_cheaper_unit_is_never_believed_however_often_it_is_said(factor: int) -> None:
    followed = Followed().usual()

    assert all(len(followed.say(SPOT // factor, LIST // factor).doubts) == 2 for _ in range(500))


@given(st.integers(SPOT // 5 + 1, LIST * 110 // 100))
def test_between_a_fifth_of_the_median_and_the_list_price_a_spot_price_is_believed(
    spot: int,
) -> None:
    assert not Followed().usual().say(spot).doubts


def test_the_bounds_are_those_that_are_asked_for() -> None:
    (dear,) = Followed().usual().say(spot=LIST * 2).doubts

    assert dear.field is PriceField.SPOT
    assert (dear.lowest_micro_usd, dear.highest_micro_usd) == (SPOT // 5, LIST * 110 // 100)


def test_a_list_price_cannot_be_crept_up_on() -> None:
    followed = Followed().usual(200)
    price = LIST

    for _ in range(100):
        price = price * 109 // 100
        followed.say(on_demand=price)

    assert followed.prices.trailing[PriceField.ON_DEMAND].last <= LIST * 110 // 100


def test_a_list_price_that_rises_for_good_is_believed_after_a_day() -> None:
    followed = Followed().usual()

    doubted = [bool(followed.say(on_demand=LIST * 14 // 10).doubts) for _ in range(60)]

    assert doubted == [True] * 48 + [False] * 12
    assert not followed.say(spot=LIST * 15 // 10, on_demand=LIST * 14 // 10).doubts


def test_a_rise_that_comes_and_goes_is_no_rise() -> None:
    followed = Followed().usual()

    for _ in range(60):
        assert followed.say(on_demand=LIST * 14 // 10).doubts
        assert not followed.say().doubts


def test_a_rise_that_is_said_often_but_not_for_a_day_is_not_believed() -> None:
    followed = Followed().usual()

    assert all(followed.say(on_demand=LIST * 14 // 10).doubts for _ in range(48))


def test_a_spot_price_that_falls_for_good_is_believed_after_a_day() -> None:
    followed = Followed().usual()

    doubted = [bool(followed.say(spot=SPOT // 10).doubts) for _ in range(60)]

    assert doubted == [True] * 48 + [False] * 12


def test_the_stated_list_price_holds_from_the_first_quote_and_does_not_rise_by_itself() -> None:
    stated = replace(RULE, list_prices_micro_usd={OFFERING.offering_id: LIST})
    followed = Followed(stated)

    assert all(len(followed.say(SPOT * 1_000, LIST * 1_000).doubts) == 2 for _ in range(5))
    assert not followed.say().doubts
    assert all(followed.say(on_demand=LIST * 14 // 10).doubts for _ in range(100))


def test_a_stated_list_price_lets_prices_rise_and_fall_to_it_at_once() -> None:
    for factor in (10, 0.1):
        followed = Followed().usual()
        level = int(LIST * factor)
        followed.rule = replace(RULE, list_prices_micro_usd={OFFERING.offering_id: level})

        assert not followed.say(int(SPOT * factor), level).doubts


@pytest.mark.parametrize(
    ("spot", "on_demand", "fields"),
    [
        (SPOT * 1_000, LIST * 1_000, set(PriceField)),
        (SPOT * 1_000, LIST, {PriceField.SPOT}),
        (SPOT // 1_000, LIST, {PriceField.SPOT}),
        (SPOT, LIST * 1_000, {PriceField.ON_DEMAND}),
    ],
)
def test_a_first_quote_is_judged_by_its_own_prices_and_what_a_gpu_can_cost(
    spot: int, on_demand: int, fields: set[PriceField]
) -> None:
    judged = Followed().say(spot, on_demand)

    assert {doubt.field for doubt in judged.doubts} == fields
    for doubt in judged.doubts:
        there = doubt.field.value.replace("price_micro_usd", "available")
        assert getattr(judged.stands.quote, there).instances == 0


def test_the_median_is_that_of_a_window_of_market_time() -> None:
    followed = Followed(replace(RULE, window_s=10 * 1800)).usual()
    for _ in range(11):
        followed.say(spot=SPOT * 2)

    trailing = followed.prices.trailing[PriceField.SPOT]
    assert trailing.median == SPOT * 2
    assert len(trailing.samples) == len(trailing.ordered) == 11
