"""The ruler for fleets: fair crowds, one bound, paired counting."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spotline.application.selector.options import SelectorOptions
from spotline.bench.fleet.cells import COLD, WARM, all_cells, cell_named, default_cells
from spotline.bench.fleet.counting import CrowdCount, Lives, best_rule, count_cell
from spotline.bench.fleet.instance import Crowd, LaidCrowd, bound_of, lay_instance
from spotline.bench.fleet.jobs import CLASSES, TENANTS, fleet_jobs
from spotline.bench.fleet.markets import FleetMarket, fleet_market
from spotline.bench.fleet.policies import EDF, RULES, run_policy
from spotline.bench.fleet.report import write_report
from spotline.bench.fleet.slot_times import time_slots, wide_market
from spotline.bench.fleet.starts import WARM_STARTED, priors_elsewhere, start_of
from spotline.contracts.errors import ContractError
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.market.market import OBSERVED
from spotline.domain.market.prior_laws import shipped_card, shipped_priors
from spotline.domain.units import NS_PER_S, ns_from_rfc3339
from spotline.replay.closed_loop import course_unforecast

NOWHERE = Path("nowhere")
DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))


@pytest.fixture(scope="module")
def source() -> FleetMarket:
    return fleet_market("generated", NOWHERE, 1)


@pytest.fixture(scope="module")
def crowd(source: FleetMarket) -> LaidCrowd:
    return lay_instance(source, Crowd(market="generated", jobs=14, load=1.5, seed=3))


# --- cells ------------------------------------------------------------------------------------


def test_the_default_cells_are_twelve_of_all_and_hold_what_tells_most() -> None:
    cells = default_cells()
    assert len(cells) == 12
    assert set(cells) < set(all_cells())
    assert {cell.market for cell in cells} == {"generated", "nine-zones", "h100"}
    assert {(cell.jobs, cell.load) for cell in cells} == {
        (jobs, load) for jobs in (240, 1000) for load in (0.8, 1.5)
    }
    assert {cell.start for cell in cells} == {"cold", "prior"}


def test_a_cell_is_read_as_it_is_named() -> None:
    for cell in all_cells():
        assert cell_named(cell.name) == cell
    assert cell_named("h100/240/0.8/elsewhere").start == "elsewhere"


def test_priors_from_elsewhere_hold_no_law_of_a_region_of_the_market(source: FleetMarket) -> None:
    first, *others = source.market.offerings
    market = replace(source.market, offerings=(replace(first, region="us-east-2"), *others))

    left = {prior.region for prior in priors_elsewhere(market).laws}

    assert "us-east-2" not in left
    assert left == {prior.region for prior in shipped_priors().laws} - {"us-east-2"}


def test_a_warm_start_knows_the_first_half_and_draws_laws_towards_the_wheel(
    source: FleetMarket,
) -> None:
    short = replace(source, market=source.market.between(0, 120))
    crowd = lay_instance(short, Crowd(market="generated", jobs=4, load=0.8, seed=3))

    cold, warm = (start_of(each, short, crowd, SelectorOptions()) for each in (COLD, WARM))

    assert cold.course.market == crowd.reported
    assert warm.course.market == crowd.whole
    # Without laws of the wheel there is nothing to say in a first slot.
    assert not cold.course.issued[0].laws
    assert warm.course.issued[0].laws
    assert json.loads(warm.options.warm_start)["rounds"] > 0
    assert warm.note == WARM_STARTED


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("h100/60/0.8", "MARKET/N/LOAD/START"),
        ("mars/60/0.8/cold", "MARKET"),
        ("h100/0/0.8/cold", "N must"),
        ("h100/60/nan/cold", "LOAD"),
        ("h100/60/0.8/lukewarm", "START"),
    ],
)
def test_a_wrong_cell_says_which_part_is_wrong(text: str, part: str) -> None:
    with pytest.raises(ContractError, match=part):
        cell_named(text)


def test_absent_data_is_said_plainly() -> None:
    with pytest.raises(ContractError, match="SPOTLINE_DATA"):
        fleet_market("h100", NOWHERE, 1)


@pytest.mark.parametrize(
    ("name", "part", "began"),
    [
        ("h100", "h100_counts", "2025-10-04T00:10:00Z"),
        ("nine-zones", "availability/1-node", "2023-02-15T22:08:16Z"),
    ],
)
def test_nothing_that_is_reported_went_into_the_priors(name: str, part: str, began: str) -> None:
    if not (DATA / "spot-skynomad").is_dir():
        pytest.skip(f"no recorded data in {DATA}; SPOTLINE_DATA says where it is")
    sources = [source for source in shipped_card()["sources"] if part in source["file"]]
    assert sources
    used_s = max(source["slots_used"][1] * source["slot_s"] for source in sources)
    found = fleet_market(name, DATA, 1)
    reported_ns = int(found.market.slot_starts_ns()[found.half])
    assert reported_ns >= ns_from_rfc3339(began) + used_s * NS_PER_S


# --- crowds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.3, 0.8, 1.5])
def test_counts_are_scaled_until_demand_is_the_load(source: FleetMarket, load: float) -> None:
    laid = lay_instance(source, Crowd(market="generated", jobs=240, load=load, seed=1))
    assert laid.load == pytest.approx(load, rel=0.03)
    assert laid.begin == source.half


def test_jobs_live_within_the_reported_half_and_do_not_depend_on_the_load(
    source: FleetMarket, crowd: LaidCrowd
) -> None:
    market = crowd.reported
    end_ns = int(market.slot_starts_ns()[-1]) + market.slot_s * 1_000_000_000
    assert all(market.start_ns <= job.start_ns for job in crowd.jobs)
    assert all(job.deadline.expires_ns <= end_ns for job in crowd.jobs)
    assert {job.deadline.kind for job in crowd.jobs} == {DeadlineKind.HARD, DeadlineKind.SOFT}
    again = fleet_jobs(market, 14, 3)
    assert again == crowd.jobs


def test_some_on_demand_is_short_and_some_overheads_are_longer_than_a_slot(
    source: FleetMarket, crowd: LaidCrowd
) -> None:
    market = crowd.reported
    short = (market.on_demand_provenance == OBSERVED).all(axis=0)
    assert short.sum() == len(source.limited) > 0
    assert (market.on_demand_available[:, short] < 100).all()
    assert any(kind.launch_s > market.slot_s for kind in CLASSES)
    assert any(kind.launch_s < market.slot_s // 2 for kind in CLASSES)


@pytest.mark.slow  # kernels of a whole crowd are compiled
def test_no_policy_earns_more_than_the_bound_and_equal_runs_are_equal(crowd: LaidCrowd) -> None:
    options = SelectorOptions()
    bound = bound_of(crowd, options)
    course = course_unforecast(crowd.reported)
    earned = {}
    for name in ("msu", EDF):
        lives = run_policy(course, crowd.jobs, name, options, 1).lives(crowd.jobs)
        earned[name] = sum(life.utility_micro_usd for life in lives)
    again = run_policy(course, crowd.jobs, EDF, options, 1).lives(crowd.jobs)
    assert again == lives
    assert max(earned.values()) <= bound.upper_micro_usd
    assert max(earned.values()) <= bound.attained_micro_usd <= bound.upper_micro_usd


def test_edf_serves_the_earliest_deadline_whatever_the_slack(crowd: LaidCrowd) -> None:
    course = course_unforecast(crowd.reported)
    run = run_policy(course, crowd.jobs, EDF, SelectorOptions(), 1)
    state = run.state
    deadlines = {job.job_id: job.deadline.at_ns for job in crowd.jobs}
    # Of a state in which all run at once the order is that of their deadlines.
    for job_run in state.runs.values():
        job_run.phase = type(job_run.phase).RUNNING
        job_run.ending = None
    order = state.in_order()
    assert order == sorted(order, key=lambda job_id: (deadlines[job_id], job_id))
    assert len(order) > 2


# --- counting ---------------------------------------------------------------------------------


def _lives(utility: list[float], cost: list[float], missed: list[int] | None = None) -> Lives:
    return Lives(
        utility=np.array(utility),
        cost=np.array(cost),
        late=np.zeros(len(utility)),
        missed=np.array(missed or [0] * len(utility), dtype=np.int64),
    )


def _count(jobs: int, bound_usd: float) -> CrowdCount:
    return CrowdCount(
        start=np.arange(jobs, dtype=np.int64) * 10,
        timeline=np.zeros(jobs, dtype=np.int64),
        tenant=("a", "b") * (jobs // 2),
        bound_usd=bound_usd,
    )


def test_all_rows_have_one_denominator_and_the_gap_runs_from_rule_to_bound() -> None:
    lives = {
        "spotline": _lives([9.0] * 20, [1.0] * 20, [1] + [0] * 19),
        "msu": _lives([8.0] * 20, [2.0] * 20),
        "on_demand_only": _lives([4.0] * 20, [6.0] * 20),
    }
    rows = count_cell(lives, _count(20, 200.0))
    assert best_rule(lives) == "msu"
    assert rows["spotline"]["percent_of_bound"] == pytest.approx(90.0)
    assert rows["spotline"]["gap_closed_percent"] == pytest.approx(50.0)
    assert rows["spotline"]["vs_best_rule_points"] == pytest.approx([10.0, 10.0, 10.0])
    assert rows["spotline"]["misses"] == 1
    assert rows["msu"]["vs_best_rule_points"] == [0.0, 0.0, 0.0]
    assert rows["on_demand_only"]["jain_saving"] is None
    assert rows["msu"]["jain_saving"] == pytest.approx(1.0)


def test_a_slot_says_how_many_ran_in_it_and_how_much_the_allocator_is_sent() -> None:
    timed = time_slots(6, 1)

    assert timed["running_mean"] == 6.0
    # A task alone takes over a hundred bytes.
    assert timed["request_bytes"] > 6 * 100
    assert 0.0 < timed["slot_p50_s"] <= timed["slot_p99_s"]


def test_jobs_of_the_first_slots_are_held_against_the_rule_that_was_best_for_them() -> None:
    # Jobs begin every tenth slot: five of them in the first 48.
    lives = {
        "spotline": _lives([8.0] * 20, [1.0] * 20),
        "msu": _lives([6.0] * 5 + [9.0] * 15, [2.0] * 20),
        "edf": _lives([9.0] * 5 + [2.0] * 15, [2.0] * 20),
    }
    rows = count_cell(lives, _count(20, 200.0))
    assert rows["spotline"]["best_rule"] == "msu"
    assert rows["spotline"]["first_48_points"] == pytest.approx([-10.0, -10.0, -10.0])
    assert rows["edf"]["first_48_points"] == [0.0, 0.0, 0.0]


def test_the_interval_of_the_gap_is_that_of_the_points_over_the_way_left() -> None:
    ahead = [8.0 + index * index % 7 for index in range(20)]
    lives = {"spotline": _lives(ahead, [1.0] * 20), "msu": _lives([8.0] * 20, [2.0] * 20)}
    row = count_cell(lives, _count(20, 200.0))["spotline"]
    low, mean, high = row["gap_closed_interval"]
    assert low < mean < high
    assert mean == pytest.approx(row["gap_closed_percent"])
    # The rule is 20 points of the bound away from it.
    assert [low, mean, high] == pytest.approx([5 * end for end in row["vs_best_rule_points"]])


def test_two_crowds_on_one_market_say_no_more_of_it_than_one() -> None:
    ahead = [8.0 + index * index % 7 for index in range(20)]
    twice = {"spotline": _lives(2 * ahead, [1.0] * 40), "msu": _lives([8.0] * 40, [2.0] * 40)}
    once = {"spotline": _lives(ahead, [1.0] * 20), "msu": _lives([8.0] * 20, [2.0] * 20)}

    def width(lives: dict[str, Lives], timeline: list[int]) -> float:
        starts = np.tile(np.arange(20, dtype=np.int64) * 10, len(timeline) // 20)
        counted = replace(
            _count(len(timeline), 10.0 * len(timeline)),
            start=starts,
            timeline=np.array(timeline, dtype=np.int64),
        )
        low, _, high = count_cell(lives, counted)["spotline"]["vs_best_rule_points"]
        return float(high - low)

    alone = width(once, [0] * 20)
    assert width(twice, [0] * 40) == pytest.approx(alone)
    assert width(twice, [0] * 20 + [1] * 20) < 0.9 * alone


@pytest.mark.parametrize(("bound_usd", "met"), [(80.5, "yes"), (90.0, "no")])
def test_an_aim_is_met_where_hardly_any_gap_is_left(
    tmp_path: Path, bound_usd: float, met: str
) -> None:
    lives = {"spotline": _lives([20.0] * 4, [1.0] * 4), "msu": _lives([20.0] * 4, [1.0] * 4)}
    figures = {
        "command": "spotline bench fleet",
        "cells": {"h100/4/0.8/prior": count_cell(lives, _count(4, bound_usd))},
        "crowds": {},
        "notes": [],
        "meta": {"seeds": [1], "wall_s": 60.0, "platform": "here", "processes": 1},
    }
    text = write_report(figures, tmp_path).read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| h100/4/0.8/prior | msu |"))
    assert row.split(" | ")[7] == met


def test_tenants_are_drawn_and_differ_in_which_jobs_they_have(source: FleetMarket) -> None:
    jobs = fleet_jobs(source.market, 200, 1)
    small = [job.tenant for job in jobs if job.name.startswith("small")]
    gangs = [job.tenant for job in jobs if job.name.startswith("gang")]
    assert set(small) == set(gangs) == set(TENANTS)
    assert small.count("support") > len(small) / 3 > small.count("research")
    assert gangs.count("research") > len(gangs) / 3 > gangs.count("support")


def test_saving_for_one_tenant_alone_is_called_unfair() -> None:
    lives = {
        "spotline": _lives([5.0] * 4, [0.0, 8.0, 0.0, 8.0]),
        "on_demand_only": _lives([4.0] * 4, [8.0] * 4),
    }
    rows = count_cell(lives, _count(4, 40.0))
    assert rows["spotline"]["jain_saving"] == pytest.approx(0.5)


def test_without_a_rule_there_is_nothing_to_be_ahead_of() -> None:
    with pytest.raises(ValueError, match=RULES[0]):
        best_rule({"spotline": _lives([1.0], [1.0])})


def test_a_report_says_where_an_aim_was_missed(tmp_path: Path) -> None:
    rows = count_cell(
        {
            "spotline": _lives([7.0] * 4, [3.0] * 4),
            "msu": _lives([8.0] * 4, [2.0] * 4),
        },
        _count(4, 40.0),
    )
    figures = {
        "command": "spotline bench fleet",
        "cells": {"h100/4/0.8/prior": rows},
        "crowds": {},
        "notes": ["none"],
        "meta": {"seeds": [1], "wall_s": 60.0, "platform": "here", "processes": 1},
    }
    path = write_report(figures, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert {found.name for found in tmp_path.iterdir()} == {
        *("README.md", "bound.png", "gap.png", "ahead.png", "late.png", "jain.png")
    }
    assert "| h100/4/0.8/prior | msu | -10.00 [-10.00, -10.00] |" in text
    aims = text.split("## Crowds")[0].rstrip().splitlines()[-1]
    assert aims.endswith("| no | -10.00 [-10.00, -10.00] | no |")


def test_a_wide_market_has_as_many_offerings_as_are_asked_for() -> None:
    market = wide_market(25, 4)
    assert len({offering.offering_id for offering in market.offerings}) == 25
