"""What is used of limits on money: the same as adding up every bill of a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.operations.messages import SpendUse
from spotline.application.operations.spending import SpendingState, limits_in_force, room_again_s
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome
from spotline.domain.events.limits import LimitAction, LimitReached
from spotline.domain.jobs.lot import Lot
from spotline.domain.limits.spending import DEFAULT_SPENDING, SPANS_S, Spending, SpendLimit
from spotline.domain.market.offering import CapacityType
from tests.fakes.allocator import EAST, slot_opened
from tests.fakes.ledgers import cost

REACHED = LimitReached(
    job_id="j",
    tenant="a",
    slot=3,
    limit="job budget",
    action=LimitAction.FINISH,
    spent_micro_usd=7,
    cost_to_come_micro_usd=1,
    value_to_gain_micro_usd=2,
)
ENDED = JobClosed(
    job_id="j",
    tenant="a",
    slot=4,
    outcome=JobOutcome.COMPLETED,
    policy_id="msu",
    cost_micro_usd=8,
    value_micro_usd=9,
    progress_ppm=1_000_000,
)


def slot(number: int, slot_s: int):
    return replace(slot_opened(number), slot=number, slot_s=slot_s)


def uses(state: SpendingState, spending: Spending = DEFAULT_SPENDING):
    options = SelectorOptions(limits=True, spending=spending.to_json())
    found = limits_in_force(state, options, None, {})
    return {
        (use.what, use.tenant, use.span): (use.used_micro_usd, use.limit_micro_usd)
        for use in found.uses
    }


BILLS = st.lists(
    st.tuples(
        st.integers(0, 2000),
        st.sampled_from(["a", "b"]),
        st.sampled_from(CapacityType),
        st.integers(0, 10**9),
    ),
    max_size=40,
)


@given(BILLS, st.sampled_from([300, 600, 1800, 3600, 86_400]))
def test_what_is_used_is_the_sum_of_the_bills_of_the_time(bills, slot_s):
    state = SpendingState()
    bills = sorted(bills, key=lambda bill: bill[0])
    for number, tenant, kind, micro_usd in bills:
        state.fold(slot(number, slot_s))
        state.fold(cost(micro_usd, slot=number, tenant=tenant, capacity_type=kind))
    now = bills[-1][0] if bills else 0

    shown = uses(state)

    for span, span_s in SPANS_S.items():
        within = [bill for bill in bills if (now - bill[0]) * slot_s < span_s]
        if not bills:
            continue
        assert shown["total", "", span][0] == sum(bill[3] for bill in within)
        spot = sum(bill[3] for bill in within if bill[2] is CapacityType.SPOT)
        assert shown["spot", "", span][0] == spot
        for tenant in ("a", "b"):
            of_tenant = sum(bill[3] for bill in within if bill[1] == tenant)
            assert shown.get(("tenant", tenant, span), (0, None))[0] == of_tenant


def test_short_slots_are_kept_together_and_old_ones_let_go():
    state = SpendingState()
    for number in range(0, 40 * 86_400, 3600):
        state.fold(slot(number, 1))
        state.fold(cost(1, slot=number))
    # Thirty days of hours, and the one in whose five minutes they begin.
    assert len(state.spend.billed) == 30 * 24 + 1


def test_limits_stand_beside_what_is_used_of_them():
    state = SpendingState()
    state.fold(slot(0, 1800))
    state.fold(cost(30, tenant="a", capacity_type=CapacityType.SPOT))
    spending = Spending(
        total=SpendLimit(micro_usd_per_day=100),
        on_demand=SpendLimit(micro_usd_per_hour=40),
        every_tenant=SpendLimit(micro_usd_per_month=60),
        tenants={"b": SpendLimit(micro_usd_per_hour=5)},
    )

    shown = uses(state, spending)

    assert shown["total", "", "day"] == (30, 100)
    assert shown["total", "", "hour"] == (30, None)
    assert shown["on-demand", "", "hour"] == (0, 40)
    assert shown["tenant", "a", "month"] == (30, 60)
    assert shown["tenant", "b", "hour"] == (0, 5)
    assert shown["tenant", "b", "month"] == (0, None)
    assert shown["every other tenant", "", "month"] == (0, 60)


def test_what_is_used_is_what_the_limit_is_held_against():
    """The least that is left by any limit on a tenant's spot is the least that is shown of them."""
    state = SpendingState()
    spending = Spending(
        total=SpendLimit(micro_usd_per_day=1000),
        spot=SpendLimit(micro_usd_per_hour=500),
        every_tenant=SpendLimit(micro_usd_per_month=700),
    )
    for number in range(60):
        state.fold(slot(number, 1800))
        state.fold(cost(7, slot=number, tenant="a", capacity_type=CapacityType.SPOT))

    spent = {span_s: state.spent_in(span_s) for span_s in spending.spans_s}
    left, _ = spending.left(spent, "a", CapacityType.SPOT)

    shown = uses(state, spending)
    of_spot = [
        most - used
        for (what, tenant, _), (used, most) in shown.items()
        if most is not None and (what in ("total", "spot") or tenant == "a")
    ]
    assert left == min(of_spot) == 700 - 60 * 7


def advanced(micro_usd: int, number: int = 0) -> JobAdvanced:
    return JobAdvanced(
        job_id="j",
        tenant="a",
        slot=number,
        lots=(Lot(offering_id=EAST, spot=2, on_demand=1),),
        progress_ppm=0,
        slot_cost_micro_usd=micro_usd,
        cost_micro_usd=micro_usd,
    )


def reported(number: int) -> CapacityReported:
    return CapacityReported(slot=number, revision=0, offset_s=0, settled=True, holdings=())


def day_of(state: SpendingState, what: str) -> tuple[int, int]:
    options = SelectorOptions(limits=True, spending=DEFAULT_SPENDING.to_json())
    (use,) = (
        use
        for use in limits_in_force(state, options, None, {}).uses
        if (use.what, use.span) == (what, "day")
    )
    return use.used_micro_usd, use.unsettled_micro_usd


def test_what_is_not_billed_yet_is_shown_as_not_settled():
    state = SpendingState()
    opened = slot(0, 1800)
    state.fold(opened)
    state.fold(replace(opened, slot=1))
    prices = {sq.quote.offering_id: sq.quote for sq in opened.quotes}[EAST]
    on_spot = 2 * prices.spot_price_micro_usd
    on_demand = prices.on_demand_price_micro_usd
    whole = on_spot + on_demand

    state.fold(advanced(whole))
    assert day_of(state, "total") == (whole, whole)
    assert day_of(state, "spot") == (on_spot, on_spot)

    state.fold(cost(on_spot, tenant="a", capacity_type=CapacityType.SPOT))
    assert day_of(state, "total") == (whole, on_demand)
    # The bill is the truth, though it is another sum.
    state.fold(cost(on_demand - 5, tenant="a", capacity_type=CapacityType.ON_DEMAND))
    assert day_of(state, "total") == (whole, 5)

    state.fold(reported(1))
    assert day_of(state, "total") == (whole - 5, 0)
    assert day_of(state, "on-demand") == (on_demand - 5, 0)


def test_limits_that_are_not_stated_are_known_for_the_default_ones():
    def stated(spending: Spending) -> tuple[str, ...]:
        options = SelectorOptions(limits=True, spending=spending.to_json())
        return limits_in_force(SpendingState(), options, None, {}).stated

    assert stated(DEFAULT_SPENDING) == ()
    assert stated(replace(DEFAULT_SPENDING, quotas={"a": 1}, micro_usd_per_job=5)) == (
        "quotas",
        "micro_usd_per_job",
    )


@pytest.mark.parametrize(
    ("after", "known"),
    [
        ((), True),
        ((replace(REACHED, limit="value still to gain"),), False),
        ((replace(REACHED, limit="value still to gain", action=LimitAction.WAIT),), True),
        ((ENDED,), False),
    ],
    ids=["at its limit", "worth it again", "waits", "over"],
)
def test_a_job_is_at_a_limit_until_it_is_over_or_worth_it_again(after, known):
    state = SpendingState()
    for event in (REACHED, *after):
        state.fold(event)

    jobs = limits_in_force(state, SelectorOptions(), None, {}).jobs
    assert [said.job_id for said in jobs] == (["j"] if known else [])


@given(BILLS, st.integers(1, 3 * 10**9))
def test_a_limit_has_room_again_when_enough_was_spent_long_enough_ago(bills, most):
    state, slot_s = SpendingState(), 1800
    bills = sorted(bills, key=lambda bill: bill[0])
    for number, tenant, kind, micro_usd in bills:
        state.fold(slot(number, slot_s))
        state.fold(cost(micro_usd, slot=number, tenant=tenant, capacity_type=kind))
    if not bills:
        return
    used = sum(state.spent_in(86_400).values())
    use = SpendUse(what="total", span="day", used_micro_usd=used, limit_micro_usd=most)

    wait_s = room_again_s(state, use)

    now = bills[-1][0]
    later = now + wait_s // slot_s
    within = sum(cost for at, _, _, cost in bills if (later - at) * slot_s < 86_400)
    before = sum(cost for at, _, _, cost in bills if (later - 1 - at) * slot_s < 86_400)
    assert within < most
    assert wait_s == 0 or before >= most


def test_a_limit_without_a_time_says_nothing_of_when_it_has_room():
    assert room_again_s(SpendingState(), SpendUse(what="total", span="day")) is None
