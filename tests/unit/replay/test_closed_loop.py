"""Rules that run all jobs by themselves: as the simulation with contention does, and no other way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.replay.closed_loop import LoopOptions, closed_loop
from spotline.replay.clouds import Information
from spotline.replay.jobs import generated_jobs
from spotline.replay.simulate import SimulationOptions, simulate
from spotline.replay.summary import SPOTLINE
from tests.fakes.recorded_run import small_market

QUICK = SelectorOptions(rehearsals=0, moves=False)
OPTIONS = LoopOptions(forecaster="persistence", selector=QUICK)
RULES = ("on_demand_only", "msu")
MARKET = small_market(slots=48)
JOBS = generated_jobs(MARKET, 4, 5)


@pytest.fixture(scope="module")
def alone():
    return closed_loop(MARKET, JOBS, RULES, OPTIONS)


def test_rules_that_look_at_no_forecast_fare_the_same_with_one(alone) -> None:
    report = simulate(
        MARKET,
        JOBS,
        RULES,
        forecaster="persistence",
        options=SimulationOptions(contention=True, selector=QUICK),
    )

    assert alone == report.lives


def test_beside_spotline_a_rule_fares_as_without_it(alone) -> None:
    both = closed_loop(MARKET, JOBS, ("msu", SPOTLINE), OPTIONS)

    assert both["msu"] == alone["msu"]
    assert len(both[SPOTLINE]) == len(JOBS)


def test_jobs_of_one_rule_take_capacity_from_each_other() -> None:
    # Four of one job at once: what one could have alone does not suffice for all.
    many = [replace(JOBS[0], job_id=f"{JOBS[0].job_id[:-1]}{n}") for n in range(4)]

    together = closed_loop(MARKET, many, ["msu"], OPTIONS)["msu"]
    one = closed_loop(MARKET, many[:1], ["msu"], OPTIONS)["msu"]

    assert sum(life.cost_micro_usd for life in together) > 4 * one[0].cost_micro_usd


def test_where_counts_are_hidden_what_is_there_is_found_by_asking() -> None:
    hidden = replace(
        OPTIONS, information=Information.CENSORED, selector=where_uncounted(QUICK), seed=1
    )

    found = closed_loop(MARKET, JOBS, ("on_demand_only", SPOTLINE), hidden)

    spent = {name: sum(life.cost_micro_usd for life in lives) for name, lives in found.items()}
    assert spent[SPOTLINE] < spent["on_demand_only"]


def test_no_jobs_cost_nothing() -> None:
    assert closed_loop(MARKET, (), RULES, OPTIONS) == {"on_demand_only": (), "msu": ()}
