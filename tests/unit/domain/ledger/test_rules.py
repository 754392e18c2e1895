import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.events.capacity import RefusalClass
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.billing import (
    HeldInterval,
    OfferingPrice,
    Segment,
    SlotPrices,
    bill,
    constant_segments,
    lots_cost_micro_usd,
)
from spotline.domain.ledger.caps import Caps, Usage, excepted_from, fewer, permit, stood_against
from spotline.domain.ledger.intents import (
    HeldInstance,
    RevisionPlan,
    idempotency_token,
    plan_revision,
)
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import cost_micro_usd
from tests.fakes.actuator import SLOT_S, command, lot

PRICES = SlotPrices(
    slot=3,
    slot_s=SLOT_S,
    prices=(
        OfferingPrice(offering_id="a", spot_micro_usd=1_234_567, on_demand_micro_usd=4_000_001),
    ),
)
NOTHING_USED = Usage(job_micro_usd=0, micro_usd_per_hour=0, launches=0)


def interval(start_s, end_s, job_id="j", capacity_type=CapacityType.SPOT):
    return HeldInterval(
        job_id=job_id,
        tenant="acme",
        quota_pool="pool",
        offering_id="a",
        capacity_type=capacity_type,
        start_s=start_s,
        end_s=end_s,
    )


def held(order, job_id="j", capacity_type=CapacityType.SPOT, noticed_slot=-1):
    return HeldInstance(
        instance_id=f"i{order}",
        job_id=job_id,
        tenant="acme",
        quota_pool="pool",
        offering_id="a",
        capacity_type=capacity_type,
        order=order,
        noticed_slot=noticed_slot,
    )


def plan(caps=None, spent=None, offset_s=0, launches_last_minute=0, attempts=None):
    return RevisionPlan(
        slot=3,
        revision=0,
        offset_s=offset_s,
        slot_s=SLOT_S,
        ts_ns=0,
        prices=PRICES.by_offering(),
        caps=caps or Caps(),
        spent_micro_usd=spent or {},
        launches_last_minute=launches_last_minute,
        attempts=attempts or {},
    )


def test_equal_neighbours_are_one_segment_and_the_last_step_of_an_offset_counts():
    steps = [(0, 4), (100, 3), (100, 4), (900, 2), (1800, 0), (2000, 1)]

    segments = constant_segments(steps, 3600)

    assert segments == (
        Segment(start_s=0, held_s=900, instances=4),
        Segment(start_s=900, held_s=900, instances=2),
        Segment(start_s=2000, held_s=1600, instances=1),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, SLOT_S), st.integers(0, SLOT_S), st.sampled_from(CapacityType)),
        max_size=8,
    )
)
def test_a_bill_conserves_instance_seconds_and_equals_the_cost_of_the_reported_lots(drawn):
    intervals = [interval(min(a, b), max(a, b), capacity_type=kind) for a, b, kind in drawn]

    charges = bill(intervals, PRICES)

    billed_s = sum(charge.cost.instances * charge.cost.held_s for charge in charges)
    assert billed_s == sum(one.end_s - one.start_s for one in intervals)
    offsets = sorted({0, *(one.start_s for one in intervals), *(one.end_s for one in intervals)})
    steps = []
    for offset_s in offsets:
        now = [one.capacity_type for one in intervals if one.start_s <= offset_s < one.end_s]
        counts = Lot(
            offering_id="a",
            spot=now.count(CapacityType.SPOT),
            on_demand=now.count(CapacityType.ON_DEMAND),
        )
        steps.append((offset_s, (counts,)))
    expected = lots_cost_micro_usd(steps, PRICES.by_offering(), SLOT_S)
    assert sum(charge.cost.cost_micro_usd for charge in charges) == expected


def test_a_whole_slot_is_billed_by_the_domain_formula():
    charges = bill([interval(0, SLOT_S), interval(0, SLOT_S)], PRICES)

    assert [charge.cost.cost_micro_usd for charge in charges] == [
        cost_micro_usd(1_234_567, 2, SLOT_S)
    ]


def test_a_bill_up_to_a_moment_stops_there():
    charges = bill([interval(0, SLOT_S)], PRICES, until_s=600)

    assert [charge.cost.held_s for charge in charges] == [600]


@pytest.mark.parametrize(
    ("per_job", "launched", "permitted", "against"),
    [
        (None, 2, 5, "cap launches per minute"),
        # Fewer than excepted, and still more than the rate allows.
        (2_000_000, 2, 4, "cap launches per minute"),
        # As few as the rate allows: nothing was excepted.
        (1_000_000, 0, 2, ""),
        (0, 2, 0, ""),
    ],
)
def test_an_exception_that_a_cap_cuts_is_still_said(per_job, launched, permitted, against):
    caps = Caps(launches_per_minute=2, micro_usd_per_job=per_job)
    used = Usage(job_micro_usd=0, micro_usd_per_hour=0, launches=launched)

    found = permit(caps, used, wanted=5, price_micro_usd=1_000_000, rest_s=1800, excepted=5)

    assert (found.instances, stood_against(found.detail)) == (permitted, against)
    under_a_stop = fewer(excepted_from("breaker", 5), found)
    assert under_a_stop.instances == permitted
    assert bool(stood_against(under_a_stop.detail)) is bool(permitted)


@pytest.mark.parametrize(
    ("caps", "permitted", "detail"),
    [
        (Caps(), 5, ""),
        (Caps(launches_per_minute=2), 2, "cap launches per minute"),
        (Caps(micro_usd_per_hour=3_999_999), 3, "cap USD per hour"),
        (Caps(micro_usd_per_job=2_000_000), 4, "cap USD per job"),
        (Caps(micro_usd_per_job=2_000_000, launches_per_minute=0), 0, "cap launches per minute"),
    ],
)
def test_the_tightest_cap_clips_a_launch_and_is_named(caps, permitted, detail):
    permitted_now = permit(caps, NOTHING_USED, wanted=5, price_micro_usd=1_000_000, rest_s=1800)

    assert (permitted_now.instances, permitted_now.detail) == (permitted, detail)


@given(st.integers(0, 100), st.integers(0, 3600))
def test_what_costs_nothing_more_is_bounded_by_the_number_of_launches_alone(wanted, rest_s):
    spent = Usage(job_micro_usd=9, micro_usd_per_hour=9, launches=2)
    caps = Caps(micro_usd_per_job=5, micro_usd_per_hour=5, launches_per_minute=7)

    free = permit(caps, spent, wanted=wanted, price_micro_usd=0, rest_s=rest_s)

    assert free.instances == min(wanted, 5)


def test_a_cap_that_is_exceeded_already_permits_nothing():
    used = Usage(job_micro_usd=10, micro_usd_per_hour=10, launches=10)
    caps = Caps(micro_usd_per_job=5, micro_usd_per_hour=5, launches_per_minute=5)

    assert permit(caps, used, wanted=1, price_micro_usd=1, rest_s=60).instances == 0


def test_a_negative_cap_is_refused():
    with pytest.raises(ValueError, match="launches_per_minute must be >= 0, was -1"):
        Caps(launches_per_minute=-1)


def test_a_token_depends_on_command_attempt_and_payload():
    tokens = {
        idempotency_token(command_id, attempt, payload)
        for command_id in ("c", "d")
        for attempt in (0, 1)
        for payload in ("x", "y")
    }

    assert len(tokens) == 8
    assert idempotency_token("c", 0, "x") in tokens


def test_released_are_the_noticed_first_and_then_the_latest_launched():
    instances = [held(1), held(2, noticed_slot=3), held(3), held(4, noticed_slot=2)]

    (intent,) = plan_revision(plan(), [command("j", lot(spot=2), 3)], instances)

    assert intent.release == ("i2", "i4")
    assert intent.launches == ()


def test_a_swap_of_spot_for_on_demand_releases_and_launches_in_one_intent():
    (intent,) = plan_revision(plan(), [command("j", lot(on_demand=2), 3)], [held(1), held(2)])

    (launch,) = intent.launches
    assert intent.release == ("i2", "i1")
    assert (launch.capacity_type, launch.permitted) == (CapacityType.ON_DEMAND, 2)


def test_a_refused_command_tries_again_under_another_token():
    first = plan_revision(plan(), [command("j", lot(spot=1), 3)], [])
    second = plan_revision(plan(attempts={"j-a-3-0": 1}), [command("j", lot(spot=1), 3)], [])

    assert (first[0].attempt, second[0].attempt) == (0, 1)
    assert first[0].launches[0].token != second[0].launches[0].token


def test_what_is_released_makes_room_under_the_hourly_cap():
    caps = Caps(micro_usd_per_hour=2 * 1_234_567)
    commands = [command("new", lot(spot=2), 3), command("old", lot(), 3)]

    new, old = plan_revision(plan(caps), commands, [held(1, "old"), held(2, "old")])

    assert (new.launches[0].permitted, len(old.release)) == (2, 2)


def test_a_job_that_would_pass_its_cap_by_keeping_its_instances_is_dropped_whole():
    caps = Caps(micro_usd_per_job=2_000_000)
    instances = [held(1), held(2), held(3, "other")]

    (intent,) = plan_revision(plan(caps), [], instances)

    assert (intent.dropped, intent.job_id, set(intent.release)) == (True, "j", {"i1", "i2"})


def test_an_unquoted_launch_says_why():
    (unquoted,) = plan_revision(plan(), [command("j", lot(spot=1, offering_id="b"), 3)], [])

    assert unquoted.launches[0].detail == "the offering is not quoted"


@pytest.mark.parametrize(
    "caps",
    [Caps(launches_per_minute=0), Caps(micro_usd_per_hour=0), Caps(micro_usd_per_job=0)],
)
def test_a_refusal_by_a_cap_says_that_it_is_ours(caps: Caps) -> None:
    usage = Usage(job_micro_usd=0, micro_usd_per_hour=0, launches=0)

    refused = permit(caps, usage, wanted=1, price_micro_usd=1_000_000, rest_s=600)

    assert refused.instances == 0
    assert refused.refusal_class is RefusalClass.LIMIT
