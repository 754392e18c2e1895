"""Losses of any and of all members of a gang, as a law tells them, against the law that made them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.market.law import (
    MOST_LEVELS,
    MarketLaw,
    choose_space,
    learn_law,
    learn_laws,
    run_states,
)
from spotline.domain.market.learning_rules import FIRST_RULES

PARTING = replace(FIRST_RULES, whole_gangs=True)
WHOLE = 16
ANY_LOST, ALL_LOST = 0.15, 0.04


def losing_gangs(slots: int, seed: int) -> np.ndarray:
    """Counts of a market with a known law, shape (slots,).

    A whole gang of 16 loses some members with a chance of 0.11, all with 0.04. One that lost some
    is whole again with a chance of 0.9 and has otherwise lost others; so is one that lost all.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    counts = [WHOLE]
    while len(counts) < slots:
        drawn = rng.random()
        if counts[-1] == WHOLE:
            lost = drawn < ANY_LOST
            gone = drawn < ALL_LOST
        else:
            lost, gone = drawn < 0.1, False
        # Mostly one or two are lost, now and then any number.
        few = WHOLE - 1 - rng.geometric(0.5) % 2
        some = few if rng.random() < 0.7 else int(rng.integers(2, WHOLE))
        counts.append(0 if gone else some if lost else WHOLE)
    return np.array(counts, dtype=np.int64)


def flat(counts: np.ndarray) -> np.ndarray:
    return np.full(counts.shape, 300_000, dtype=np.int64)


def told(law: MarketLaw, counts: np.ndarray, below: int) -> float:
    """The mean chance, over slots with a whole gang, that fewer than `below` are left of it."""
    fewer = law.run_matrix()[:, law.run_counts() < below].sum(axis=1)
    return float(fewer[run_states(law.space, counts)][counts >= WHOLE].mean())


def test_a_law_tells_losses_of_any_and_of_all_members_as_often_as_they_come() -> None:
    counts = losing_gangs(4_000, seed=3)

    law = learn_laws({"o": (counts, flat(counts))}, most_instances=32, learning=PARTING)["o"]

    assert told(law, counts, WHOLE) == pytest.approx(ANY_LOST, abs=0.02)
    assert told(law, counts, 1) == pytest.approx(ALL_LOST, abs=0.01)


def test_without_a_level_of_its_own_a_gang_that_lost_few_passes_for_whole() -> None:
    counts = losing_gangs(4_000, seed=3)

    law = learn_laws({"o": (counts, flat(counts))}, most_instances=32)["o"]

    assert told(law, counts, WHOLE) < ANY_LOST - 0.05


def test_a_book_that_parts_whole_gangs_says_so_in_its_laws_and_its_snapshot() -> None:
    book = LawBook(learning=PARTING)
    counts = losing_gangs(600, seed=4)
    book.counts["o"], book.price_ppm["o"] = counts.tolist(), flat(counts).tolist()

    (law,) = book.learn().values()

    assert law.space.level_starts[-1] == WHOLE
    assert LawBook.load(book.dump()) == book


@given(
    st.lists(st.integers(min_value=0, max_value=40), min_size=1, max_size=80),
    st.integers(min_value=1, max_value=32),
)
def test_many_counts_have_a_level_that_begins_with_the_greatest(
    counts: list[int], most: int
) -> None:
    seen = sorted({min(count, most) for count in counts} - {0})
    plain = choose_space(counts, [], most_instances=most)

    space = choose_space(counts, [], most_instances=most, whole_gangs=True)

    # No state is added: tables stay as large as they were.
    assert len(space.level_starts) <= len(plain.level_starts)
    if len(seen) >= MOST_LEVELS:
        assert space.level_starts[-1] == seen[-1]
        law = learn_law(counts, [300_000] * len(counts), space)
        assert law.level_counts[-1] >= seen[-1]
    else:
        assert space == plain
