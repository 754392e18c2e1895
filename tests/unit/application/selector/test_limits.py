"""Limits of jobs in the selector: stopped for what is to come, never for what is spent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spotline.domain.configuration.provenance import (
    JobConfiguration,
    OriginKind,
    ParameterOrigin,
)
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobUpdated,
)
from spotline.domain.events.limits import LimitAction, LimitReached
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job, OnLimit
from spotline.domain.limits.expected_rate import ENOUGH_REPORTS
from spotline.domain.limits.spending import Spending, SpendLimit
from spotline.domain.market.market import Market
from spotline.domain.units import PPM
from tests.fakes.knowledge import configuration
from tests.fakes.selector import SLOT_S, START_NS, SelectorWorld, job_of, market_of


def priced(market: Market, first: int, factor: int, until: int | None = None) -> Market:
    spot, on_demand = market.spot_price_micro_usd.copy(), market.on_demand_price_micro_usd.copy()
    for prices in (spot, on_demand):
        prices[first:until] *= factor
    return replace(
        market,
        spot_price_micro_usd=np.asarray(spot),
        on_demand_price_micro_usd=np.asarray(on_demand),
    )


def without_spot(market: Market, until: int | None = None) -> Market:
    counts = market.spot_available.copy()
    counts[:until] = 0
    return replace(market, spot_available=np.asarray(counts))


def soft(job: Job, late_slots: int = 10) -> Job:
    at_ns = job.deadline.at_ns
    return replace(
        job,
        deadline=Deadline(
            kind=DeadlineKind.SOFT,
            at_ns=at_ns,
            expires_ns=at_ns + late_slots * SLOT_S * 10**9,
        ),
    )


def ran(job: Job, market: Market, slots: int = 30, **options: object) -> SelectorWorld:
    world = SelectorWorld(job, market=market, limits=True, **options)
    for _ in range(slots):
        world.next_slot()
    return world


def told(world: SelectorWorld) -> list[tuple[str, LimitAction]]:
    return [(event.limit, event.action) for event in world.log if isinstance(event, LimitReached)]


def closed(world: SelectorWorld) -> JobClosed:
    (found,) = (event for event in world.log if isinstance(event, JobClosed))
    return found


def test_quote_and_limit_are_recorded_as_a_job_is_admitted():
    world = ran(job_of(1, value_micro_usd=10**8), market_of(), slots=1)

    (admitted,) = (event for event in world.log if isinstance(event, JobAdmitted))
    assert admitted.on_demand_quote_micro_usd > 0
    assert admitted.limit_micro_usd == 10**8
    off = SelectorWorld(job_of(1))
    off.next_slot()
    (admitted,) = (event for event in off.log if isinstance(event, JobAdmitted))
    assert (admitted.on_demand_quote_micro_usd, admitted.limit_micro_usd) == (0, 0)


def test_a_hard_deadline_that_costs_more_than_it_is_worth_is_stopped_and_says_so():
    market = priced(market_of(), first=3, factor=1000)
    world = ran(job_of(1, slots=14, work_slots=12.0, value_micro_usd=10**8), market)

    assert closed(world).outcome is JobOutcome.STOPPED_BY_LIMIT
    assert closed(world).cost_micro_usd < 10**8
    assert told(world) == [("value still to gain", LimitAction.STOP)]
    assert (world.held["job-1"].spot, world.held["job-1"].on_demand) == (0, 0)


def test_money_that_is_spent_stops_nobody():
    """Two instances run on on-demand from the first slot; half-way that becomes three times as dear.

    What is left costs less than the value in every slot, what is spent and what is left more.
    """
    value = 75_000_000
    job = job_of(1, slots=13, work_slots=12.0, value_micro_usd=value)
    world = ran(job, priced(without_spot(market_of()), first=6, factor=3), slots=6)
    spent = world.run_of(1).spent_micro_usd
    to_come = 7 * 3 * 2 * 3_400_000 * SLOT_S // 3600

    assert spent < value
    assert to_come > value - spent
    for _ in range(10):
        world.next_slot()
    assert closed(world).outcome is JobOutcome.COMPLETED
    assert closed(world).cost_micro_usd > value


def test_spot_that_was_missing_for_a_slot_or_two_is_no_reason_not_to_begin():
    """On demand alone the job costs 20.40 USD, on spot alone 7.35 USD."""
    market = without_spot(market_of(), until=2)
    job = job_of(1, slots=30, value_micro_usd=13_000_000, start_ns=START_NS + SLOT_S * 10**9)
    world = ran(job, market)

    assert told(world) == []
    assert closed(world).outcome is JobOutcome.COMPLETED
    assert closed(world).cost_micro_usd < 13_000_000


def test_spot_that_has_been_missing_for_a_day_is_not_expected_within_hours():
    """It may be there in 32 % of the slots to come, and so for two of the seven before the deadline."""
    market = without_spot(market_of(slots=80))
    job = job_of(1, slots=55, value_micro_usd=13_000_000, start_ns=START_NS + 48 * SLOT_S * 10**9)
    world = ran(job, market, slots=50)

    assert told(world) == [("value still to gain", LimitAction.STOP)]


def predicted(job: Job, *, low: float, high: float, kind: OriginKind = OriginKind.PREDICTED) -> Job:
    """The job with an interval around its rate of instance-hours per hour on two instances."""
    origin = ParameterOrigin(parameter="throughput.*", value="2", kind=kind, low=low, high=high)
    completed = JobConfiguration(
        configuration=configuration(gpus=2, nodes=2),
        weak_scaling=False,
        success_ppm=PPM,
        stack="",
        origins=(origin,),
    )
    return replace(job, configuration=completed)


def test_a_rate_that_is_planned_with_caution_stops_no_job_as_it_arrives():
    """At the planned rate it costs 7.35 USD on spot alone, at the expected one a third of that."""
    job = job_of(1, slots=30, value_micro_usd=5_000_000)
    market = market_of()

    cautious = ran(predicted(job, low=1.0, high=36.0), market, slots=1)
    stated = ran(predicted(job, low=1.0, high=36.0, kind=OriginKind.USER), market, slots=1)

    assert told(cautious) == []
    assert told(stated) == [("value still to gain", LimitAction.STOP)]


def test_progress_that_shows_the_planned_rate_stops_a_job_that_is_not_worth_it():
    job = predicted(job_of(1, slots=30, value_micro_usd=5_000_000), low=1.0, high=36.0)
    world = ran(job, market_of(), slots=1)
    for report in range(ENOUGH_REPORTS):
        world.then(
            JobProgressReported(
                job_id="job-1", tenant="t", done=0.01 * report, ts_event_ns=world.at(60 + report)
            )
        )
    assert told(world) == []
    world.next_slot()

    assert told(world) == [("value still to gain", LimitAction.STOP)]


def test_a_price_a_thousand_times_as_high_stops_a_job_at_the_rate_that_is_expected():
    job = predicted(job_of(1, slots=14, work_slots=12.0, value_micro_usd=10**8), low=1.0, high=36.0)
    world = ran(job, priced(market_of(), first=3, factor=1000))

    assert told(world) == [("value still to gain", LimitAction.STOP)]
    assert closed(world).cost_micro_usd < 10**8


def test_a_hard_deadline_goes_on_beyond_its_limit_while_that_is_worth_it():
    job = job_of(1, slots=14, work_slots=12.0, value_micro_usd=10**9, budget_micro_usd=5_000_000)
    world = ran(job, market_of())

    assert told(world) == [("job budget", LimitAction.FINISH)]
    assert closed(world).outcome is JobOutcome.COMPLETED
    assert closed(world).cost_micro_usd > 5_000_000


def test_a_soft_deadline_winds_down_within_its_limit():
    job = soft(job_of(1, slots=14, work_slots=12.0, budget_micro_usd=5_000_000))
    world = ran(job, market_of())

    assert told(world) == [("job budget", LimitAction.WIND_DOWN)]
    assert closed(world).outcome is JobOutcome.STOPPED_BY_LIMIT
    assert closed(world).cost_micro_usd <= 5_000_000


def test_a_soft_deadline_keeps_what_it_holds_for_its_grace_where_that_is_paid_for():
    job = soft(job_of(1, slots=14, work_slots=12.0, value_micro_usd=40_000_000))
    market = priced(market_of(), first=5, factor=5)
    world = ran(job, market)

    (reached,) = (event for event in world.log if isinstance(event, LimitReached))
    assert reached.action is LimitAction.WIND_DOWN
    assert reached.until_ns == START_NS + (reached.slot * SLOT_S + 600) * 10**9
    assert closed(world).slot == reached.slot
    assert closed(world).cost_micro_usd > reached.spent_micro_usd
    assert closed(world).cost_micro_usd <= 40_000_000


def test_a_grace_that_nobody_can_pay_for_is_none():
    job = soft(job_of(1, slots=14, work_slots=12.0, value_micro_usd=40_000_000))
    world = ran(job, priced(market_of(), first=3, factor=1000))

    (reached,) = (event for event in world.log if isinstance(event, LimitReached))
    assert (reached.action, reached.until_ns) == (LimitAction.WIND_DOWN, 0)
    assert closed(world).cost_micro_usd == reached.spent_micro_usd


def test_a_grace_that_a_limit_on_spending_does_not_allow_is_none():
    job = soft(job_of(1, slots=14, work_slots=12.0, value_micro_usd=40_000_000))
    market = priced(market_of(), first=5, factor=5)
    free = ran(job, market)
    (slot, cost) = next(
        (event.slot, event.slot_cost_micro_usd)
        for event in free.log
        if isinstance(event, JobAdvanced) and event.slot == closed(free).slot
    )
    # The slot is half an hour; what the other half cost is spent already.
    spending = Spending(total=SpendLimit(micro_usd_per_hour=cost))

    world = ran(job, market, spending=spending.to_json())

    (reached,) = (event for event in world.log if isinstance(event, LimitReached))
    assert reached.slot == slot
    assert (reached.action, reached.until_ns) == (LimitAction.WIND_DOWN, 0)
    assert closed(world).cost_micro_usd == reached.spent_micro_usd


def test_one_that_waits_goes_on_once_it_is_worth_it_again():
    job = job_of(1, slots=24, work_slots=6.0, value_micro_usd=10**8, on_limit=OnLimit.WAIT)
    world = ran(job, priced(market_of(), first=2, factor=1000, until=6))

    assert told(world) == [
        ("value still to gain", LimitAction.WAIT),
        ("value still to gain", LimitAction.FINISH),
    ]
    assert closed(world).outcome is JobOutcome.COMPLETED


def test_a_job_that_is_not_worth_it_as_it_arrives_is_not_begun():
    world = ran(job_of(1, value_micro_usd=1_000_000), market_of(), slots=1)

    assert closed(world).outcome is JobOutcome.STOPPED_BY_LIMIT
    assert closed(world).cost_micro_usd == 0
    assert "1.00 USD are still to be gained" in next(
        event.detail for event in world.log if isinstance(event, LimitReached)
    )


def test_an_owner_who_raises_the_value_is_judged_anew():
    job = job_of(1, slots=24, work_slots=6.0, value_micro_usd=10**8, on_limit=OnLimit.WAIT)
    world = SelectorWorld(job, market=priced(market_of(), first=2, factor=1000), limits=True)
    for _ in range(4):
        world.next_slot()
    assert world.run_of(1).is_at_limit

    dear = replace(job, value_micro_usd=10**13)
    world.then(JobUpdated(job_id="job-1", tenant="t", job=dear, ts_event_ns=world.at(10)))
    for _ in range(20):
        world.next_slot()

    assert closed(world).outcome is JobOutcome.COMPLETED
