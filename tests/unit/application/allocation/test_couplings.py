"""Bids cleared under quotas and a budget of all jobs: against every way to clear them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.clearing import slot_bids
from spotline.application.allocation.messages import AllocateRequest, JobTask, PoolQuota
from spotline.domain.crowd.bids import Bid, Capacity, resources_of, takes_of
from spotline.domain.crowd.program import allowed_options, served_in_order
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import cost_micro_usd
from tests.depth import examples
from tests.fakes.allocator import EAST, SLOT_S, START_NS, WEST, job, offering, slot_opened

POOL = "pool"
SPOT_PRICE, ON_DEMAND_PRICE = 3_000_000, 10_000_000


def task(name: str, at: str = EAST, *, policy: str = "msu", **more: Any) -> JobTask:
    return JobTask(
        job=job(name),
        policy_id=policy,
        offering_id=at,
        instance_type=offering(at).instance_type,
        first_slot_start_ns=START_NS,
        progress_quanta=0,
        interrupted=False,
        pending_overhead_s=0,
        spent_micro_usd=0,
        memory=(),
        spot_firm=True,
        **{"elapsed_slots": 0, "holding": Lot(offering_id=at), **more},
    )


def asked(*tasks: JobTask, spot: int = 4, **limits: Any) -> AllocateRequest:
    return AllocateRequest(
        slot=0,
        revision=0,
        offset_s=0,
        slot_s=SLOT_S,
        quotes=slot_opened(0, spot=spot).quotes,
        forecast=None,
        reason=DecisionReason.POLICY,
        tasks=tasks,
        clearing=True,
        **limits,
    )


def quota(instances: int, *offering_ids: str) -> PoolQuota:
    return PoolQuota(
        quota_pool=POOL, instances=instances, offering_ids=offering_ids or (EAST, WEST)
    )


def held(request: AllocateRequest) -> list[int]:
    return [holding_of(answer.lots).instances for answer in allocate(request).answers]


def cost(request: AllocateRequest) -> int:
    lots = [lot for answer in allocate(request).answers for lot in answer.lots]
    return sum(
        cost_micro_usd(SPOT_PRICE, lot.spot, SLOT_S)
        + cost_micro_usd(ON_DEMAND_PRICE, lot.on_demand, SLOT_S)
        for lot in lots
    )


def fits(bids: Sequence[Bid], way: Sequence[int], capacity: Capacity) -> bool:
    left = resources_of(capacity)
    for bid, at in zip(bids, way, strict=True):
        for key, amount in takes_of(bid.options[at], capacity).items():
            left[key] -= amount
    return min(left.values(), default=0) >= 0


def worth(bids: Sequence[Bid], way: Sequence[int]) -> int:
    return sum(bid.options[at].value_micro_usd for bid, at in zip(bids, way, strict=True))


def test_limits_that_bind_nothing_change_nothing() -> None:
    tasks = (task("one"), task("other", WEST), task("third"))

    free = allocate(asked(*tasks))

    assert allocate(asked(*tasks, quotas=(quota(1000),), budget_micro_usd=10**12)) == free


def test_jobs_of_several_offerings_share_a_quota_pool() -> None:
    tasks = (task("one"), task("other", WEST), task("third"))
    wanted = sum(held(asked(*tasks)))

    given_out = held(asked(*tasks, quotas=(quota(5),)))

    assert wanted > 5
    assert 0 < sum(given_out) <= 5
    # A pool of one offering leaves the other alone.
    at_east = asked(*tasks, quotas=(quota(2, EAST),))
    assert held(at_east)[1] == held(asked(*tasks))[1]
    assert held(at_east)[0] + held(at_east)[2] <= 2


def test_all_together_cost_no_more_than_the_budget() -> None:
    tasks = (task("one"), task("other", WEST), task("third"))
    free = cost(asked(*tasks))

    assert free > 0
    for budget in (0, free // 3, free // 2, free - 1):
        assert cost(asked(*tasks, budget_micro_usd=budget)) <= budget
    assert cost(asked(*tasks, budget_micro_usd=free)) == free


def test_what_is_held_already_is_given_up_where_a_limit_leaves_nothing() -> None:
    keeps = task(
        "one",
        policy="on_demand_only",
        holding=Lot(offering_id=EAST, on_demand=2),
        on_demand_reserve_slots=2,
        elapsed_slots=1,
    )

    (answer,) = allocate(asked(keeps, budget_micro_usd=0)).answers

    assert answer.lots == ()
    assert answer.reason is DecisionReason.BUDGET


def test_a_quota_does_not_refuse_the_on_demand_that_a_deadline_needs() -> None:
    late = task("late", policy="on_demand_only")
    free = asked(late, task("other"))
    bound = replace(free, quotas=(quota(0),))
    excepted = replace(late, excepted_on_demand=late.job.max_instances)

    refused, freed = held(bound), held(replace(bound, tasks=(excepted, *bound.tasks[1:])))

    assert refused == [0, 0]
    assert freed == [held(free)[0], 0]
    assert freed[0] > 0


def test_a_pool_that_is_negative_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="instances of pool must be >= 0"):
        quota(-1)
    with pytest.raises(ValueError, match="budget_micro_usd must be >= 0"):
        asked(budget_micro_usd=-1)


@st.composite
def requests(draw: st.DrawFn) -> AllocateRequest:
    policies = st.sampled_from(("msu", "on_demand_only", "uniform_progress"))
    tasks = []
    for index in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from((EAST, WEST)))
        before = Lot(
            offering_id=at, spot=draw(st.integers(0, 2)), on_demand=draw(st.integers(0, 2))
        )
        tasks.append(
            task(
                f"j{index}",
                at,
                policy=draw(policies),
                holding=before,
                elapsed_slots=draw(st.integers(0, 4)),
                excepted_on_demand=draw(st.integers(0, 4)),
                on_demand_reserve_slots=draw(st.integers(0, 2)),
            )
        )
    pools = draw(st.sampled_from(((), (EAST,), (EAST, WEST))))
    return asked(
        *tasks,
        spot=draw(st.integers(0, 6)),
        quotas=(quota(draw(st.integers(0, 8)), *pools),) if pools else (),
        budget_micro_usd=draw(st.none() | st.integers(0, 20_000_000)),
    )


@settings(max_examples=examples(60), deadline=None)
@given(requests())
def test_what_is_cleared_is_the_best_of_all_that_limits_allow(request: AllocateRequest) -> None:
    slot = slot_bids(request)
    bids, capacity = slot.bids, slot.capacity

    answers = allocate(request).answers

    pools = {name: pool.quota_pool for pool in request.quotas for name in pool.offering_ids}
    limits = replace(
        capacity,
        quota_pools=pools,
        quotas={pool.quota_pool: pool.instances for pool in request.quotas},
        budget_micro_usd=request.budget_micro_usd,
    )
    chosen = []
    for bid, answer in zip(bids, answers, strict=True):
        got = holding_of(answer.lots)
        same = [
            at
            for at, option in enumerate(bid.options)
            if (option.spot, option.on_demand) == (got.spot, got.on_demand)
        ]
        values = [option.value_micro_usd for option in bid.options]
        chosen.append(max(same, key=values.__getitem__))
    bounded = capacity.quotas or capacity.budget_micro_usd is not None
    if bounded:
        assert capacity == limits
    allowed = allowed_options(bids, served_in_order(bids, capacity))
    best = max(worth(bids, way) for way in itertools.product(*allowed) if fits(bids, way, capacity))
    assert fits(bids, chosen, capacity)
    assert worth(bids, chosen) == best
    spent = sum(
        cost_micro_usd(SPOT_PRICE, lot.spot, SLOT_S)
        + cost_micro_usd(ON_DEMAND_PRICE, lot.on_demand, SLOT_S)
        for answer in answers
        for lot in answer.lots
    )
    assert request.budget_micro_usd is None or spent <= request.budget_micro_usd
    for pool in request.quotas:
        counted = sum(
            max(0, lot.spot + lot.on_demand - min(lot.on_demand, each.excepted_on_demand))
            for each, answer in zip(request.tasks, answers, strict=True)
            for lot in answer.lots
            if lot.offering_id in pool.offering_ids
        )
        assert counted <= pool.instances
