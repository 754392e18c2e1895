"""What reservations cost that nobody used: of a savings plan once, however many offerings share it."""

from dataclasses import replace

from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.ledger.sunk import reservations_used
from spotline.domain.market.offering import CapacityType, Reservation
from spotline.domain.market.reservations import reserved_offering, reserved_quote
from spotline.domain.market.slot_quote import SlotQuote
from tests.fakes.recorded_run import small_market

MARKET = small_market(slots=2)
SLOT_S = MARKET.slot_s


def plan(price: int, instances: int = 2) -> Reservation:
    return Reservation(
        instances=instances,
        sunk_price_micro_usd=price,
        plan="sp",
        plan_micro_usd_per_hour=9_000_000,
    )


PLANNED = tuple(
    reserved_offering(base, "sp", plan(price))
    for base, price in zip(MARKET.offerings, (4_000_000, 3_000_000), strict=False)
)


def log(*costs):
    events = [
        MarketOpened(
            offerings=PLANNED, slot_s=SLOT_S, first_slot_start_ns=MARKET.start_ns, source=""
        )
    ]
    for slot in range(2):
        opens_ns = MARKET.start_ns + slot * SLOT_S * 10**9
        quotes = tuple(
            SlotQuote(quote=reserved_quote(one, opens_ns, SLOT_S), age_s=0) for one in PLANNED
        )
        events.append(
            SlotOpened(
                slot=slot, ts_event_ns=opens_ns, slot_s=SLOT_S, quotes=quotes, last=slot == 1
            )
        )
        events += [cost for cost in costs if cost.slot == slot]
        events.append(
            CapacityReported(slot=slot, revision=0, offset_s=0, holdings=(), settled=True)
        )
    return events


def used(slot: int, offering: int, instances: int) -> CostAccrued:
    return CostAccrued(
        job_id="a",
        tenant="t",
        quota_pool="",
        slot=slot,
        offering_id=PLANNED[offering].offering_id,
        capacity_type=CapacityType.ON_DEMAND,
        instances=instances,
        held_s=SLOT_S,
        price_micro_usd=0,
        cost_micro_usd=0,
    )


def test_a_plan_that_nobody_uses_is_sunk_once():
    uses = reservations_used(log())

    hours = 2 * SLOT_S / 3600
    assert sum(use.idle_micro_usd for use in uses) == 9_000_000 * hours
    assert sum(use.paid_micro_usd for use in uses) == 9_000_000 * hours


def test_what_is_left_of_a_plan_is_what_none_of_its_offerings_used():
    uses = reservations_used(log(used(0, 0, 1), used(1, 1, 2)))

    of_slot = SLOT_S / 3600
    assert [sum(share.sunk_micro_usd for share in use.shares) for use in uses] == [
        4_000_000 * of_slot,
        6_000_000 * of_slot,
    ]
    assert sum(use.idle_micro_usd for use in uses) == (2 * 9_000_000 - 10_000_000) * of_slot


def test_a_reservation_of_its_own_is_paid_for_beside_it():
    alone = replace(
        PLANNED[0],
        offering_id="alone",
        reservation=Reservation(instances=1, sunk_price_micro_usd=5_000_000),
    )
    events = log()
    opened = replace(events[0], offerings=(*PLANNED, alone))
    quote = SlotQuote(quote=reserved_quote(alone, MARKET.start_ns, SLOT_S), age_s=0)
    first = replace(events[1], quotes=(*events[1].quotes, quote))

    uses = {use.offering_id: use for use in reservations_used([opened, first, *events[2:]])}

    assert uses["alone"].paid_micro_usd == 5_000_000 * SLOT_S / 3600
    assert uses["alone"].plan == ""
