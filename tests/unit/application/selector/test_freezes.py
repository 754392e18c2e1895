"""Stops of buying in the selector: nothing new is bought, nothing held is let go, deadlines are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.domain.events.capacity import ProvisioningCommanded
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.jobs.lot import Lot
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.market.market import Market
from spotline.domain.market.offering import CapacityType
from tests.fakes.selector import SelectorWorld, job_of, market_of

BREAKER = Freeze(
    freeze_id="another breaker",
    scope=FreezeScope.SYSTEM,
    key="",
    reason=FreezeReason.BREAKER,
    detail="x",
)


def scopes(world: SelectorWorld) -> dict[FreezeScope, str]:
    offering = world.market.offerings[0]
    home = world.run_of(1).offering_id if world.state.runs.get("job-1") else offering.offering_id
    return {
        FreezeScope.SYSTEM: "",
        FreezeScope.ACCOUNT: f"{offering.provider}/{offering.account}",
        FreezeScope.OFFERING: home,
        FreezeScope.TENANT: "t",
        FreezeScope.JOB: "job-1",
    }


def without_spot(market: Market, first: int = 0) -> Market:
    available = market.spot_available.copy()
    available[first:] = 0
    return replace(market, spot_available=np.asarray(available))


def paused(scope: FreezeScope, key: str) -> BuyingFrozen:
    return BuyingFrozen(
        freeze=Freeze(
            freeze_id=f"pause:{scope.value}:{key}",
            scope=scope,
            key=key,
            reason=FreezeReason.PAUSED,
            detail="",
        )
    )


def holding(world: SelectorWorld, job_id: str = "job-1") -> tuple[int, int]:
    lot = world.held.get(job_id)
    return (0, 0) if lot is None else (lot.spot, lot.on_demand)


@pytest.mark.parametrize("scope", list(FreezeScope))
def test_nothing_is_bought_for_a_job_that_a_pause_covers(scope: FreezeScope) -> None:
    world = SelectorWorld(job_of(1, slots=10, work_slots=6.0), limits=True)
    world.open()
    world.feed(paused(scope, scopes(world)[scope]))

    decided = world.decide()
    world.grant(decided)
    world.next_slot()

    assert holding(world) == (0, 0)


def test_a_pause_of_another_job_stops_nothing() -> None:
    world = SelectorWorld(job_of(1, slots=7, work_slots=6.0), limits=True)
    world.feed(paused(FreezeScope.JOB, "job-2"))

    world.next_slot()

    assert sum(holding(world)) > 0


def test_what_is_held_is_kept_through_a_pause_and_buying_goes_on_after_it() -> None:
    world = SelectorWorld(job_of(1, slots=14, work_slots=12.0, allowed_counts=(2,)), limits=True)
    world.next_slot()
    before = holding(world)
    assert sum(before) == 2

    world.feed(paused(FreezeScope.TENANT, "t"))
    commands = [
        event
        for _ in range(3)
        for event in world.next_slot()
        if isinstance(event, ProvisioningCommanded)
    ]
    assert all(
        event.target.spot <= before[0] and event.target.on_demand <= before[1] for event in commands
    )

    world.held.pop("job-1", None)
    world.feed(BuyingUnfrozen(freeze_id="pause:tenant:t"))
    for _ in range(2):
        world.next_slot()
    assert sum(holding(world)) == 2


def test_a_freeze_of_spot_alone_leaves_on_demand() -> None:
    freeze = replace(BREAKER, reason=FreezeReason.PAUSED, capacity_type=CapacityType.SPOT)
    world = SelectorWorld(job_of(1, slots=7, work_slots=6.0), limits=True)
    world.feed(BuyingFrozen(freeze=freeze))

    for _ in range(8):
        decided = world.next_slot()
        assert all(
            event.target.spot == 0 for event in decided if isinstance(event, ProvisioningCommanded)
        )

    closed = [event for event in world.log if isinstance(event, JobClosed)]
    assert [event.outcome for event in closed] == [JobOutcome.COMPLETED]


def test_a_hard_deadline_buys_on_demand_against_a_breaker_and_within_its_quote() -> None:
    world = SelectorWorld(job_of(1, slots=10, work_slots=6.0), limits=True)
    world.feed(BuyingFrozen(freeze=BREAKER))

    for _ in range(11):
        world.next_slot()

    commands = [event for event in world.log if isinstance(event, ProvisioningCommanded)]
    bought = [event for event in commands if event.target.on_demand]
    assert bought
    assert all(event.target.spot == 0 for event in commands)
    assert all(event.excepted_on_demand > 0 for event in bought)
    closed = [event for event in world.log if isinstance(event, JobClosed)]
    assert [event.outcome for event in closed] == [JobOutcome.COMPLETED]
    quote = world.run_of(1).on_demand_quote_micro_usd
    assert 0 < closed[0].cost_micro_usd <= quote


def test_a_hard_deadline_does_not_buy_against_a_pause() -> None:
    world = SelectorWorld(job_of(1, slots=10, work_slots=6.0), limits=True)
    world.feed(paused(FreezeScope.SYSTEM, ""))

    for _ in range(11):
        world.next_slot()

    assert not [event for event in world.log if isinstance(event, ProvisioningCommanded)]


def test_no_more_is_bought_than_the_quote_pays_for() -> None:
    market = market_of()
    dear = market.on_demand_price_micro_usd.copy()
    dear[1:] *= 1000
    market = replace(without_spot(market), on_demand_price_micro_usd=dear)
    job = job_of(1, slots=10, work_slots=6.0, value_micro_usd=10**15)
    world = SelectorWorld(job, market=market, limits=True)
    world.feed(BuyingFrozen(freeze=BREAKER))

    for _ in range(11):
        world.next_slot()

    closed = [event for event in world.log if isinstance(event, JobClosed)]
    assert [event.outcome for event in closed] == [JobOutcome.MISSED_DEADLINE]
    assert closed[0].cost_micro_usd <= world.run_of(1).on_demand_quote_micro_usd


def test_a_soft_deadline_is_no_exception() -> None:
    job = job_of(1, slots=10, work_slots=6.0)
    end_ns = job.deadline.at_ns
    soft = replace(
        job,
        deadline=replace(
            job.deadline,
            kind=type(job.deadline.kind).SOFT,
            at_ns=end_ns - 3 * 1800 * 10**9,
            expires_ns=end_ns,
        ),
    )
    world = SelectorWorld(soft, limits=True)
    world.feed(BuyingFrozen(freeze=BREAKER))

    for _ in range(11):
        world.next_slot()

    commands = [event for event in world.log if isinstance(event, ProvisioningCommanded)]
    assert [event.target for event in commands if event.target != Lot(offering_id="")] == []
