"""What runs on paper would have cost, and what a shadow policy would have made of a run."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from spotline.cli.main import app
from spotline.contracts.errors import ContractError
from spotline.domain.market.believed import BelievedCounts, PaperSettings
from spotline.domain.market.market import INFERRED, UNKNOWN
from spotline.domain.modes import Mode
from spotline.replay.account import account, read_recorded
from spotline.replay.intervals import LEAST_JOBS, Estimate, estimate
from spotline.replay.jobs import generated_jobs
from spotline.replay.modes_report import (
    believed_market,
    modes_report,
    observe_report,
    shadow_report,
)
from tests.fakes.recorded_run import recorded_run, small_market, write_log


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    market = small_market(slots=40)
    write_log(folder, recorded_run(market, generated_jobs(market, 8, 5), mode=Mode.OBSERVE))
    return folder


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    market = small_market(slots=40)
    write_log(folder, recorded_run(market, generated_jobs(market, 3, 5)))
    return folder


@pytest.fixture(scope="module")
def made(paper):
    return observe_report(paper)


def test_a_run_on_paper_is_told_with_intervals_beside_simple_rules(paper, made) -> None:
    by_hand = account(read_recorded(paper))
    counted = [ran.life for ran in by_hand.report.jobs if ran.job.job_id in by_hand.counted]
    assert (made.mode, made.jobs, made.too_few) == (Mode.OBSERVE, len(counted), False)
    assert made.total_cost_usd == sum(life.cost_micro_usd for life in counted) / 1e6
    cost = made.recorded.cost_usd
    assert cost.mean == pytest.approx(made.total_cost_usd / made.jobs)
    assert cost.low < cost.mean < cost.high
    rules = {compared.figures.rule: compared for compared in made.rules}
    assert set(rules) == {"on_demand_only", "msu", "uniform_progress"}
    for name, compared in rules.items():
        there = by_hand.cost_micro_usd(name) / 1e6 / made.jobs
        assert compared.figures.cost_usd.mean == pytest.approx(there)
        assert compared.cost_more_usd.mean == pytest.approx(there - cost.mean)
    # On-demand is dearer for every single job, and so for every resample of them.
    assert rules["on_demand_only"].cost_more_usd.decides
    assert made.believed_cells == 0


def test_a_live_log_is_no_run_on_paper_and_few_jobs_have_no_interval(live) -> None:
    with pytest.raises(ContractError, match="expected the log of a run on paper"):
        observe_report(live)

    made = shadow_report(live, "on_demand_only")

    assert (made.mode, made.jobs <= 3, made.too_few) == (Mode.LIVE, True, True)
    assert made.recorded.cost_usd.low is None
    assert made.as_json()["intervals"] is None


def test_regret_is_what_the_shadow_would_have_earned_more(paper) -> None:
    made = shadow_report(paper, "on_demand_only")

    (shadow,) = made.rules
    difference = shadow.figures.utility_usd.mean - made.recorded.utility_usd.mean
    assert shadow.utility_more_usd.mean == pytest.approx(difference)
    assert shadow.utility_more_usd.mean < 0
    with pytest.raises(ContractError, match="expected one policy"):
        shadow_report(paper, "all")


def test_where_nobody_observed_counts_rules_are_given_what_paper_was(tmp_path) -> None:
    market = small_market(slots=24)
    unknown = np.full_like(market.spot_provenance, UNKNOWN)
    market = replace(
        market, spot_provenance=unknown, spot_available=np.zeros_like(market.spot_available)
    )
    write_log(tmp_path, recorded_run(market, generated_jobs(market, 2, 5), mode=Mode.SHADOW))

    made = modes_report(tmp_path, ("msu",))

    believed = believed_market(market, PaperSettings())
    assert made.believed_cells == made.cells == market.spot_provenance.size
    assert any("believed" in said for said in made.assumptions)
    assert set(np.unique(believed.spot_available)) <= {0, PaperSettings().most_instances}
    assert (believed.spot_provenance == INFERRED).all()


# --- beliefs and intervals --------------------------------------------------------------------


def test_beliefs_keep_to_their_shares_and_depend_on_nothing_but_their_arguments() -> None:
    settings = PaperSettings(seed=4)
    forward = BelievedCounts(settings)
    ups = np.array([forward.spot_available("a", slot, 3600) > 0 for slot in range(20_000)])

    stayed = ups[1:][ups[:-1]].mean()

    assert ups.mean() == pytest.approx(settings.up_share, abs=0.03)
    assert stayed == pytest.approx(settings.stays_up, abs=0.02)
    backward = BelievedCounts(settings)
    assert [backward.spot_available("a", slot, 3600) > 0 for slot in (900, 30, 31)] == [
        ups[900],
        ups[30],
        ups[31],
    ]


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"up_share": 1.0}, "up_share must lie between 0 and 1, was 1.0"),
        ({"stays_up": 0.5}, r"stays_up must lie between up_share \(0.54\) and 1, was 0.5"),
        ({"most_instances": -1}, "most_instances must be >= 0, was -1"),
    ],
)
def test_beliefs_that_no_chain_has_are_refused(stated, words) -> None:
    with pytest.raises(ValueError, match=words):
        PaperSettings(**stated)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_an_interval_holds_its_mean_and_lies_within_the_numbers(values) -> None:
    found = estimate(values)

    if len(values) < LEAST_JOBS:
        assert (found.low, found.high, found.decides) == (None, None, False)
        return
    assert found.low <= found.mean <= found.high
    rounding = 1e-9 * max(1.0, *map(abs, values))
    assert min(values) - rounding <= found.low
    assert found.high <= max(values) + rounding


def test_an_interval_narrows_as_jobs_are_added_and_holds_what_is_known_of_a_normal_mean() -> None:
    values = list(np.random.Generator(np.random.PCG64(1)).normal(10.0, 2.0, 400))

    some, all_of_them = estimate(values[:25]), estimate(values)

    assert all_of_them.high - all_of_them.low < some.high - some.low
    half = 1.96 * np.std(values) / np.sqrt(400)
    assert all_of_them.high - all_of_them.low == pytest.approx(2 * half, rel=0.05)
    assert Estimate(mean=1.0, low=-1.0, high=2.0).decides is False


# --- commands ---------------------------------------------------------------------------------


def test_the_commands_say_mode_numbers_and_how_sure_they_are(paper, live) -> None:
    observed = CliRunner().invoke(app, ["observe", "report", str(paper)])
    shadowed = CliRunner().invoke(app, ["shadow", "report", str(live), "--policy", "msu"])
    told = ["shadow", "report", str(live), "--policy", "msu", "--json"]
    as_json = CliRunner().invoke(app, told)
    refused = CliRunner().invoke(app, ["observe", "report", str(live)])

    assert observed.exit_code == 0, observed.output
    assert "mode observe: on paper" in observed.output
    assert "bootstrap over jobs" in observed.output.replace("\n", " ")
    assert json.loads(as_json.output)["mode"] == "live"
    assert shadowed.exit_code == 0, shadowed.output
    assert "regret against msu:" in shadowed.output
    assert (refused.exit_code, "found a live one" in refused.output.replace("\n", " ")) == (2, True)
