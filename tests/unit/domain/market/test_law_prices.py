"""Levels of prices: of recent slots, with the present price among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.beliefs.count_laws import CountBelief, count_laws
from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.market.law import MarketLaw, learn_laws
from spotline.domain.market.law_prices import (
    MOST_PRICE_LEVELS,
    RECENT_SLOTS,
    present_centres,
    price_centres,
)
from spotline.domain.market.learning_rules import FIRST_RULES, LearningRules
from spotline.domain.market.prior_laws import shipped_priors

PRESENT = replace(FIRST_RULES, present_prices=True)
PRICES = st.lists(st.integers(min_value=1, max_value=2_000_000), max_size=300)


def drifting(slots: int) -> list[int]:
    """A price that is changed once a day, by two points of on-demand, and never comes back."""
    return [250_000 + 20_000 * (slot // 48) for slot in range(slots)]


def next_day(law: MarketLaw, price_ppm: int) -> float:
    """The mean price of the next 48 slots, ppm of on-demand."""
    centres = np.array(law.space.price_centres_ppm)
    chance = np.zeros(centres.size)
    chance[law.space.price_of(price_ppm)] = 1.0
    means = []
    for _ in range(48):
        chance = chance @ law.price_matrix()
        means.append(float(chance @ centres))
    return float(np.mean(means))


def learned(prices: list[int], *, present: bool) -> MarketLaw:
    series = {"o": ([16] * len(prices), prices)}
    return learn_laws(series, most_instances=32, learning=PRESENT if present else FIRST_RULES)["o"]


@given(PRICES)
def test_the_present_price_is_a_level_and_the_others_are_those_of_its_past(
    prices: list[int],
) -> None:
    centres = present_centres(prices)

    assert list(centres) == sorted(set(centres))
    assert 1 <= len(centres) <= MOST_PRICE_LEVELS
    if prices:
        assert prices[-1] in centres
        assert {*centres} - {prices[-1]} <= {*price_centres(prices)}
        assert len(centres) == len(price_centres(prices))
    else:
        assert centres == price_centres(prices)


def test_a_price_that_stays_where_it_went_is_foretold_where_it_is() -> None:
    prices = drifting(480)

    present, before = learned(prices, present=True), learned(prices, present=False)

    assert next_day(present, prices[-1]) == pytest.approx(prices[-1], abs=5_000)
    assert next_day(before, prices[-1]) < prices[-1] - 15_000


def test_a_price_that_returns_to_its_mean_is_foretold_to_return() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    dear = np.cumsum(rng.random(RECENT_SLOTS) < 0.25) % 2
    prices = [500_000 if one else 200_000 for one in dear]
    prices[-1] = 500_000

    law = learned(prices, present=True)

    assert next_day(law, 500_000) == pytest.approx(350_000, abs=40_000)


def test_what_was_longer_ago_does_not_count() -> None:
    recent = [300_000 + 30_000 * (slot % 7) for slot in range(RECENT_SLOTS)]

    longer, shorter = (
        learned([*past, *recent], present=True) for past in ([900_000] * 400, [100_000] * 50)
    )

    assert longer.space.price_centres_ppm == shorter.space.price_centres_ppm
    assert longer.price_ppb == shorter.price_ppb
    assert longer.run_ppb != shorter.run_ppb  # counts of all slots do


@pytest.mark.parametrize("learning", [PRESENT, FIRST_RULES])
def test_counts_without_their_prices_are_refused(learning: LearningRules) -> None:
    with pytest.raises(ValueError, match="must have one length, had 3 and 2"):
        learn_laws({"o": ([1, 2, 3], [300_000] * 2)}, most_instances=32, learning=learning)


def test_a_book_that_learns_present_prices_says_so_in_its_laws_and_its_snapshot() -> None:
    book = LawBook(learning=PRESENT)
    prices = drifting(300)
    book.counts["o"], book.price_ppm["o"] = [8] * len(prices), prices

    (law,) = book.learn().values()

    assert prices[-1] in law.space.price_centres_ppm
    assert LawBook.load(book.dump()) == book


def test_where_counts_are_believed_the_present_price_is_a_level_too() -> None:
    belief = CountBelief.before(count_laws(shipped_priors(), 1800))
    prices = drifting(480)

    law = belief.law(prices)

    assert law.space.price_centres_ppm == present_centres(prices[-RECENT_SLOTS:])
    assert next_day(law, prices[-1]) == pytest.approx(prices[-1], abs=5_000)
