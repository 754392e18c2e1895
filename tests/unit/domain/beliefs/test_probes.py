"""What asking is worth, what it costs, and how often it is done."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.beliefs.count_laws import CountBelief, count_laws
from spotline.domain.beliefs.probes import (
    MARGIN,
    PricedProbe,
    ProbeBook,
    ProbeOdds,
    ProbeRation,
    ProbeWorth,
    Prospects,
    expected_gain,
    probe_price,
)
from spotline.domain.beliefs.spot_beliefs import BelievedOffering
from spotline.domain.market.prior_laws import shipped_priors
from spotline.domain.units import NS_PER_S, PPM
from tests.depth import examples

SLOT_S = 1800
LAWS = count_laws(shipped_priors(), SLOT_S)
CHANCE = st.integers(0, PPM)
VALUE = st.floats(-1e9, 1e9)
ODDS = st.builds(
    ProbeOdds,
    granted_ppm=CHANCE,
    risk_if_granted_ppm=CHANCE,
    risk_if_refused_ppm=CHANCE,
    run_state=st.just(0),
)


def odds(granted=500_000, granted_risk=0, refused_risk=PPM):
    return ProbeOdds(
        granted_ppm=granted,
        risk_if_granted_ppm=granted_risk,
        risk_if_refused_ppm=refused_risk,
        run_state=0,
    )


def prospects(stays=0.0, goes=0.0, there=0.0, missed=0.0):
    return Prospects(stays=stays, goes=goes, there=there, missed=missed)


# --- what it is worth ---------------------------------------------------------------------------


def test_a_job_that_would_lose_half_the_time_gains_by_asking_first():
    # Blind it stays (0) or goes (10 or -30, as likely): knowing, it goes only where 10 waits.
    assert expected_gain(odds(), prospects(goes=-10, there=10, missed=-30)) == 5
    # One that goes anyway gains what it does not lose.
    assert expected_gain(odds(), prospects(goes=10, there=40, missed=-20)) == 10


def test_nothing_is_gained_where_the_answer_changes_nothing():
    assert expected_gain(odds(), prospects(stays=50, goes=20, there=40, missed=0)) == 0
    assert expected_gain(odds(), prospects(stays=0, goes=30, there=40, missed=20)) == 0
    # It is a slot old: a market without memory tells nothing.
    forgetful = odds(granted_risk=500_000, refused_risk=500_000)
    assert expected_gain(forgetful, prospects(goes=-10, there=10, missed=-30)) == 0


@given(ODDS, VALUE, VALUE, VALUE, VALUE)
def test_asking_never_gains_more_than_knowing_and_never_less_than_nothing(
    found, stays, goes, there, missed
):
    gain = expected_gain(found, prospects(stays=stays, goes=goes, there=there, missed=missed))

    assert 0 <= gain <= max(0.0, max(there, missed, stays) - max(stays, goes)) + 1e-3


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 40)), max_size=6), st.integers(1, 64))
def test_odds_are_those_of_the_belief_a_slot_on(seen, wanted):
    belief = CountBelief.before(LAWS)
    for held, room in seen:
        belief.observe(held, held + room if room >= 0 else 1_000)
        belief.advance()

    found = belief.probe_odds(wanted)

    assert found.granted_ppm == round(belief.chance_of(wanted) * PPM)
    later = CountBelief(laws=LAWS, mass=belief.mass)
    later.advance()
    mixed = (
        found.granted_ppm * found.risk_if_granted_ppm
        + (PPM - found.granted_ppm) * found.risk_if_refused_ppm
    ) / PPM
    # The two answers, each by its chance, are what is believed without asking: but for a count in
    # the middle of a level, which a refusal leaves possible.
    if wanted in (1, 4, 8, 16, 32, 64) and 0 < found.granted_ppm < PPM:
        assert mixed == pytest.approx((1 - later.chance_of(wanted)) * PPM, abs=3)


def test_the_price_is_a_minute_of_what_is_asked_for():
    assert probe_price(60_000_000, 4) == 4_000_000
    assert probe_price(60_000_000, 0) == 0


# --- how often it is done -----------------------------------------------------------------------


def probe(offering_id, gain, price, job_id="j"):
    worth = ProbeWorth(offering_id=offering_id, job_id=job_id, instances=1, gain_micro_usd=gain)
    return PricedProbe(worth=worth, price_micro_usd=price)


RATION = ProbeRation(most_per_slot=2, rest_slots=3, micro_usd_per_hour=100)


def names(book, offered, slot, ration=RATION):
    return [each.worth.offering_id for each in book.chosen(offered, ration, slot, SLOT_S)]


def test_what_gains_most_beyond_its_price_is_asked_and_no_more_than_the_ration():
    offered = [probe("a", 100, 10), probe("b", 300, 20), probe("c", 200, 10)]

    assert names(ProbeBook(), offered, 7) == ["b", "c"]
    assert names(ProbeBook(), [probe("b", 90, 9), probe("a", 90, 9)], 7) == ["a", "b"]


def test_what_gains_no_more_than_the_margin_is_not_asked():
    assert names(ProbeBook(), [probe("a", MARGIN * 10, 10)], 7) == []
    assert names(ProbeBook(), [probe("a", MARGIN * 10 + 1, 10)], 7) == ["a"]


def test_an_offering_rests_and_an_hour_has_its_budget():
    book = ProbeBook()
    book.note(7, "a", 60)

    assert names(book, [probe("a", 500, 10)], 9) == []
    assert names(book, [probe("a", 500, 10)], 10) == ["a"]
    # Two slots are an hour: what was spent in slot 7 counts in slot 8, and not in slot 9.
    assert names(book, [probe("b", 500, 50)], 8) == []
    assert names(book, [probe("b", 500, 50)], 9) == ["b"]


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abcdef"), st.integers(0, 500), st.integers(1, 60)),
            max_size=6,
            unique_by=lambda each: each[0],
        ),
        max_size=12,
    ),
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(0, 150),
)
def test_a_ration_holds_over_any_course(slots, most, rest, budget):
    ration = ProbeRation(most_per_slot=most, rest_slots=rest, micro_usd_per_hour=budget)
    book, sent = ProbeBook(), []
    for slot, offered in enumerate(slots):
        chosen = book.chosen([probe(*each) for each in offered], ration, slot, SLOT_S)
        assert len(chosen) <= most
        for each in chosen:
            sent.append((slot, each.worth.offering_id, each.price_micro_usd))
            book.note(*sent[-1])
        book.forget(slot, ration, SLOT_S)
        assert sum(price for at, _, price in sent if at > slot - 2) <= budget
    for first in sent:
        for then in sent:
            assert first is then or first[1] != then[1] or abs(first[0] - then[0]) >= rest


# --- what it tells ------------------------------------------------------------------------------


def believed_after(requested, granted):
    known = BelievedOffering(belief=CountBelief.before(LAWS))
    known.note_probed(requested, granted, 0, 0)
    known.settle("a", 0, 0)
    return known.belief


def test_what_was_granted_is_there_and_what_was_refused_is_not():
    assert believed_after(8, 8).chance_of(8) == pytest.approx(1)
    part = believed_after(16, 5)
    assert part.chance_of(4) == pytest.approx(1)
    assert part.chance_of(8) == pytest.approx(0)
    assert believed_after(1, 0).chance_of(1) == pytest.approx(0)


def test_a_gang_that_is_refused_says_only_that_it_is_not_there_whole():
    belief = believed_after(8, 0)

    assert belief.chance_of(8) == pytest.approx(0)
    assert belief.chance_of(1) > 0


def test_a_slot_later_what_was_shown_is_over():
    known = BelievedOffering(belief=CountBelief.before(LAWS))
    known.note_probed(8, 8, 0, 0)
    known.settle("a", 0, 0)
    known.belief.advance()

    known.settle("a", 1, 0)

    assert known.belief.chance_of(8) < 1
    assert known.levels_seen == (0, 6)


def test_what_is_told_while_nobody_was_asked_tells_nothing():
    known = BelievedOffering(belief=CountBelief.before(LAWS))
    known.note_probed(8, 0, 0, 100)
    assert known.cool_until_ns == 100 * NS_PER_S
    known.settle("a", 0, 0)
    chance = known.belief.chance_of(1)

    known.note_probed(1, 0, 50 * NS_PER_S, 0)
    known.settle("a", 1, 0)

    assert known.belief.chance_of(1) == pytest.approx(chance)


@pytest.mark.parametrize("changed", [{"granted": -1}, {"granted_risk": PPM + 1}])
def test_odds_are_chances(changed):
    with pytest.raises(ValueError, match="must lie in"):
        odds(**changed)


def test_a_worth_is_of_something():
    with pytest.raises(ValueError, match="instances must be"):
        ProbeWorth(offering_id="a", job_id="j", instances=0, gain_micro_usd=1)
