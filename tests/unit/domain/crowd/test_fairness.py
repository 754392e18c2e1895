"""Fairness between tenants: no safe job loses by it, its price is bounded, and who had less counts more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.crowd.bids import Bid, Capacity, Option
from spotline.domain.crowd.clearing import clear
from spotline.domain.crowd.fairness import clear_fairly
from spotline.domain.crowd.program import served_in_order
from spotline.domain.crowd.tenants import (
    WEIGHT_ONE,
    TenantGain,
    TenantSaving,
    TenantWeight,
    shares_of,
    weights_of,
)
from tests.depth import examples
from tests.unit.domain.crowd.test_clearing import crowds, fits, idle, spot, worth

TENANTS = ("blue", "red")


@st.composite
def weighted(draw: st.DrawFn) -> tuple[list[Bid], Capacity, dict[str, str], list[TenantWeight]]:
    bids, capacity = draw(crowds())
    tenants = {bid.job_id: draw(st.sampled_from(TENANTS)) for bid in bids}
    weights = [
        TenantWeight(tenant=tenant, weight_milli=draw(st.integers(WEIGHT_ONE, 4 * WEIGHT_ONE)))
        for tenant in TENANTS
    ]
    return bids, capacity, tenants, weights


@settings(max_examples=examples(60), deadline=None)
@given(weighted())
def test_no_job_that_serving_in_order_keeps_safe_loses_its_safe_option(case) -> None:
    bids, capacity, tenants, weights = case

    found, fairness = clear_fairly(bids, capacity, tenants, weights)

    chosen = [found.chosen[bid.job_id] for bid in bids]
    assert fits(bids, chosen, capacity)
    for bid, at, got in zip(bids, served_in_order(bids, capacity), chosen, strict=True):
        assert bid.options[got].safe or not bid.options[at].safe
    # The price is what the best clearing is worth more.
    assert found.value_micro_usd == worth(bids, chosen)
    assert fairness.cost_micro_usd == clear(bids, capacity).value_micro_usd - worth(bids, chosen)


@settings(max_examples=examples(60), deadline=None)
@given(weighted())
def test_where_all_count_the_same_it_is_the_clearing_without_weights(case) -> None:
    bids, capacity, tenants, weights = case
    equal = [replace(weight, weight_milli=weights[0].weight_milli) for weight in weights]

    found, fairness = clear_fairly(bids, capacity, tenants, equal)

    assert found == clear(bids, capacity)
    assert fairness.cost_micro_usd == 0


@settings(max_examples=examples(60), deadline=None)
@given(weighted())
def test_of_all_gains_at_least_the_share_that_the_greatest_weight_leaves_is_kept(case) -> None:
    bids, capacity, tenants, weights = case
    # Safety may cost a job more than it gains: the law is of crowds in which nothing is at risk.
    bids = [
        replace(bid, options=tuple(replace(option, safe=True) for option in bid.options))
        for bid in bids
    ]
    most = max(weight.weight_milli for weight in weights)

    _, fairness = clear_fairly(bids, capacity, tenants, weights)

    got = sum(gain.got_micro_usd for gain in fairness.gains)
    assert got * most >= (got + fairness.cost_micro_usd) * WEIGHT_ONE


def test_spot_goes_to_the_tenant_that_counts_for_more_and_the_price_is_said() -> None:
    bids = [
        Bid(job_id="rich", rank=0, options=(spot("a", 2, 30), idle())),
        Bid(job_id="poor", rank=1, options=(spot("a", 2, 20), idle())),
    ]
    tenants = {"rich": "blue", "poor": "red"}
    weights = [TenantWeight(tenant="red", weight_milli=2 * WEIGHT_ONE)]

    found, fairness = clear_fairly(bids, Capacity(spot={"a": 2}), tenants, weights)

    assert (found.chosen["rich"], found.chosen["poor"]) == (1, 0)
    assert fairness.cost_micro_usd == 10
    assert fairness.gains == (
        TenantGain(tenant="blue", got_micro_usd=0, wished_micro_usd=30),
        TenantGain(tenant="red", got_micro_usd=20, wished_micro_usd=20),
    )


def saving(tenant: str, saved: int) -> TenantSaving:
    return TenantSaving(tenant=tenant, saved_micro_usd=saved, on_demand_micro_usd=100)


def test_who_saved_a_smaller_share_counts_for_more_up_to_the_most() -> None:
    savings = (saving("blue", 90), saving("green", 1), saving("red", 60))

    weights = weights_of(("red", "new", "blue", "green"), savings, {}, 4 * WEIGHT_ONE)

    assert [(each.tenant, each.weight_milli) for each in weights] == [
        ("blue", 1000),
        ("green", 4000),
        ("new", 1000),
        ("red", 1500),
    ]


def test_who_is_due_more_counts_for_more_at_equal_shares() -> None:
    savings = [saving(tenant, 50) for tenant in TENANTS]

    weights = weights_of(TENANTS, savings, shares_of("red=2"), 4 * WEIGHT_ONE)

    assert [each.weight_milli for each in weights] == [1000, 2000]


@pytest.mark.parametrize("text", ["red", "red=0", "red=1.5", "=2", "red=1,red=2"])
def test_shares_that_cannot_be_read_are_refused_with_the_part(text) -> None:
    with pytest.raises(ValueError, match=r"TENANT=WHOLE NUMBER|once"):
        shares_of(text)


def test_shares_are_read() -> None:
    assert shares_of("") == {}
    assert shares_of(" research=2, search = 1 ") == {"research": 2, "search": 1}


def test_a_weight_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="weight_milli must be >= 1000, was 999"):
        TenantWeight(tenant="red", weight_milli=999)


def test_options_of_a_job_keep_their_order_to_the_micro_dollar() -> None:
    near = Option(offering_id="a", spot=1, on_demand=0, value_micro_usd=10**12 + 1)
    bids = [
        Bid(job_id="one", rank=0, options=(idle(10**12), near)),
        Bid(job_id="two", rank=1, options=(idle(), spot("a", 1, 1))),
    ]
    weights = [TenantWeight(tenant="blue", weight_milli=1001)]

    found, _ = clear_fairly(bids, Capacity(spot={"a": 2}), {"one": "blue", "two": "red"}, weights)

    assert found.chosen == {"one": 1, "two": 1}
