"""`spotline simulate --log` as its user sees it, on the log of a demo."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from spotline.cli.main import app
from tests.samples.stored_runs import STORED, unpack
from tools import goldens


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    unpack(STORED / "demo-log.tar.xz", folder)
    return folder


def simulate(log: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["simulate", "--log", str(log), *options], env={"COLUMNS": "80"})


def test_the_recorded_policy_says_what_the_demo_said(log) -> None:
    done = simulate(log, "--policy", "recorded", "--json", "-")

    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    demo = goldens.loaded(goldens.FOLDER / "demo.json")["result"]
    for name in ("mean_cost_usd", "on_demand_cost_usd", "msu_cost_usd", "saving_percent"):
        assert said["recorded"][name] == pytest.approx(demo[name], abs=1e-9)
    assert said["policies"].keys() == {"recorded"}
    assert said["policies"]["recorded"]["mean_cost_usd"] == said["recorded"]["mean_cost_usd"]
    assert [out["name"] for out in said["left_out"]] == ["tune granite-3.1-8b"]


def test_people_read_which_rule_is_on_which_basis(log) -> None:
    done = simulate(log, "--per-job")

    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert "left out: tune granite-3.1-8b: its own reports say how fast it ran" in done.stdout
    assert "Mean of 2 jobs:" in done.stdout
    assert ["spotline", "recorded", "71.23", "100.0%", "92.53", "87.75", "%"] in lines
    assert ["msu", "by", "itself", "85.51", "100.0%", "78.25", "-"] in lines
    assert [
        "on_demand_only",
        "what",
        "was",
        "left",
        "85.00",
        "100.0%",
        "78.75",
        "74.69",
        "%",
    ] in lines
    assert "tune granite-3.1-8b *" in done.stdout
    assert all(
        len(line) <= 80
        for line in done.stdout.splitlines()
        if not line.startswith(("/", "assumed"))
    )


def test_a_what_if_is_said_before_its_numbers(log) -> None:
    done = simulate(
        log, "--deadline", "x1.5", "--price-factor", "spot=2", "--policy", "msu", "--per-job"
    )

    assert done.exit_code == 0, done.output
    before, _, after = done.stdout.partition("Mean of")
    assert "what if: time to the deadline x 1.5" in before
    assert "what if: spot prices x 2" in before
    assert "what was left" not in after
    assert "(left)" not in after
    assert "assumed: the log ends" in after


def test_another_market_that_is_elsewhere_in_time_begins_with_the_log(log) -> None:
    done = simulate(log, "--market", "cloud-zones", "--policy", "msu", "--json", "-")

    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["by_itself"]["changed"][0].startswith("on the market cloud-zones, 672 slots")
    assert said["by_itself"]["counted"] == 2


def test_rows_go_to_a_file_as_csv(log, tmp_path) -> None:
    out = tmp_path / "rows.csv"

    done = simulate(log, "--policy", "msu", "--csv", str(out))

    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert {(row["basis"], row["policy"]) for row in rows if row["basis"] != "recorded"} == {
        ("by_itself", "msu"),
        *(("on_what_was_left", name) for name in ("msu", "on_demand_only", "uniform_progress")),
    }
    assert sum(row["basis"] == "recorded" for row in rows) == 3


def test_the_chain_of_accounts_is_printed(log) -> None:
    done = simulate(log, "--policy", "recorded", "--reconcile")

    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "cost of the jobs in the headline 142.460000" in lines
    assert "jobs that the headline leaves out +21.250000" in lines
    assert "sum of CostAccrued 163.710000" in lines
    assert "not explained" not in done.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--deadline", "6h"), "--deadline: expected a duration with its sign"),
        (("--price-factor", "spot"), "--price-factor: expected factors"),
        (("--policy", "msuu"), "msuu"),
        (("--policy", "recorded", "--alone"), "--policy recorded: expected --log LOG"),
        (("--reconcile", "--censored"), "--reconcile: expected --log LOG"),
        (("--json", "-", "--csv", "-"), "--json, --csv: expected one of them"),
        (("--ledger", "nowhere.sqlite"), "nowhere.sqlite: expected a ledger"),
        (("--market", "nowhere"), "--market: expected a market file, or a preset"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(log, options, told) -> None:
    done = simulate(log, *options)

    assert done.exit_code == 2, done.output
    errors = [line for line in done.stderr.splitlines() if line.startswith("spotline: ")]
    assert len(errors) == 1
    assert told in errors[0]
    assert done.stdout == ""


def test_a_directory_that_is_no_log_is_bad_input(tmp_path) -> None:
    done = simulate(tmp_path)

    assert done.exit_code == 2
    assert done.stderr.startswith("spotline: ")
