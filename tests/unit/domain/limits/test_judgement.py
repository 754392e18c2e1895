"""Forward judgement: laws of what is still to come, and the limit of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.jobs.job import DeadlineKind, OnLimit, Throughput
from spotline.domain.jobs.program import Holding, compile_program
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.limits.actions import LimitAction
from spotline.domain.limits.judgement import (
    Conditions,
    action_at_limit,
    action_where_not_worth_it,
    budget_near_limit_micro_usd,
    limit_micro_usd,
    planned_budget_micro_usd,
    prospect,
)
from spotline.domain.units import PPM, cost_micro_usd
from tests.fakes.selector import SLOT_S, START_NS, job_of

JOB = job_of(1, slots=24, work_slots=10.0)
SOFT = replace(
    JOB,
    deadline=replace(
        JOB.deadline,
        kind=DeadlineKind.SOFT,
        expires_ns=JOB.deadline.at_ns + 12 * SLOT_S * 10**9,
    ),
)
PRICES = st.integers(1, 10**10)


def program_of(job):
    return compile_program(
        job,
        Throughput(offering="*", alpha=1.0),
        slot_s=SLOT_S,
        first_slot_start_ns=START_NS,
        notice_lead_s=120,
    )


HARD_PROGRAM, SOFT_PROGRAM = program_of(JOB), program_of(SOFT)


def conditions(spot: int, on_demand: int, share_ppm: int = PPM // 2, overhead_s: int = 0):
    return Conditions(
        spot_price=spot,
        on_demand_price=on_demand,
        spot_share_ppm=lambda _: share_ppm,
        overhead_s=overhead_s,
    )


@given(
    st.sampled_from([HARD_PROGRAM, SOFT_PROGRAM]),
    st.integers(0, 1000),
    st.integers(0, 40),
    PRICES,
    PRICES,
    st.integers(0, PPM),
)
def test_it_costs_no_more_than_on_demand_for_all_of_the_rest(
    program, done, elapsed, spot, on_demand, share
):
    state = JobProgress(progress_quanta=program.work_quanta * done // 1000)
    found = prospect(program, state, elapsed, conditions(spot, on_demand, share))
    only = prospect(program, state, elapsed, conditions(on_demand, on_demand, share))

    assert found.cost_to_come_micro_usd >= 0
    assert found.gain_micro_usd >= only.gain_micro_usd
    assert 0 <= found.value_to_gain_micro_usd <= JOB.value_micro_usd


@given(st.integers(0, 1000), st.integers(0, 20), PRICES, PRICES, st.integers(2, 10_000))
def test_dearer_never_leaves_more(done, elapsed, spot, on_demand, factor):
    state = JobProgress(progress_quanta=HARD_PROGRAM.work_quanta * done // 1000)

    cheap = prospect(HARD_PROGRAM, state, elapsed, conditions(spot, on_demand))
    dear = prospect(HARD_PROGRAM, state, elapsed, conditions(spot * factor, on_demand * factor))

    assert dear.gain_micro_usd <= cheap.gain_micro_usd


@given(st.integers(0, 999), st.integers(0, 20), PRICES, PRICES)
def test_work_that_is_done_leaves_no_less_of_a_hard_deadlines_value(done, elapsed, spot, on_demand):
    quanta = HARD_PROGRAM.work_quanta
    less = JobProgress(progress_quanta=quanta * done // 1000)
    more = JobProgress(progress_quanta=quanta * (done + 1) // 1000)
    at = conditions(spot, on_demand)

    before = prospect(HARD_PROGRAM, less, elapsed, at)
    after = prospect(HARD_PROGRAM, more, elapsed, at)

    assert after.gain_micro_usd >= before.gain_micro_usd


@given(st.integers(0, 30), PRICES, PRICES)
def test_done_work_costs_nothing_more(elapsed, spot, on_demand):
    state = JobProgress(progress_quanta=HARD_PROGRAM.work_quanta, holding=Holding(on_demand=2))

    found = prospect(HARD_PROGRAM, state, elapsed, conditions(spot, on_demand))

    assert found.cost_to_come_micro_usd == 0
    assert found.is_worth_it


@given(st.integers(1, 10**10), PRICES)
def test_a_job_that_is_worth_its_on_demand_price_is_stopped_by_no_spot_price(on_demand, spot):
    slots = HARD_PROGRAM.slots_on_demand(HARD_PROGRAM.work_quanta, 0)
    worth = slots * cost_micro_usd(on_demand, HARD_PROGRAM.max_instances, SLOT_S)
    program = program_of(replace(JOB, value_micro_usd=worth))

    assert prospect(program, JobProgress(), 0, conditions(spot, on_demand)).is_worth_it


def test_the_default_limit_is_the_value_or_one_and_a_half_times_the_quote():
    job = replace(JOB, value_micro_usd=100)

    assert limit_micro_usd(job, 10) == 100
    assert limit_micro_usd(job, 101) == 152
    assert limit_micro_usd(replace(job, budget_micro_usd=7), 101) == 7


@pytest.mark.parametrize(
    ("job", "choice", "at_limit", "not_worth_it"),
    [
        (JOB, None, LimitAction.FINISH, LimitAction.STOP),
        (SOFT, None, LimitAction.WIND_DOWN, LimitAction.WIND_DOWN),
        (SOFT, OnLimit.FINISH, LimitAction.FINISH, LimitAction.STOP),
        (JOB, OnLimit.WAIT, LimitAction.WAIT, LimitAction.WAIT),
        (SOFT, OnLimit.STOP, LimitAction.STOP, LimitAction.STOP),
    ],
)
def test_what_follows_is_the_owners_choice_or_that_of_the_deadline(
    job, choice, at_limit, not_worth_it
):
    chosen = replace(job, on_limit=choice)

    assert action_at_limit(chosen) is at_limit
    assert action_where_not_worth_it(chosen) is not_worth_it


def test_only_a_job_near_its_limit_is_planned_with_it():
    soft = replace(SOFT, budget_micro_usd=1000)

    assert planned_budget_micro_usd(soft) == 0
    assert planned_budget_micro_usd(replace(soft, on_limit=OnLimit.WAIT)) == 1000
    assert budget_near_limit_micro_usd(soft, 1000, 100, 100) is None
    # A twentieth is kept for the grace.
    assert budget_near_limit_micro_usd(soft, 1000, 800, 100) == 950
    assert budget_near_limit_micro_usd(JOB, 1000, 5000, 100) is None
