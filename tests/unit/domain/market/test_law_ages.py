"""How the ends of runs fall with their age, and laws that are learned so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.market.law import (
    MarketLaw,
    StateSpace,
    choose_space,
    law_id_of,
    learn_law,
    learn_laws,
    run_states,
)
from spotline.domain.market.law_ages import ended_by_age, ends_by_age, slots_lasted
from spotline.domain.market.learning_rules import FIRST_RULES
from tests.depth import examples

AGES = (1, 3, 9)
FALLING = replace(FIRST_RULES, falling_ends=True)
LEVELS = st.lists(st.integers(0, 2), max_size=200).map(lambda one: np.array(one, dtype=np.int64))


def renewal(scale: float, power: float, slots: int, seed: int) -> np.ndarray:
    """Levels 0 and 1 whose runs end in their k-th slot with a chance of scale / k ** power."""
    drawn = np.random.Generator(np.random.PCG64(seed)).random(slots)
    levels, level, age = np.zeros(slots, dtype=np.int64), 0, 1
    for slot in range(slots):
        levels[slot] = level
        ends = drawn[slot] < scale / age**power
        level, age = (1 - level, 1) if ends else (level, age + 1)
    return levels


def test_a_slot_counts_itself_among_those_its_level_has_lasted() -> None:
    assert slots_lasted(np.array([1, 1, 0, 2, 2, 2])).tolist() == [1, 2, 1, 1, 2, 3]
    assert slots_lasted(np.zeros(0, dtype=np.int64)).size == 0


@settings(max_examples=examples(200), deadline=None)
@given(levels=LEVELS)
def test_an_older_run_never_ends_more_likely_than_a_younger_one(levels: np.ndarray) -> None:
    ends = ends_by_age(levels, 3, AGES)

    assert ((ends > 0.0) & (ends < 1.0)).all()
    assert (np.diff(ends, axis=1) <= 1e-12).all()


@settings(max_examples=examples(200), deadline=None)
@given(levels=LEVELS)
def test_chances_of_the_next_level_are_a_distribution_at_every_age(levels: np.ndarray) -> None:
    pooled = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 1.0, 0.0]])

    chance = ended_by_age(pooled, levels, AGES)

    assert chance == pytest.approx(np.clip(chance, 0.0, 1.0))
    assert chance.sum(axis=2) == pytest.approx(1.0)


def test_one_level_alone_never_ends() -> None:
    assert ended_by_age(np.ones((1, 1)), np.zeros(9, dtype=np.int64), AGES).tolist() == [
        [[1.0]] * 3
    ]


@pytest.mark.parametrize(("scale", "power"), [(0.2, 0.5), (0.1, 0.0)])
def test_long_series_show_the_power_that_their_runs_follow(scale: float, power: float) -> None:
    ends = ends_by_age(renewal(scale, power, 100_000, seed=5), 2, (1, 2, 4, 8))

    # The first bucket holds one age, so its chance is that of a run's first slot.
    assert ends[:, 0] == pytest.approx(scale, rel=0.1)
    # Ages 2 and 3: about 2.4 in the mean.
    assert ends[:, 1] / ends[:, 0] == pytest.approx(2.4**-power, rel=0.1)


def surprise(law: MarketLaw, levels: np.ndarray) -> float:
    """Mean surprise at the next level of a series, nats a slot."""
    ages = law.space.ages
    chance = law.run_matrix().reshape(-1, len(law.level_counts), ages).sum(axis=2)
    states = run_states(law.space, levels)
    return float(-np.log(chance[states[:-1], levels[1:]]).mean())


@pytest.mark.parametrize(("power", "saved"), [(1.0, 0.02), (0.8, 0.015), (0.0, -0.001)])
def test_falling_ends_foresee_heavy_tailed_runs_better_and_others_as_well(
    power: float, saved: float
) -> None:
    space = StateSpace(level_starts=(0, 1), age_starts=AGES, price_centres_ppm=(300_000,))
    prices = np.full(300, 300_000)
    fresh = renewal(0.3, power, 20_000, seed=1)

    def mean_surprise(*, falling: bool) -> float:
        pasts = [renewal(0.3, power, 300, seed) for seed in range(20, 60)]
        laws = [learn_law(past, prices, space, falling_ends=falling) for past in pasts]
        return float(np.mean([surprise(law, fresh) for law in laws]))

    assert mean_surprise(falling=True) < mean_surprise(falling=False) - saved


def test_laws_are_as_before_where_falling_ends_are_not_asked_for() -> None:
    series = {"a": (renewal(0.3, 1.0, 200, 3) * 16, np.full(200, 300_000))}

    law = learn_laws(series, most_instances=32)["a"]

    space = choose_space(series["a"][0], series["a"][1], most_instances=32)
    assert law == learn_law(*series["a"], space)
    assert law_id_of(law) == ("e41537652d07391d1134f7d4fc9076e182100e5ad997fc311edd45e7f2759fd2")
    assert learn_laws(series, most_instances=32, learning=FALLING)["a"] != law


def test_a_book_whose_ends_fall_says_so_in_its_laws_and_its_snapshot() -> None:
    counts, prices = renewal(0.3, 1.0, 200, 3) * 16, np.full(200, 300_000)
    book, plain = LawBook(learning=FALLING), LawBook()
    for one in (book, plain):
        one.counts["o"], one.price_ppm["o"] = counts.tolist(), prices.tolist()

    series = {"o": (counts, prices)}
    assert book.learn() == learn_laws(series, most_instances=32, learning=FALLING)
    assert plain.learn() == learn_laws(series, most_instances=32)
    assert LawBook.load(book.dump()) == book
