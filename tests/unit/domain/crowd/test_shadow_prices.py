"""Shadow prices: means of what spot was worth, in steps, that stay as long as they are near enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.crowd.shadow_prices import MEAN_SLOTS, PRICE_STEPS, ShadowPrices

EAST, WEST = "p/east/a/g", "p/west/a/g"
ON_DEMAND = {EAST: 1_600_000, WEST: 3_200_000}
STEP = ON_DEMAND[EAST] // PRICE_STEPS


def priced(prices: ShadowPrices, slot: int, worth: int) -> dict[str, int] | None:
    """What is published after a slot in which EAST was worth so much more."""
    prices.note(slot, {EAST: worth} if worth else {})
    moved = prices.moved(slot, ON_DEMAND)
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
    assert priced(prices, 9, 0) == {EAST: 2 * STEP}  # 10/6: slot 8 was worth nothing, too


def test_worths_are_forgotten_after_the_slots_that_are_averaged() -> None:
    prices = ShadowPrices()
    priced(prices, 0, 16 * STEP)
    prices.note(MEAN_SLOTS, {})

    assert prices.worths.keys() == {MEAN_SLOTS}
    assert prices.moved(MEAN_SLOTS, ON_DEMAND) == {}


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


def test_a_copy_does_not_change() -> None:
    prices = ShadowPrices()
    priced(prices, 0, 4 * STEP)
    copied = prices.copied()
    priced(prices, 1, 12 * STEP)

    assert copied == ShadowPrices(
        published={EAST: 4 * STEP}, worths={0: {EAST: 4 * STEP}}, first_slot=0
    )
