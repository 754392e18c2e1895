"""The commands on a market with a reservation: what it saves, and who used it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from spotline.adapters.market.parquet import write_market
from spotline.cli import replay as replay_command
from spotline.cli import simulate as simulate_command
from spotline.contracts.build import event_of
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.ledger.sunk import reservations_used
from spotline.domain.market.offering import CapacityType
from spotline.replay.handlers import selector_options
from spotline.replay.jobs import generated_jobs
from spotline.replay.report import ON_DEMAND, report_run
from tests.fakes.recorded_run import manifest_of, small_market, write_log
from tests.fakes.reserved import SETTINGS, entries_of_run, with_one

FILE = """
reservations:
  - {offering: 'cloud:east-1a:a100-1x', id: block, instances: 8, sunk_usd_per_instance_hour: 2}
"""


def run_command(command, *arguments):
    app = typer.Typer()
    command.register(app)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def simulated(tmp_path, *more) -> dict:
    write_market(small_market(slots=64), tmp_path / "m.parquet")
    out = tmp_path / "out.json"
    result = run_command(
        simulate_command,
        *("--market", tmp_path / "m.parquet", "--jobs", 3, "--seed", 2, "--json", out),
        *("--policy", "msu", "--forecaster", "persistence", *more),
    )
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text())["policies"]


def test_the_same_jobs_cost_less_beside_a_reservation(tmp_path):
    (tmp_path / "r.yaml").write_text(FILE)

    before = simulated(tmp_path)
    after = simulated(tmp_path, "--reservations", tmp_path / "r.yaml")

    assert {name: policy["on_time_fraction"] for name, policy in after.items()} == {
        "msu": 1.0,
    }
    for name, policy in after.items():
        assert policy["mean_cost_usd"] < before[name]["mean_cost_usd"]


def test_a_saving_is_net_of_the_commitment_that_was_left_unused():
    plain = small_market(slots=48)
    jobs = generated_jobs(plain, 2, 3)
    entries = entries_of_run(with_one(plain, instances=8, slots=8), jobs)
    (use,) = reservations_used(event_of(entry) for entry in entries)

    report = report_run(entries, selector_options(SETTINGS))

    assert report.idle_commitment_micro_usd == use.idle_micro_usd > 0
    on_time = [job for job in report.jobs if job.compared and job.life.on_time]
    on_demand = sum(job.otherwise[ON_DEMAND].cost_micro_usd for job in on_time)
    gross = replace(report, idle_commitment_micro_usd=0).saving_percent
    lost = 100 * use.idle_micro_usd / on_demand
    assert report.saving_percent == pytest.approx(gross - lost)


def test_a_file_that_is_wrong_is_said_to_be_so(tmp_path):
    (tmp_path / "r.yaml").write_text("reservations: []\n")
    write_market(small_market(slots=64), tmp_path / "m.parquet")

    result = run_command(
        simulate_command,
        *("--market", tmp_path / "m.parquet", "--jobs", 1),
        *("--reservations", tmp_path / "r.yaml"),
    )

    assert result.exit_code == 2
    assert "r.yaml: reservations: expected at least one entry" in result.output


@pytest.fixture
def log(tmp_path):
    market = with_one(small_market(slots=40), instances=8, slots=30)
    jobs = generated_jobs(small_market(slots=40), 2, 1)
    entries = entries_of_run(market, jobs)
    write_log(tmp_path / "log", entries, replace(manifest_of(entries), settings=SETTINGS))
    return tmp_path / "log"


def test_what_is_not_used_is_idle(log):
    result = run_command(replay_command, "replay", "reservations", log, "--json")

    (use,) = json.loads(result.output)
    assert use["offering_id"] == "cloud:east-1a:a100-1x/reserved/block"
    assert use["paid_instance_s"] == 30 * 8 * 1800
    assert use["paid_micro_usd"] == 30 * 8 * 1_000_000
    # Nothing is billed in a run without an actuator.
    assert use["shares"] == []
    assert (
        "0.0 % of 120.0 instance-hours used, 240.00 USD of 240.00 USD"
        in run_command(replay_command, "replay", "reservations", log).output
    )


def test_a_market_without_reservations_has_none_to_show():
    cost = CostAccrued(
        job_id="j",
        tenant="t",
        offering_id="o",
        quota_pool="",
        capacity_type=CapacityType.ON_DEMAND,
        slot=0,
        instances=1,
        held_s=1,
        price_micro_usd=1,
        cost_micro_usd=1,
    )
    assert reservations_used([cost]) == ()
