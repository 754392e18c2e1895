"""What a rehearsed demo puts beside its market: disks where none are stated, and a plan of one region."""

from __future__ import annotations

import numpy as np

from spotline.demo.rehearsed.planned import PLAN, with_disks, with_savings_plan
from spotline.domain.market.generate import generate
from spotline.domain.market.offering import Disks


def market():
    return generate("mixed", seed=7, slots=4, slot_s=1800, start_ns=0)


def test_disks_are_for_those_that_state_none():
    traded = with_disks(with_disks(market(), 500), 100)

    assert {each.disks for each in traded.offerings} == {
        Disks(gb=500, micro_usd_per_gb_month=80_000)
    }
    assert with_disks(market(), 0).offerings == market().offerings


def test_a_plan_covers_the_region_of_the_dearest_type_and_costs_nothing_more():
    before = market()
    dearest = int(before.on_demand_price_micro_usd.max(axis=0).argmax())
    base = before.offerings[dearest]

    traded = with_savings_plan(before, 4)

    planned = [each for each in traded.offerings if each.reservation]
    beside = [each for each in before.offerings if each.region == base.region]
    assert [each.offering_id for each in planned] == [
        f"{each.offering_id}/reserved/{PLAN}" for each in beside
    ]
    rate = int(before.on_demand_price_micro_usd[:, dearest].max()) * 70 // 100
    for each in planned:
        assert each.reservation.instances == 4
        assert each.reservation.plan_micro_usd_per_hour == 4 * rate
    assert not np.any(traded.on_demand_price_micro_usd[:, len(before.offerings) :])


def test_a_market_keeps_the_plan_that_it_has():
    planned = with_savings_plan(market(), 2)

    assert with_savings_plan(planned, 4) is planned
    assert with_savings_plan(planned, 0) is planned
