"""Placement scores in beliefs: worth what launches have shown, and nothing before that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.beliefs.count_laws import LEVEL_STARTS, UNBOUNDED, count_laws
from spotline.domain.beliefs.score_evidence import SCORE_LASTS_S, ScoreEvidence
from spotline.domain.beliefs.spot_beliefs import SpotBeliefs
from spotline.domain.drawn import generator
from spotline.domain.market.offering import BEST_PLACEMENT_SCORE, UNKNOWN_COUNT, Quote
from spotline.domain.market.prior_laws import shipped_priors
from spotline.domain.units import NS_PER_S
from tests.depth import examples

SLOT_S = 1800
LAWS = count_laws(shipped_priors(), SLOT_S)
LEVELS = len(LEVEL_STARTS)
WANTED = 8
HIGH, LOW = 9, 2
DAY_SLOTS = SCORE_LASTS_S // SLOT_S


def quote(score=0, scored_ns=0, offering_id="a"):
    return Quote(
        offering_id=offering_id,
        ts_event_ns=0,
        spot_price_micro_usd=1_000_000,
        on_demand_price_micro_usd=3_000_000,
        spot_available=UNKNOWN_COUNT,
        on_demand_available=UNKNOWN_COUNT,
        placement_score=score,
        scored_ns=scored_ns,
    )


def ns_of(slot):
    return slot * SLOT_S * NS_PER_S


class Days:
    """An offering that is scored once a day and asked for `WANTED` instances in the slot after it."""

    def __init__(self, *, scores=True):
        self.beliefs = SpotBeliefs(scores={} if scores else None)
        self.day = 0

    def open(self, score, slot=0, scored=None):
        """Open a slot of the day, with the score of the day."""
        at = self.day * DAY_SLOTS
        return self.beliefs.opened(
            quote(score, ns_of(at if scored is None else scored) + 1),
            LAWS,
            1,
            provider="cloud",
            opened_ns=ns_of(at + slot) + 1,
        )

    def end(self, *, is_there):
        """What was asked for was granted, or nothing was; the day is over."""
        known = self.beliefs.offerings["a"]
        if not is_there:
            known.note_room(0)
        known.settle("a", self.day * DAY_SLOTS, WANTED if is_there else 0)
        self.day += 1


def taught(days, *, informative, seed=0):
    """An offering with a past of so many days, half of them with spot."""
    world, rng = Days(), generator("scores", seed)
    for _ in range(days):
        is_there = bool(rng.random() < 0.5)
        says = is_there if informative else bool(rng.random() < 0.5)
        world.open(HIGH if says else LOW)
        world.end(is_there=is_there)
    return world


@given(st.integers(1, BEST_PLACEMENT_SCORE))
def test_a_score_weighs_nothing_before_anything_was_seen_beside_one(score):
    assert ScoreEvidence().weights(score).tolist() == [1.0] * LEVELS
    scored, plain = Days(), Days(scores=False)
    assert np.array_equal(scored.open(score).belief.mass, plain.open(score).belief.mass)


EVIDENCE = st.lists(
    st.tuples(st.integers(1, BEST_PLACEMENT_SCORE), st.integers(0, LEVELS - 1)), max_size=60
)


@settings(max_examples=examples(60), deadline=None)
@given(EVIDENCE, st.integers(1, BEST_PLACEMENT_SCORE))
def test_weights_are_finite_and_positive_whatever_was_seen(seen, score):
    evidence = ScoreEvidence()
    for given_score, level in seen:
        evidence.met[given_score, level] += 1.0

    weights = evidence.weights(score)

    assert np.isfinite(weights).all()
    assert (weights > 0).all()


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.floats(0.1, 50), min_size=LEVELS, max_size=LEVELS), st.floats(0.2, 0.8))
def test_scores_that_have_nothing_to_do_with_counts_weigh_next_to_nothing(levels, often):
    evidence = ScoreEvidence()
    evidence.met[HIGH] = often * np.array(levels) * 100
    evidence.met[LOW] = (1 - often) * np.array(levels) * 100

    assert evidence.weights(HIGH) == pytest.approx(np.ones(LEVELS), rel=0.03)


def test_what_was_granted_and_refused_beside_scores_tells_what_they_are_worth():
    world = taught(120, informative=True)
    before = world.beliefs.offerings["a"].belief
    unscored = replace(before, mass=before.mass.copy())
    unscored.advance()
    expected = unscored.chance_of(WANTED)
    low = taught(120, informative=True).open(LOW).belief.chance_of(WANTED)
    high = world.open(HIGH).belief.chance_of(WANTED)

    assert low < 0.6 * expected
    assert 1 - high < 0.6 * (1 - expected)


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_chance_move_a_belief_little(seed):
    world = taught(60, informative=False, seed=seed)
    known = world.beliefs.offerings["a"]
    unscored = replace(known.belief, mass=known.belief.mass.copy())
    unscored.advance()

    scored = world.open(HIGH).belief.chance_of(WANTED)

    assert scored == pytest.approx(unscored.chance_of(WANTED), abs=0.05)


def test_a_score_is_taken_once_however_often_it_is_told():
    world = taught(20, informative=True)
    known = world.open(HIGH)
    again = replace(known.belief, mass=known.belief.mass.copy())
    assert known.unmoved < 1.0
    again.advance()

    told_again = world.open(HIGH, slot=1)

    assert np.array_equal(told_again.belief.mass, again.mass)
    assert told_again.unmoved == 1.0


def test_however_many_slots_show_something_a_score_counts_as_one():
    world = Days()
    for slot in range(6):
        known = world.open(HIGH, slot=slot)
        known.settle("a", slot, WANTED)
    world.day = 1
    world.open(LOW)

    met = world.beliefs.scores["cloud"].met
    assert met.sum() == pytest.approx(1.0)
    assert met[HIGH].sum() == pytest.approx(1.0)
    assert met[HIGH, : LEVEL_STARTS.index(WANTED)].sum() == 0.0


def test_what_shows_nothing_and_what_comes_too_late_is_not_laid_to_a_score():
    silent = Days()
    silent.open(HIGH).settle("a", 0, 0)
    stale = Days()
    stale.open(HIGH)
    stale.open(HIGH, slot=DAY_SLOTS + 1, scored=0).settle("a", DAY_SLOTS + 1, WANTED)
    unsaid = Days()
    unsaid.open(HIGH)
    unsaid.beliefs.opened(quote(), LAWS, 1, provider="cloud", opened_ns=ns_of(1)).settle(
        "a", 1, WANTED
    )
    for world in (silent, stale, unsaid):
        world.day = 3
        world.open(LOW)
        assert not world.beliefs.scores["cloud"].met.any()


def test_providers_are_judged_apart():
    world = taught(30, informative=True)
    elsewhere = world.beliefs.opened(
        quote(HIGH, ns_of(10_000), offering_id="b"),
        LAWS,
        1,
        provider="another",
        opened_ns=ns_of(10_000),
    )

    assert elsewhere.unmoved == 1.0
    assert set(world.beliefs.scores) == {"cloud", "another"}


def test_where_advice_moved_a_belief_paths_agree_the_less():
    world = taught(30, informative=True)
    known = world.open(LOW)
    moved = known.unmoved
    chance = replace(known.belief, mass=known.belief.mass.copy()).observe(WANTED)

    known.settle("a", 0, WANTED)

    assert 0 < moved < 1
    assert known.foreseen == pytest.approx(moved * chance)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 100), st.integers(0, UNBOUNDED))
def test_bounds_by_themselves_tell_of_levels_within_them(least, room):
    levels = LAWS.levels_within(least, min(UNBOUNDED, least + room))

    assert levels.sum() == pytest.approx(1.0)
    assert not levels[: np.searchsorted(LEVEL_STARTS, least, side="right") - 1].any()
