"""Limits on spending in the selector: what is spent in a time never passes them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.selector.freezing import NO_EXEMPTION
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.spending import within_limits
from spotline.application.selector.state import SlotPhase
from spotline.domain.events.capacity import CostAccrued, ProvisioningCommanded
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome
from spotline.domain.events.limits import LimitAction, LimitKind, LimitReached, LimitSet
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.jobs.program import Holding
from spotline.domain.limits.spending import Spending, SpendLimit
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move
from spotline.domain.policies.interface import START
from spotline.domain.units import NS_PER_S
from tests.depth import examples
from tests.fakes.selector import SLOT_S, SelectorWorld, job_of, market_of

SPANS = {"hour": 3600, "day": 86_400}


def limits(**micro_usd: int) -> SpendLimit:
    return SpendLimit(**{f"micro_usd_per_{name}": most for name, most in micro_usd.items()})


def world_of(spending: Spending, jobs: int = 3, seed: int = 2) -> SelectorWorld:
    made = []
    for number in range(1, jobs + 1):
        job = job_of(number, slots=16, work_slots=5.0)
        made.append(replace(job, tenant="ab"[number % 2]))
    return SelectorWorld(
        *made, market=market_of(30, seed=seed), limits=True, spending=spending.to_json()
    )


def spent_by_slot(world: SelectorWorld) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for event in world.log:
        if isinstance(event, JobAdvanced):
            key = event.slot, event.tenant
            found[key] = found.get(key, 0) + event.slot_cost_micro_usd
    return found


def most_in(world: SelectorWorld, span_s: int, tenant: str = "") -> int:
    """The most that was spent in any so long a time."""
    by_slot = spent_by_slot(world)
    slots = max(1, span_s // SLOT_S)
    return max(
        sum(
            cost
            for (slot, whose), cost in by_slot.items()
            if last - slots < slot <= last and tenant in ("", whose)
        )
        for last in range(30)
    )


@settings(max_examples=examples(30), deadline=None)
@given(
    total=st.integers(0, 12_000_000),
    tenant=st.integers(0, 8_000_000),
    day=st.integers(0, 40_000_000),
    seed=st.integers(0, 20),
)
def test_no_more_is_spent_in_any_hour_or_day_than_may_be(total, tenant, day, seed):
    world = world_of(
        Spending(
            total=limits(hour=total, day=day),
            every_tenant=limits(hour=tenant),
            tenants={"b": limits(hour=tenant // 2)},
        ),
        seed=seed,
    )

    for _ in range(18):
        world.next_slot()

    assert most_in(world, SPANS["hour"]) <= total
    assert most_in(world, SPANS["day"]) <= day
    assert most_in(world, SPANS["hour"], "a") <= tenant
    assert most_in(world, SPANS["hour"], "b") <= tenant // 2


def bill(world: SelectorWorld, micro_usd: int, tenant: str, job_id: str = "job-1") -> CostAccrued:
    """What the actuator bills for the slot before the open one."""
    return CostAccrued(
        job_id=job_id,
        tenant=tenant,
        offering_id="cloud:east-1a:a100-1x",
        quota_pool="cloud:east-1",
        capacity_type=CapacityType.SPOT,
        slot=world.slot - 1,
        instances=2,
        held_s=SLOT_S,
        price_micro_usd=1,
        cost_micro_usd=micro_usd,
    )


def test_bills_are_what_limits_are_held_against_once_they_are_in():
    world = world_of(Spending(total=limits(day=10**12)), jobs=1)
    for _ in range(2):
        world.next_slot()
    opened = world.open()
    reckoned = sum(e.slot_cost_micro_usd for e in opened if isinstance(e, JobAdvanced))

    def spent() -> int:
        return sum(world.state.spent_in((SLOT_S * 2,))[SLOT_S * 2].values())

    assert spent() == reckoned > 0
    # A job of the platform's, and a pipeline of a tenant that has no job here.
    for event in (bill(world, reckoned - 3, "b"), bill(world, 40, "c", "pipeline-1")):
        world.feed(event)
    assert spent() == reckoned + 40

    world.grant(world.decide())

    assert spent() == reckoned - 3 + 40


def test_what_others_of_a_tenant_were_billed_is_not_spent_again():
    world = world_of(Spending(every_tenant=limits(day=10**9)), jobs=1)
    for _ in range(2):
        world.next_slot()
    assert world.held["job-1"].spot or world.held["job-1"].on_demand

    world.open()
    world.feed(bill(world, 10**9, "b", "pipeline-1"))
    world.grant(world.decide())

    assert world.held["job-1"] == Lot(offering_id=world.run_of(1).offering_id)


@pytest.mark.parametrize("span", ["hour", "day", "month"])
@pytest.mark.parametrize("kind", ["spot", "on_demand"])
def test_spot_and_on_demand_have_limits_of_their_own(kind, span):
    world = world_of(Spending(**{kind: limits(**{span: 0})}), jobs=1)

    for _ in range(16):
        world.next_slot()

    advanced = [event for event in world.log if isinstance(event, JobAdvanced)]
    held = {
        "spot": any(lot.spot for event in advanced for lot in event.lots),
        "on_demand": any(lot.on_demand for event in advanced for lot in event.lots),
    }
    assert held.pop(kind) is False
    assert held.popitem()[1] is True


def test_an_owner_is_told_once_which_limit_leaves_a_job_nothing():
    world = world_of(Spending(every_tenant=limits(day=0)), jobs=1)

    for _ in range(6):
        world.next_slot()

    told = [event for event in world.log if isinstance(event, LimitReached)]
    assert [(event.action, event.limit) for event in told] == [
        (LimitAction.WAIT, "tenant USD per day")
    ]


def test_spot_that_is_not_cheap_enough_is_not_bought():
    world = world_of(Spending(least_spot_discount_ppm=999_999))

    for _ in range(18):
        world.next_slot()

    advanced = [event for event in world.log if isinstance(event, JobAdvanced)]
    assert not any(lot.spot for event in advanced for lot in event.lots)


@settings(max_examples=examples(30), deadline=None)
@given(most=st.integers(0, 6), jobs=st.integers(1, 4), seed=st.integers(0, 20))
def test_no_more_of_a_quota_pool_is_held_than_may_be_but_on_demand_for_a_deadline(most, jobs, seed):
    world = world_of(Spending(quotas={"cloud:east-1": most}), jobs=jobs, seed=seed)
    pools = {each.offering_id: each.quota_pool for each in world.market.offerings}
    before: dict[str, Lot] = {}

    for _ in range(18):
        commands = [
            event for event in world.next_slot() if isinstance(event, ProvisioningCommanded)
        ]
        excepted = {event.job_id for event in commands if event.excepted_on_demand}
        # What is kept of on-demand was excepted when it was bought.
        excepted |= {job_id for job_id, lot in before.items() if lot.on_demand}
        held = {
            job_id: lot
            for job_id, lot in world.held.items()
            if pools[lot.offering_id] == "cloud:east-1"
        }
        assert sum(lot.spot for lot in held.values()) <= most
        beyond = sum(lot.spot + lot.on_demand for lot in held.values()) - most
        assert beyond <= sum(lot.on_demand for job_id, lot in held.items() if job_id in excepted)
        before = dict(world.held)


@settings(max_examples=examples(20), deadline=None)
@given(most=st.integers(0, 1), deadline=st.integers(8, 12), seed=st.integers(0, 20))
def test_no_quota_loses_a_hard_deadline(most, deadline, seed):
    quotas = {"cloud:east-1": most, "neocloud:neo-1": most}
    world = SelectorWorld(
        job_of(1, slots=deadline, work_slots=5.0),
        market=market_of(30, seed=seed),
        limits=True,
        spending=Spending(quotas=quotas).to_json(),
    )

    for _ in range(deadline + 1):
        world.next_slot()

    (closed,) = [event for event in world.log if isinstance(event, JobClosed)]
    assert closed.outcome is JobOutcome.COMPLETED
    assert closed.cost_micro_usd <= world.run_of(1).on_demand_quote_micro_usd


def test_a_quota_yields_to_no_soft_deadline():
    job = job_of(1, slots=10, work_slots=5.0)
    later_ns = job.deadline.at_ns + SLOT_S * NS_PER_S
    deadline = replace(job.deadline, kind=DeadlineKind.SOFT, expires_ns=later_ns)
    soft = replace(job, deadline=deadline)
    quotas = {"cloud:east-1": 0, "neocloud:neo-1": 0}
    world = SelectorWorld(soft, limits=True, spending=Spending(quotas=quotas).to_json())

    for _ in range(11):
        world.next_slot()

    assert world.held == {}


def test_an_owner_is_told_of_a_quota_that_leaves_a_job_nothing():
    pools = {"cloud:east-1": 0, "neocloud:neo-1": 0}
    # Far from its deadline: it needs no on-demand yet.
    world = world_of(Spending(quotas=pools), jobs=1)

    for _ in range(6):
        world.next_slot()

    (told,) = [event for event in world.log if isinstance(event, LimitReached)]
    assert told.action is LimitAction.WAIT
    assert told.limit in {f"quota of {pool}" for pool in pools}


def test_limits_that_are_far_change_no_decision():
    spending = Spending(
        total=limits(day=10**12), quotas={"cloud:east-1": 1000, "neocloud:neo-1": 1000}
    )
    far, none = world_of(spending), world_of(Spending())
    for world in (far, none):
        for _ in range(18):
            world.next_slot()

    assert far.log == none.log


HOME, OTHER = "cloud:east-1a:a100-1x", "neocloud:neo-1:a100-1x"
COPY = 140_000


def moved_under(spending: Spending, spot: int = 2) -> tuple[SelectorWorld, JobAnswer]:
    """What is made of a job's move from home, under limits that its first slots have not reached."""
    world = world_of(Spending(quotas={"cloud:east-1": 2}), jobs=1)
    for _ in range(2):
        world.next_slot()
    world.open()
    run = world.run_of(1)
    assert run.offering_id == HOME
    moved = JobAnswer(
        job_id="job-1",
        policy_id=run.policy_id,
        lots=(Lot(offering_id=OTHER, spot=spot),),
        memory=START,
        reason=DecisionReason.POLICY,
        move=Move(from_offering_id=HOME, overhead_s=90, cost_micro_usd=COPY),
    )
    options = replace(world.handler._options, spending=spending.to_json())
    granted = within_limits(world.state, [moved], options)
    (answer,) = granted.answers
    assert bool(granted.cut) is (answer != moved)
    return world, answer


def test_a_move_that_limits_leave_nothing_of_is_none_copies_nothing_and_keeps_what_is_held():
    world, answer = moved_under(Spending(quotas={"neocloud:neo-1": 0}))

    assert (answer.lots, answer.move) == ((world.held["job-1"],), None)
    assert answer.reason is DecisionReason.BUDGET


def test_a_move_is_none_where_what_is_held_may_not_be_kept_either():
    _, answer = moved_under(Spending(quotas={"neocloud:neo-1": 0, "cloud:east-1": 0}))

    assert (answer.lots, answer.move) == ((), None)


@pytest.mark.parametrize("limit", ["micro_usd_per_job", "on_demand"])
def test_the_copy_of_a_move_counts_like_what_it_launches(limit):
    world, _ = moved_under(Spending())
    run = world.run_of(1)
    assert run.spent_micro_usd > 0

    def under(left: int) -> JobAnswer:
        if limit == "micro_usd_per_job":
            return moved_under(Spending(micro_usd_per_job=run.spent_micro_usd + left))[1]
        return moved_under(Spending(on_demand=limits(hour=left)))[1]

    assert under(10**9).move is not None
    answer = under(COPY - 1)
    assert answer.move is None
    assert all(each.offering_id == HOME for each in answer.lots)


@settings(max_examples=examples(20), deadline=None)
@given(most=st.integers(0, 12_000_000), seed=st.integers(0, 20))
def test_no_job_costs_more_than_each_may(most, seed):
    world = world_of(Spending(micro_usd_per_job=most), seed=seed)

    for _ in range(18):
        world.next_slot()

    for run in world.state.runs.values():
        assert run.spent_micro_usd <= most


def test_an_owner_is_told_that_a_job_may_cost_no_more():
    world = world_of(Spending(micro_usd_per_job=0), jobs=1)

    for _ in range(4):
        world.next_slot()

    (told,) = [event for event in world.log if isinstance(event, LimitReached)]
    assert (told.action, told.limit) == (LimitAction.WAIT, "USD per job")


def granted(held: Lot, wanted: Lot, *, per_minute: int, slot: int = 1) -> Lot:
    """What a job of up to 4 instances that holds `held` gets of what was answered."""
    spending = Spending(launches_per_minute=per_minute).to_json()
    world = SelectorWorld(
        job_of(1, slots=8, work_slots=6.0, allowed_counts=(1, 2, 4)), limits=True, spending=spending
    )
    for _ in range(slot):
        world.next_slot()
    world.open()
    run = world.run_of(1)
    offering_id = run.offering_id
    run.held_lots = (replace(held, offering_id=offering_id),)
    answer = JobAnswer(
        job_id=run.job.job_id,
        policy_id=run.policy_id,
        lots=(replace(wanted, offering_id=offering_id),),
        memory=(),
        reason=DecisionReason.POLICY,
    )
    options = SelectorOptions(rehearsals=0, limits=True, spending=spending)
    (found,) = within_limits(world.state, [answer], options).answers
    (lot,) = found.lots
    return replace(lot, offering_id="")


@lru_cache(maxsize=1)
def late_world() -> SelectorWorld:
    """A job that needs 4 instances from the open slot on: 19 of 20 instance-slots are left."""
    job = job_of(1, slots=8, work_slots=9.5, allowed_counts=(1, 2, 4))
    world = SelectorWorld(job, limits=True)
    for _ in range(4):
        world.open()
        world.state.phase = SlotPhase.SETTLED
    return world


COUNTS = st.integers(0, 4)


@given(
    held=st.tuples(COUNTS, COUNTS),
    wanted=st.tuples(COUNTS, COUNTS).filter(lambda lot: sum(lot) in (1, 2, 4)),
    most=st.integers(0, 6),
)
def test_what_is_granted_of_a_quota_is_what_the_actuator_launches(held, wanted, most):
    world = late_world()
    run = world.run_of(1)
    home = run.offering_id
    run.held_lots = (Lot(offering_id=home, spot=held[0], on_demand=held[1]),) if any(held) else ()
    run.state = replace(run.state, holding=Holding(spot=held[0], on_demand=held[1]))
    pool = world.state.offerings[home].quota_pool
    options = replace(world.handler._options, spending=Spending(quotas={pool: most}).to_json())
    answer = JobAnswer(
        job_id="job-1",
        policy_id=run.policy_id,
        lots=(Lot(offering_id=home, spot=wanted[0], on_demand=wanted[1]),),
        memory=(),
        reason=DecisionReason.POLICY,
    )

    found = within_limits(world.state, [answer], options)

    (cut,) = found.answers
    assert holding_of(cut.lots).instances <= sum(wanted)
    got = holding_of(cut.lots)
    kept = min(held[0], got.spot) + min(held[1], got.on_demand)
    new_spot, new_on_demand = max(0, got.spot - held[0]), max(0, got.on_demand - held[1])
    exempt = found.excepted.get("job-1", NO_EXEMPTION).instances
    # As `plan_revision` counts: what is kept, then spot, then on-demand.
    assert not new_spot or kept + new_spot <= most
    assert new_on_demand <= max(0, most - kept - new_spot, exempt)
    if sum(wanted) == 4:
        # All four are needed now, and on-demand is not bounded by the quota.
        assert got.instances == 4


def lot(spot: int = 0, on_demand: int = 0) -> Lot:
    return Lot(offering_id="", spot=spot, on_demand=on_demand)


def test_what_is_held_is_kept_where_the_rate_cuts_what_it_is_changed_for():
    assert granted(lot(on_demand=4), lot(spot=4), per_minute=2) == lot(on_demand=4)
    assert granted(lot(on_demand=2), lot(spot=4), per_minute=2) == lot(on_demand=2)


def test_of_what_is_new_as_much_is_launched_as_the_rate_allows():
    assert granted(lot(spot=1), lot(spot=4), per_minute=1) == lot(spot=2)
    assert granted(lot(on_demand=4), lot(spot=4), per_minute=4) == lot(spot=4)
    assert granted(lot(on_demand=4), lot(on_demand=1), per_minute=0) == lot(on_demand=1)


# --- limits that are set while it runs ------------------------------------------------------------


def raised(spending: Spending, most: int) -> LimitSet:
    stated = spending.total.micro_usd_per_hour
    return LimitSet(
        kind=LimitKind.TOTAL,
        span_s=3600,
        stated=stated,
        most=most,
        before=stated,
        by="ada",
        reason="the end of the month",
    )


def test_a_limit_that_was_raised_is_held_to_from_the_next_slot_on():
    spending = Spending(total=limits(hour=0))
    shut, opened = world_of(spending), world_of(spending)
    for world in (shut, opened):
        for _ in range(3):
            world.next_slot()
    opened.feed(raised(spending, 9_000_000))
    for world in (shut, opened):
        for _ in range(4):
            world.next_slot()

    assert most_in(shut, 3600) == 0
    assert 0 < most_in(opened, 3600) <= 9_000_000


def test_a_limit_that_was_set_against_other_settings_changes_nothing():
    spending = Spending(total=limits(hour=2_000_000))
    much, nothing = world_of(spending), world_of(spending)
    for world, most in ((much, 99_000_000), (nothing, 0)):
        world.feed(raised(Spending(total=limits(hour=1)), most))
        for _ in range(6):
            world.next_slot()

    assert much.log == nothing.log
    assert 0 < most_in(much, 3600) <= 2_000_000
