"""One job in given futures: never late, never more than time allows, and as a replay has it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.assessment.assess import assess, calendar_of
from spotline.application.assessment.assumptions import Assumptions
from spotline.application.assessment.availability import (
    AGES,
    AssumedSpot,
    chains_of,
    planning_law,
    run_state_of,
    spot_paths,
)
from spotline.application.assessment.living import (
    plain_lives,
    planned_lives,
    program_of_gang,
    tables_for,
)
from spotline.application.assessment.standing_in import assessable, grid_of
from spotline.domain.jobs.program import JobProgram
from spotline.domain.policies.msu import MaximalSpotUtilisation
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.replay import SlotRecord, replay_policy
from spotline.domain.policies.sdp import SDP
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import build_table
from spotline.domain.units import PPM
from tests.fakes.rebuilt_bills import BEGIN_S, rebuilt_bill, rebuilt_job

SINGLE = AssumedSpot("cloud single", 1)
STATED = Assumptions(futures=10)


@cache
def one_job(slack_ppm, hours=6.0, begin_s=BEGIN_S):
    bill = rebuilt_bill([rebuilt_job(hours=hours, begin_s=begin_s)], days=2)
    calendar = calendar_of(bill, STATED)
    job = assessable(bill, calendar, STATED).lived[0]
    ((_, table),) = tables_for([job], slack_ppm, STATED)
    return job, table, calendar


def path_of(flips, cells):
    """A path that changes at these cells."""
    there = np.zeros(cells, dtype=np.int64)
    for cell in flips:
        there[cell:] += 1
    return (there % 2 == 1)[None, :]


@pytest.mark.parametrize("slack_ppm", [1_000_000, 1_200_000, 2_000_000])
@given(flips=st.sets(st.integers(0, 40), max_size=20))
@settings(max_examples=25, deadline=None)
def test_no_course_of_spot_makes_a_job_late_or_dearer_than_its_time(slack_ppm, flips):
    job, table, calendar = one_job(slack_ppm)
    lives = planned_lives(job, table, path_of(flips, calendar.cells), calendar)

    assert lives.on_time.all()
    assert 0.0 < lives.ratio[0] <= slack_ppm / PPM
    if slack_ppm == PPM:
        assert lives.ratio[0] == 1.0


def test_spot_that_stays_costs_its_price_from_the_first_second_on():
    job, table, calendar = one_job(2_000_000)
    always = np.ones((1, calendar.cells), dtype=np.bool_)
    price = int(job.prices.ratio_ppm[0]) / PPM

    assert planned_lives(job, table, always, calendar).ratio[0] == pytest.approx(price, rel=1e-3)
    plain = plain_lives(job, always, calendar, STATED)
    assert plain.ratio[0] == pytest.approx(price, rel=1e-3)
    assert plain.took[0] == pytest.approx(1.0)


def test_plain_recovery_waits_pays_for_every_start_and_loses_work():
    job, _, calendar = one_job(1_000_000)
    # Gone for two cells, there for two (an hour), gone for one, then there.
    plain = plain_lives(job, path_of((2, 4, 5), calendar.cells), calendar, STATED)
    price, work_s = int(job.prices.ratio_ppm[0]) / PPM, job.grid.work_s

    held_s = 3600 - STATED.launch_s - STATED.lost_s
    again_s = work_s - held_s
    assert plain.ratio[0] == pytest.approx(price * (3600 + again_s) / work_s, rel=1e-6)
    assert plain.took[0] == pytest.approx((5 * 1800 + again_s) / work_s, rel=1e-6)


def test_plain_recovery_begins_in_the_middle_of_a_cell():
    job, _, calendar = one_job(1_000_000, begin_s=BEGIN_S + 600)
    plain = plain_lives(job, path_of((0,), calendar.cells), calendar, STATED)
    late = plain_lives(job, path_of((1,), calendar.cells), calendar, STATED)

    assert plain.took[0] == pytest.approx(1.0)
    assert late.took[0] == pytest.approx(1.0 + 1200 / job.grid.work_s)


def test_plain_recovery_without_spot_is_never_done_and_charged_on_demand():
    job, _, calendar = one_job(1_000_000)
    plain = plain_lives(job, np.zeros((1, calendar.cells), dtype=np.bool_), calendar, STATED)

    assert plain.took[0] == np.inf
    assert plain.ratio[0] == pytest.approx(1.0)


@pytest.mark.parametrize("work_s", [60, 600, 5_000, 14_400, 72_000, 100_000, 1_000_000, 60_000_000])
def test_work_is_planned_in_whole_slots_near_its_length(work_s):
    grid = grid_of(work_s)

    assert grid.work_s == pytest.approx(max(work_s, 600), rel=0.06)
    assert grid.slots % 10 == 0
    assert grid.slots <= 1440
    assert grid.slot_s <= 1800 or work_s > 30 * 86_400
    program = program_of_gang(grid, 1_200_000, STATED)
    assert program.deadline_slots == grid.slots * 12 // 10
    assert program.work_quanta + program.launch_s == grid.work_s


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_scaled_chains_have_spot_for_that_share_of_time(share):
    matrices = chains_of(SINGLE).scaled(share)
    there = spot_paths(np.repeat(matrices, 30, axis=0), 800, "share")

    assert there.mean() == pytest.approx(share, abs=0.06)
    assert np.allclose(matrices.sum(axis=2), 1.0)


def test_run_states_are_of_what_a_job_sees_in_half_hours():
    there = np.array([[True, True, True, False, False, True]])

    assert run_state_of(there, 1800).tolist() == [[AGES, AGES, AGES + 1, 0, 0, AGES]]
    assert run_state_of(there, 900).tolist() == [[AGES, AGES, AGES, 0, 0, AGES]]


# --- against a replay that shares neither market nor slots -----------------------------------


def true_market(seed, slots):
    """Half hours of spot under one prior law after the other, walked as plainly as can be."""
    rng = np.random.default_rng(seed)
    chains = chains_of(SINGLE)
    matrix = chains.matrices[seed % len(chains.names)]
    state, there = 0, []
    for _ in range(400 + slots):
        state = int(rng.choice(len(matrix), p=matrix[state]))
        there.append(state >= AGES)
    return there[400:]


def true_cost(there, hours, slack, price_ppm):
    """What replaying the job in slots of half an hour costs, over that on demand."""
    slots, launch_s = round(2 * hours), STATED.launch_s
    deadline = round(slack * slots)
    program = JobProgram(
        slot_s=1800,
        work_quanta=slots * 1800 - launch_s,
        rate_quanta_per_s=(0, 1),
        allowed_counts=(1,),
        launch_s=launch_s,
        grow_s=launch_s,
        shrink_s=0,
        interrupted_s=launch_s,
        lost_s=STATED.lost_s,
        deadline_slots=deadline,
        end_slots=deadline,
        hard=True,
        value_micro_usd=(4 * 1_000_000 * 1800 * deadline,) * (deadline + 1),
    )
    law = planning_law(SINGLE, 1800, price_ppm)
    table = _table(
        TableTerms(
            program=program, law=law, on_demand_price=3_600_000_000, on_demand_available=UNCOUNTED
        )
    )
    states = run_state_of(np.array([there[:deadline]]), 1800)[0]
    records = [
        SlotRecord(
            spot_price=price_ppm * 3600,
            on_demand_price=3_600_000_000,
            spot_available=int(up),
            on_demand_available=UNCOUNTED,
            forecast=None,
            run_state=int(state),
        )
        for up, state in zip(there[:deadline], states, strict=True)
    ]
    lived = replay_policy(program, records, SDP, MaximalSpotUtilisation(), table)
    assert lived.on_time
    return lived.cost_micro_usd / (1_000_000 * slots * 1800)


_table = cache(build_table)


@pytest.mark.slow
def test_totals_on_markets_of_the_prior_are_what_replays_of_them_cost():
    hours, slack, count = 20.0, 1.5, 12
    stated = replace(STATED, futures=198, slacks_ppm=(round(slack * PPM),))
    gap_s = 7 * 86_400
    jobs = [rebuilt_job(f"job-{n}", hours=hours, begin_s=BEGIN_S + n * gap_s) for n in range(count)]
    told = assess(rebuilt_bill(jobs, days=7 * count), stated)
    line = told.answers[0].spotline
    price_ppm = int(told.jobs[0].assessed.prices.ratio_ppm[0])
    each = told.on_demand_micro / count

    totals = []
    for seed in range(180):
        there = true_market(seed, count * gap_s // 1800)
        starts = range(0, len(there), gap_s // 1800)
        totals.append(sum(true_cost(there[s:], hours, slack, price_ppm) for s in starts) * each)

    held = np.mean([line.p10_micro <= total <= line.p90_micro for total in totals])
    assert 0.72 <= held <= 0.88
    assert np.mean(totals) == pytest.approx(line.mean_micro, rel=0.03)
