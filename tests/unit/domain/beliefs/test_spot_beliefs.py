"""Beliefs over counts that nobody publishes: bounds, drift, and what is worth asking for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.beliefs.count_laws import (
    LEVEL_STARTS,
    UNBOUNDED,
    CountBelief,
    count_laws,
    most_of,
)
from spotline.domain.beliefs.spot_beliefs import BelievedOffering, SpotBeliefs
from spotline.domain.market.offering import UNKNOWN_COUNT, Quote
from spotline.domain.market.prior_laws import NO_PRIORS, shipped_priors
from spotline.domain.units import NS_PER_S, PPM
from tests.depth import examples

SLOT_S = 1800
LAWS = count_laws(shipped_priors(), SLOT_S)


def quote(spot=1_000_000, on_demand=3_000_000):
    return Quote(
        offering_id="a",
        ts_event_ns=0,
        spot_price_micro_usd=spot,
        on_demand_price_micro_usd=on_demand,
        spot_available=UNKNOWN_COUNT,
        on_demand_available=UNKNOWN_COUNT,
    )


def level_of(count):
    return int(np.searchsorted(LEVEL_STARTS, count, side="right")) - 1


def fresh():
    return BelievedOffering(belief=CountBelief.before(LAWS))


SLOTS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(-1, 40), st.integers(1, 3)), max_size=12
)


@settings(max_examples=examples(30), deadline=None)
@given(SLOTS)
def test_a_belief_stays_one_and_keeps_to_the_bounds_that_were_seen(seen):
    known = fresh()
    for slot, (held, room, passed) in enumerate(seen):
        known.belief.advance(passed)
        known.room = room

        path = known.settle("a", slot, held)

        most = UNBOUNDED if room < 0 else held + room
        levels = known.belief.levels()
        assert levels.sum() == pytest.approx(1.0)
        assert levels[: level_of(held)].sum() == 0.0
        assert levels[level_of(most) + 1 :].sum() == 0.0
        assert held <= path <= max(held, most_of(level_of(most)))


@settings(max_examples=examples(15), deadline=None)
@given(SLOTS)
def test_forecasts_and_laws_of_any_belief_are_distributions(seen):
    known = fresh()
    for slot, (held, room, passed) in enumerate(seen):
        known.belief.advance(passed)
        known.room = room
        known.settle("a", slot, held)

    ahead = known.belief.ahead(3)
    law = known.belief.law([300_000, 350_000])

    assert [sum(chance for _, chance in step) for step in ahead] == pytest.approx([1.0] * 3)
    assert np.allclose(law.run_matrix().sum(axis=1), 1.0)


def test_what_is_refused_is_less_likely_than_before_and_comes_back_unasked():
    belief = CountBelief.before(LAWS)
    before = belief.chance_of(8)
    belief.observe(0, 0)
    belief.advance()
    soon = belief.chance_of(8)
    belief.advance(20)

    assert soon < belief.chance_of(8) < before + 0.1
    assert soon < before / 2


def test_what_is_held_longer_is_likelier_to_stay():
    belief = CountBelief.before(LAWS)
    stays = []
    for _ in range(12):
        belief.observe(8)
        belief.advance()
        stays.append(belief.chance_of(8))

    assert stays[-1] > stays[0] > 0.5


def test_refusals_beside_what_is_held_teach_how_much_an_offering_has_at_most():
    belief = CountBelief.before(LAWS)
    for _ in range(20):
        belief.observe(8, 15)
        belief.advance()

    assert belief.chance_of(16) < 0.1
    assert belief.most_with(0.5) == 15


def test_nothing_is_asked_for_while_the_cloud_is_not_asked():
    known = fresh()
    known.note_refused(8, 0, 0, 600)

    assert known.to_ask_for(quote(), 2, 599 * NS_PER_S, SLOT_S) == 2
    assert known.to_ask_for(quote(), 2, 600 * NS_PER_S, SLOT_S) > 2


def test_a_refusal_while_the_cloud_is_not_asked_says_nothing():
    known = fresh()
    known.note_refused(8, 0, 0, 600)
    known.room = -1

    known.note_refused(8, 0, 300 * NS_PER_S, 300)

    assert known.room == -1


@pytest.mark.parametrize(("granted", "room"), [(0, 7), (3, 0)])
def test_a_part_that_is_granted_is_all_there_is(granted, room):
    known = fresh()
    known.note_refused(8, granted, 0, 0)

    assert known.room == room


def test_spot_is_asked_for_only_while_the_chance_is_worth_the_asking():
    known = fresh()
    known.belief.observe(0, 0)
    known.belief.advance()
    chance = known.belief.chance_of(1)
    dear = 3_000_000
    # A slot of so little saving that asking costs more than it brings.
    saving = dear * 60 / SLOT_S / chance

    worth = quote(spot=dear - round(saving * 1.1), on_demand=dear)
    vain = quote(spot=dear - round(saving * 0.9), on_demand=dear)

    assert known.to_ask_for(worth, 0, 0, SLOT_S) > 0
    assert known.to_ask_for(vain, 0, 0, SLOT_S) == 0
    assert known.to_ask_for(quote(spot=dear, on_demand=dear), 0, 0, SLOT_S) == 0


def test_the_risk_is_that_of_finding_fewer():
    beliefs = SpotBeliefs()
    known = beliefs.opened(quote(), LAWS, 1, provider="cloud", opened_ns=0)

    assert beliefs.risk_ppm("a", 8) == round((1 - known.belief.chance_of(8)) * PPM)
    assert beliefs.risk_ppm("another", 8) == 0


def test_without_prior_laws_there_is_no_belief():
    with pytest.raises(ValueError, match="prior laws"):
        count_laws(NO_PRIORS, SLOT_S)
