"""On-demand stock that nobody publishes: priors by family, moved by what launches show."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.beliefs.stock_beliefs import MOST_RESERVE_S, StockBelief, StockBeliefs
from spotline.domain.beliefs.stock_laws import (
    StockFamily,
    StockLaw,
    StockPriors,
    named_stock,
    parse_stock_priors,
    shipped_stock,
    stock_card,
    stock_priors_to_json,
)
from spotline.domain.units import PPM

SLOT_S = 1800
EVER = StockLaw(name="ever there", out_ppm=5_000, outage_s=3600)
RARE = StockLaw(name="rarely there", out_ppm=900_000, outage_s=40 * 3600)


def belief(*, scarce_ppm=300_000, slot_s=SLOT_S):
    family = StockFamily(name="f", gpu_models=(), chances_ppm=(PPM - scarce_ppm, scarce_ppm))
    priors = StockPriors(laws=(EVER, RARE), families=(family,))
    return StockBelief.before(priors, family, slot_s)


def shown(known, *outs):
    for out in outs:
        known.shown_out = out
        known.pass_slots(1)
    return known


def test_what_is_likely_out_is_asked_for_long_before_and_one_launch_lets_go_of_most_of_that():
    known = belief()
    first = known.reserve_slots()

    after = shown(known, False).reserve_slots()

    assert first > 100
    assert after == 0


def test_a_refusal_teaches_to_rescue_earlier_and_for_longer_the_longer_it_lasts():
    known = belief(scarce_ppm=10_000)
    reserves = [known.reserve_slots()]
    for _ in range(3):
        known.shown_out = True
        reserves.append(known.reserve_slots())
        known.pass_slots(1)

    assert reserves[0] == 0 < reserves[1] < reserves[2] < reserves[3]


def test_what_the_open_slot_shows_holds_at_once():
    known = belief()
    known.shown_out = True
    assert known.out_chance() == pytest.approx(1.0)
    known.shown_out = False
    assert known.out_chance() == 0.0


def test_a_plan_counts_on_what_the_next_launch_will_show():
    known = belief()

    assert known.reserve_once_granted() == 0 < known.reserve_slots()
    assert known.shown_out is None


def test_a_reserve_is_what_simulated_launches_wait_for_no_longer_than_in_one_of_twenty():
    known = belief()
    reserve, rng, waited = known.reserve_slots(), np.random.default_rng(4), []
    for _ in range(4_000):
        law = RARE if rng.random() < 0.3 else EVER
        out, slots = rng.random() < law.out_share, 0
        while out and slots <= reserve:
            out, slots = rng.random() < law.stays_out(SLOT_S), slots + 1
        waited.append(slots)

    longer = np.mean(np.array(waited) > reserve)
    assert 0.04 <= longer <= 0.06


@given(
    seen=st.lists(st.sampled_from([None, True, False]), max_size=12),
    scarce_ppm=st.integers(0, PPM),
    slot_s=st.sampled_from([300, 600, 1800, 3600]),
)
def test_a_belief_stays_a_distribution_and_a_reserve_within_bounds(seen, scarce_ppm, slot_s):
    known = belief(scarce_ppm=scarce_ppm, slot_s=slot_s)
    for out in seen:
        known.shown_out = out
        assert 0 <= known.reserve_once_granted() <= known.reserve_slots() <= MOST_RESERVE_S / slot_s
        known.pass_slots(1)

    assert sum(known.there) + sum(known.out) == pytest.approx(1.0)
    assert min(*known.there, *known.out) >= 0.0


@given(slots=st.integers(1, 400))
def test_what_nobody_asks_for_drifts_back_to_the_long_run(slots):
    law_chances = belief().there
    known = belief()
    known.pass_slots(slots)

    assert known.there == pytest.approx(law_chances)


def test_refusals_in_a_cool_down_were_not_asked_of_the_cloud():
    beliefs = StockBeliefs(offerings={"o": belief()})
    beliefs.refused("o", now_ns=0, cool_until_ns=10)
    known = beliefs.offerings["o"]
    known.pass_slots(1)

    beliefs.refused("o", now_ns=9, cool_until_ns=20)
    assert known.shown_out is None
    beliefs.refused("o", now_ns=10, cool_until_ns=20)
    assert known.shown_out is True
    beliefs.refused("unheard of", now_ns=10, cool_until_ns=20)


def test_families_are_found_by_the_longest_beginning_of_a_model():
    priors = shipped_stock()

    assert priors.family_of("H100-SXM-80GB").name == priors.family_of("mi325x").name
    assert priors.family_of("a100-80gb").name == "A100"
    assert priors.family_of("A10G").name == priors.family_of("V100").name == "others"
    by_family = [
        StockBelief.before(priors, family, SLOT_S).reserve_slots() for family in priors.families
    ]
    assert by_family[0] > by_family[1] > by_family[2] == 0


def test_the_text_in_the_wheel_says_all_that_it_means():
    priors = shipped_stock()

    text = stock_priors_to_json(priors, stock_card())

    assert parse_stock_priors(text) == priors
    assert named_stock(priors.sha256) == priors
    assert named_stock("") is None
    with pytest.raises(ValueError, match="stock_beliefs must be"):
        named_stock("0" * 64)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format_version": 2}, "format_version"),
        ({"laws": [{"name": "x", "out_ppm": 0, "outage_s": 1}]}, "out_ppm"),
        ({"laws": [{"name": "x", "out_ppm": 1, "outage_s": 0}]}, "outage_s"),
        ({"laws": [{"name": "x"}]}, "out_ppm"),
        ({"families": []}, "exactly one family"),
    ],
)
def test_another_text_is_refused_by_what_is_wrong(change, problem):
    text = json.dumps({**json.loads(stock_priors_to_json(shipped_stock(), {})), **change})

    with pytest.raises(ValueError, match=problem):
        parse_stock_priors(text)
    with pytest.raises(ValueError, match="must be JSON"):
        parse_stock_priors("{")
