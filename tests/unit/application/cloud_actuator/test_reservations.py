"""A cloud sells a reservation's instances while it lasts; they cost nothing more and are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.domain.events.capacity import CapacityReported, CostAccrued, LaunchRefused
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.sunk import SunkShare, reservations_used
from spotline.domain.market.offering import Count, Offering, Provenance, Reservation
from tests.fakes.actuator import SLOT_S, Rig, opened, quote

NAME = "east/reserved/block"
OFFERING = Offering(
    offering_id=NAME,
    provider="p",
    account="",
    region="east",
    zone="east-1",
    instance_type="gpu",
    gpu_model="",
    gpus_per_instance=8,
    quota_pool="east",
    reservation=Reservation(instances=3, sunk_price_micro_usd=2_000_000),
)


def reserved_slot(slot: int, *, there: int):
    event = opened(slot)
    free = replace(
        quote(),
        offering_id=NAME,
        spot_price_micro_usd=1,
        on_demand_price_micro_usd=0,
        spot_available=Count(instances=0, provenance=Provenance.OBSERVED),
        on_demand_available=Count(instances=there, provenance=Provenance.OBSERVED),
    )
    return replace(event, quotes=(replace(event.quotes[0], quote=free),))


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path, caps=Caps(micro_usd_per_hour=0, micro_usd_per_job=0))
    yield made
    made.close()


async def test_it_sells_what_there_is_for_nothing_whatever_money_is_left(rig):
    slots = [reserved_slot(slot, there=3 if slot < 2 else 0) for slot in range(4)]
    heard = [MarketOpened(offerings=(OFFERING,), slot_s=SLOT_S, first_slot_start_ns=0, source="")]
    await rig.feed(slots[0])
    await rig.decide(
        0,
        0,
        0,
        [("a", Lot(offering_id=NAME, on_demand=2)), ("b", Lot(offering_id=NAME, on_demand=2))],
    )
    refused = [event for event in rig.published if isinstance(event, LaunchRefused)]
    assert [(event.job_id, event.granted) for event in refused] == [("b", 1)]
    await rig.decide(0, 1, 0, [])
    await rig.feed(slots[1])
    # Its end: they are given back before the slot that it does not cover.
    await rig.decide(1, 0, 0, [])
    await rig.feed(slots[2])
    await rig.decide(2, 0, 0, [("a", Lot(offering_id=NAME)), ("b", Lot(offering_id=NAME))])
    await rig.feed(slots[3])

    costs = [event for event in rig.published if isinstance(event, CostAccrued)]
    assert {(cost.price_micro_usd, cost.cost_micro_usd) for cost in costs} == {(0, 0)}
    reports = [event for event in rig.published if isinstance(event, CapacityReported)]
    assert reports[-1].holdings == ()
    (use,) = reservations_used([*heard, *slots, *rig.published])
    assert (use.paid_instance_s, use.paid_micro_usd) == (2 * 3 * SLOT_S, 12_000_000)
    assert use.shares == (
        SunkShare(tenant="acme", job_id="a", instance_s=4 * SLOT_S, sunk_micro_usd=8_000_000),
        SunkShare(tenant="acme", job_id="b", instance_s=2 * SLOT_S, sunk_micro_usd=4_000_000),
    )
    assert use.idle_micro_usd == 0
