"""Whether a market still follows its law: what is forgotten, and what never is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.spec import Context
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.forecasting.registry import forecaster_factory
from spotline.domain.market.law import StateSpace
from spotline.domain.market.law_drift import ALPHA, SPLIT_SLOTS, changed_at
from spotline.domain.market.learning_rules import FIRST_RULES
from tests.depth import examples
from tests.fakes.market_slots import START_NS, series

SPACE = StateSpace(level_starts=(0, 8), age_starts=(1, 3, 9), price_centres_ppm=(300_000, 500_000))
CTX = Context(seq=1, now_ns=START_NS, event_id="e", correlation_id="c")


def walk(rng: np.random.Generator, slots: int, ends: float, up: bool = True) -> list[int]:
    """Gangs of 16 whose runs end with this chance in each slot."""
    counts = []
    for leaves in (rng.random(slots) < ends).tolist():
        up = up is not leaves
        counts.append(16 * up)
    return counts


def prices(rng: np.random.Generator, slots: int, share: float) -> list[int]:
    return [500_000 if high else 300_000 for high in (rng.random(slots) < share).tolist()]


def test_a_market_that_keeps_its_law_is_hardly_ever_doubted() -> None:
    markets, alarms = 120, 0
    for seed in range(markets):
        rng = np.random.Generator(np.random.PCG64(seed))
        ends = float(rng.uniform(0.02, 0.6))
        counts = np.array(walk(rng, 960, ends))
        ppm = np.array(prices(rng, 960, float(rng.uniform(0.05, 0.5))))
        # Looked at every two days, until the first alarm.
        alarms += any(changed_at(SPACE, counts[:k], ppm[:k]) for k in range(96, 961, 96))

    # Two tests at ALPHA each; three standard deviations of the count above that.
    expected = 2 * ALPHA * markets
    assert alarms <= expected + 3.0 * expected**0.5


@pytest.mark.parametrize(("before", "after"), [(0.05, 0.5), (0.5, 0.05)])
def test_a_changed_law_is_seen_soon_and_dated_well(before: float, after: float) -> None:
    found = []
    for seed in range(20):
        rng = np.random.Generator(np.random.PCG64(seed))
        counts = np.array(walk(rng, 480, before) + walk(rng, 192, after))
        found.append(changed_at(SPACE, counts, np.full(672, 300_000)))

    assert sum(since > 0 for since in found) >= 18
    assert all(abs(since - 480) <= 4 * SPLIT_SLOTS for since in found if since)


def test_prices_that_change_their_habits_are_seen_too() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    ppm = np.array(prices(rng, 384, 0.02) + prices(rng, 192, 0.9))

    since = changed_at(SPACE, np.full(576, 16), ppm)

    assert abs(since - 384) <= SPLIT_SLOTS


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from([0, 16]), max_size=120))
def test_a_change_lies_within_the_series_with_slots_on_either_side(counts: list[int]) -> None:
    since = changed_at(SPACE, np.array(counts, dtype=np.int64), np.full(len(counts), 300_000))

    assert since % SPLIT_SLOTS == 0
    assert since == 0 or SPLIT_SLOTS <= since < len(counts) - SPLIT_SLOTS + 1


def changed_market() -> list[int]:
    rng = np.random.Generator(np.random.PCG64(9))
    return walk(rng, 144, 0.04) + walk(rng, 96, 0.6)


def test_a_book_that_watches_forgets_what_was_before_and_any_other_does_not() -> None:
    watching, plain = LawBook(learning=replace(FIRST_RULES, watch_laws=True)), LawBook()
    for opened in series(changed_market()):
        watching.observe(opened)
        plain.observe(opened)

    (name,) = plain.counts
    assert len(plain.counts[name]) == len(plain.price_ppm[name]) == 240
    kept = len(watching.counts[name])
    assert 48 <= kept <= 144
    assert len(watching.price_ppm[name]) == kept
    assert watching.counts[name] == plain.counts[name][-kept:]
    assert LawBook.load(watching.dump()) == watching

    def ends(book: LawBook) -> float:
        matrix = book.learn()[name].run_matrix()
        last = matrix.shape[0] // 2
        return float(matrix[last, :last].sum())

    # A run that has just begun ends with a chance of 0.6 now.
    assert ends(watching) > ends(plain) + 0.05
    assert ends(watching) == pytest.approx(0.6, abs=0.15)


def laws_of(*, watch_laws: bool) -> list[MarketLawLearned]:
    factory = forecaster_factory("persistence")
    learning = replace(FIRST_RULES, watch_laws=watch_laws)
    handler = ForecastHandler(factory, horizon_slots=2, learning=learning)
    state, laws = handler.initial(), []
    for opened in series(changed_market()):
        handler.evolve(state, opened)
        laws += [
            event
            for event in handler.decide(state, opened, CTX).events
            if isinstance(event, MarketLawLearned)
        ]
    return laws


def test_laws_part_only_where_a_change_was_seen() -> None:
    watched, plain = laws_of(watch_laws=True), laws_of(watch_laws=False)

    assert watched[:6] == plain[:6]
    assert watched[-1] != plain[-1]
