"""Shadow prices: means of what spot was worth, in steps, that stay as long as they are near enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.crowd.shadow_prices import (
    CREDIBLE_BIDS,
    MEAN_SLOTS,
    PRICE_STEPS,
    ShadowPrices,
)

EAST, WEST = "p/east/a/g", "p/west/a/g"
ON_DEMAND = {EAST: 1_600_000, WEST: 3_200_000}
STEP = ON_DEMAND[EAST] // PRICE_STEPS


def priced(prices: ShadowPrices, slot: int, worth: int) -> dict[str, int] | None:
    """What is published after a slot in which EAST, which has four, was worth so much more."""
    prices.open(slot, {EAST: 4, WEST: 4})
    prices.note(slot, {EAST: worth} if worth else {})
    moved = prices.moved(ON_DEMAND)
    if moved is not None:
        prices.published = moved
    return moved


def test_where_spot_was_never_scarce_nothing_is_published() -> None:
    prices = ShadowPrices()

    assert [priced(prices, slot, 0) for slot in range(3)] == [None, None, None]


def test_a_price_follows_the_mean_in_steps_and_stays_while_that_is_near() -> None:
    prices = ShadowPrices()

    assert priced(prices, 4, 4 * STEP) == {EAST: 4 * STEP}
    assert priced(prices, 5, 4 * STEP) is None
    assert priced(prices, 6, 2 * STEP) is None  # the mean is 10/3 steps
    assert priced(prices, 7, 0) == {EAST: 3 * STEP}  # 10/4
    prices.open(8, {EAST: 4})  # in which nothing was cleared
    assert priced(prices, 9, 0) == {EAST: 2 * STEP}  # 10/6


def test_slots_with_more_spot_count_for_more_and_those_without_for_nothing() -> None:
    prices = ShadowPrices()
    for slot, (count, worth) in enumerate([(3, 4 * STEP), (0, 0), (1, 8 * STEP), (0, 0)]):
        prices.open(slot, {EAST: count})
        prices.note(slot, {EAST: worth} if worth else {})

    assert prices.moved(ON_DEMAND) == {EAST: 5 * STEP}


def test_worths_are_forgotten_after_the_slots_that_are_averaged() -> None:
    prices = ShadowPrices()
    priced(prices, 0, 16 * STEP)
    prices.open(MEAN_SLOTS, {EAST: 4})

    assert prices.counts.keys() == {MEAN_SLOTS}
    assert not prices.worths
    assert prices.moved(ON_DEMAND) == {}


def test_slots_before_the_first_that_was_cleared_do_not_count() -> None:
    prices = ShadowPrices()
    for slot in range(3):
        prices.open(slot, {EAST: 4})

    assert priced(prices, 3, 4 * STEP) == {EAST: 4 * STEP}


def test_a_price_is_never_above_that_of_on_demand() -> None:
    assert priced(ShadowPrices(), 0, 100 * ON_DEMAND[EAST]) == {EAST: ON_DEMAND[EAST]}


@given(
    st.lists(st.integers(0, 2 * ON_DEMAND[EAST]), min_size=1, max_size=60),
)
def test_a_price_is_a_multiple_of_a_step_and_next_to_the_mean(worths: list[int]) -> None:
    prices = ShadowPrices()
    for slot, worth in enumerate(worths):
        priced(prices, slot, worth)
        recent = worths[max(0, slot + 1 - MEAN_SLOTS) : slot + 1]
        mean = min(sum(recent) // len(recent), ON_DEMAND[EAST])
        price = prices.published.get(EAST, 0)

        assert price % STEP == 0
        assert 0 <= price <= ON_DEMAND[EAST]
        assert abs(price - mean) <= STEP


def test_what_is_expected_counts_the_more_the_fewer_bids_there_were() -> None:
    prices = ShadowPrices()

    assert prices.expected_share == 1.0
    assert prices.moved(ON_DEMAND, {EAST: 8 * STEP}) == {EAST: 8 * STEP}
    for slot in range(4):
        prices.open(slot, {EAST: 4, WEST: 4})
        prices.note(slot, {}, CREDIBLE_BIDS // 4)

    assert prices.expected_share == 0.5
    assert prices.moved(ON_DEMAND, {EAST: 8 * STEP}) == {EAST: 4 * STEP}
    assert prices.moved(ON_DEMAND, {WEST: 8 * STEP}) == {WEST: 4 * STEP}
    assert prices.moved(ON_DEMAND) is None


def test_expected_worths_are_never_above_on_demand_and_of_many_bids_not_looked_for() -> None:
    prices = ShadowPrices()

    assert prices.moved(ON_DEMAND, {EAST: 99 * STEP}) == {EAST: ON_DEMAND[EAST]}
    prices.open(0, {EAST: 4})
    prices.note(0, {}, 20 * CREDIBLE_BIDS)
    assert prices.expected_share == 0.0
    assert prices.moved(ON_DEMAND, {EAST: 99 * STEP}) is None


def test_what_is_expected_only_raises_a_mean() -> None:
    prices = ShadowPrices()
    prices.open(0, {EAST: 4, WEST: 4})
    prices.note(0, {EAST: 8 * STEP}, 1)

    assert prices.moved(ON_DEMAND, {EAST: 0}) == {EAST: 8 * STEP}
    assert prices.moved(ON_DEMAND, {EAST: 12 * STEP}) == {EAST: 12 * STEP}


def test_bids_are_forgotten_with_their_slots() -> None:
    prices = ShadowPrices()
    prices.open(0, {EAST: 4})
    prices.note(0, {}, CREDIBLE_BIDS)
    prices.open(MEAN_SLOTS, {EAST: 4})

    assert prices.expected_share == 1.0


def test_a_copy_does_not_change() -> None:
    prices = ShadowPrices()
    priced(prices, 0, 4 * STEP)
    copied = prices.copied()
    priced(prices, 1, 12 * STEP)

    assert copied == ShadowPrices(
        published={EAST: 4 * STEP},
        counts={0: {EAST: 4, WEST: 4}},
        worths={0: {EAST: 4 * STEP}},
        bids={0: 0},
    )
