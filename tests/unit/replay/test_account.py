"""One account of a recorded run: its own figures, rules by themselves, and who is left out."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.contracts.errors import ContractError
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.market.generate import generate
from spotline.replay.account import (
    BY_ITSELF,
    ON_WHAT_WAS_LEFT,
    RECORDED,
    SIMPLE_RULES,
    Account,
    account,
    read_recorded,
    reconciled,
)
from spotline.replay.closed_loop import closed_loop
from spotline.replay.recorded import readable_events
from spotline.replay.report import LeftOut
from spotline.replay.what_if import WhatIf
from tests.samples.stored_runs import STORED, unpack
from tools import goldens

# What was recorded is compared exactly: it is sums of whole micro-USD.
TO_THE_MICRO_USD = 1e-9


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """A demo of three jobs, of which a platform trained one and reported how fast."""
    folder = tmp_path_factory.mktemp("log")
    unpack(STORED / "demo-log.tar.xz", folder)
    return folder


@pytest.fixture(scope="module")
def recorded(log):
    return read_recorded(log)


@pytest.fixture(scope="module")
def made(recorded) -> Account:
    return account(recorded)


def test_the_recorded_figures_are_those_that_the_demo_printed(recorded) -> None:
    demo = goldens.loaded(goldens.FOLDER / "demo.json")["result"]

    said = recorded.report.as_json()

    for name in ("jobs", "completed", "missed_deadlines"):
        assert said[name] == demo[name]
    for name in (
        *("mean_cost_usd", "on_demand_cost_usd", "msu_cost_usd", "saving_percent"),
        "percent_of_clairvoyant",
    ):
        assert said[name] == pytest.approx(demo[name], abs=TO_THE_MICRO_USD)
    for name, numbers in demo["policies"].items():
        assert said["policies"][name] == pytest.approx(numbers, abs=TO_THE_MICRO_USD)


def test_a_job_that_was_measured_is_left_out_by_name_and_takes_its_capacity(made) -> None:
    (out,) = made.left_out

    assert (out.name, out.reason) == ("tune granite-3.1-8b", LeftOut.REPORTED.value)
    assert len(made.counted) == 2
    assert out.job_id not in made.counted
    assert out.job_id in {job.job_id for job in made.jobs}
    assert any("at the rates that its reports showed" in said for said in made.assumptions)


def test_a_measured_job_runs_again_at_the_rates_that_its_reports_showed(made, recorded) -> None:
    (measured,) = [ran for ran in recorded.report.jobs if ran.reestimates]
    (again,) = [job for job in made.jobs if job.job_id == measured.job.job_id]

    last = measured.reestimates[-1]
    assert isinstance(last, ThroughputReestimated)
    count = again.max_instances
    (shown, planned, submitted) = (
        throughputs[0].rate_per_hour(count)
        for throughputs in (again.throughputs, last.throughputs, measured.job.throughputs)
    )
    # The middle of the estimate; what is planned on is its lower end.
    assert shown == pytest.approx(submitted * last.factor_ppm / 1e6, rel=1e-3)
    assert planned < shown


def test_rules_by_themselves_run_all_jobs_together(made, recorded) -> None:
    lives = closed_loop(made.market, made.jobs, SIMPLE_RULES, recorded.options)

    assert made.by_itself == lives
    assert made.cost_micro_usd("msu") == sum(
        life.cost_micro_usd for life in lives["msu"] if life.job_id in made.counted
    )
    assert made.best_simple_rule == "uniform_progress"
    assert made.rules["msu"].percent_of_clairvoyant is None


def test_the_recorded_sum_is_what_the_jobs_closed_at(made, log) -> None:
    events = [found.event for found in readable_events(EventLogReader(log))]
    closed = [event for event in events if isinstance(event, JobClosed)]

    assert made.recorded_micro_usd == sum(
        event.cost_micro_usd for event in closed if event.job_id in made.counted
    )
    assert made.report.spent_by_job == {event.job_id: event.cost_micro_usd for event in closed}


def test_the_accounts_of_a_log_agree_but_for_named_terms(made, log) -> None:
    agreed = reconciled(made, log)

    (left_out,) = agreed.differences
    assert left_out.jobs == tuple(out.job_id for out in made.left_out)
    assert agreed.unexplained_micro_usd == 0


def test_every_job_has_a_row_on_every_basis(made) -> None:
    rows = made.rows()

    by_basis = {
        basis: {(row.job_id, row.policy_id) for row in rows if row.basis == basis}
        for basis in (RECORDED, ON_WHAT_WAS_LEFT, BY_ITSELF)
    }
    assert {key: len(found) for key, found in by_basis.items()} == {
        RECORDED: 3,
        ON_WHAT_WAS_LEFT: 2 * 3,
        BY_ITSELF: 3 * 3,
    }
    counted = [row.cost_micro_usd for row in rows if row.basis == RECORDED and row.counted]
    assert sum(counted) == made.recorded_micro_usd


def test_other_deadlines_are_the_rules_not_what_happened(recorded, made) -> None:
    later = account(recorded, terms=WhatIf(deadline_s=6 * 3600))

    assert later.recorded_micro_usd == made.recorded_micro_usd
    assert later.changed == ("deadlines +6h",)
    assert not later.as_it_was
    assert any("before the last deadline" in said for said in later.assumptions)
    assert later.by_itself != made.by_itself
    assert made.as_it_was


def test_at_twice_all_prices_a_rule_by_itself_pays_twice(recorded, made) -> None:
    twice = WhatIf(spot_factor=Fraction(2), on_demand_factor=Fraction(2))

    dearer = account(recorded, ["on_demand_only"], terms=twice)

    assert dearer.cost_micro_usd("on_demand_only") == 2 * made.cost_micro_usd("on_demand_only")
    assert dearer.recorded_micro_usd == made.recorded_micro_usd


def test_jobs_that_another_market_does_not_cover_are_left_out_by_name(recorded) -> None:
    observed = recorded.observed
    short = generate("mixed", seed=1, slots=16, slot_s=observed.slot_s, start_ns=observed.start_ns)

    made = account(recorded, market=short)

    assert not made.jobs
    assert not made.counted
    assert not made.rules
    assert all(
        "after the market" in out.reason
        for out in made.left_out
        if out.name != "tune granite-3.1-8b"
    )
    assert len(made.left_out) == 3


def test_no_job_is_due_before_it_starts(recorded) -> None:
    with pytest.raises(ContractError, match="--deadline"):
        account(recorded, terms=WhatIf(deadline_s=-30 * 86_400))


def test_cancelled_jobs_cannot_run_again() -> None:
    # No other rule would have changed that its owner took it back.
    assert not LeftOut.CANCELLED.can_run_again
    assert LeftOut.REPORTED.can_run_again
