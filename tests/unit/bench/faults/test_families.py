"""Each family over a few seeds: nothing is violated, and the same seed is the same run."""

import random

import pytest

from spotline.bench.faults.accounts import accounts_of, comparable
from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.families.registry import FAMILIES
from spotline.bench.faults.points import NEVER_REACHED, SERVICES, all_points
from spotline.bench.faults.run import FaultsReport, calm_run, run_fault, spread
from spotline.bench.faults.scenario import scenario_of
from spotline.bench.faults.world import run_world

# One that every change is tried with; `make test-slow` tries the others.
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_is_violated_and_faults_change_something(name, seed):
    run = run_fault(name, seed)

    assert run.violations == ()
    assert run.faults > 0


def test_the_same_seed_is_the_same_run(tmp_path):
    scenario = scenario_of(1)
    logs = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        family = FAMILIES["duplicate"](scenario, random.Random(7))
        outcome = run_world(scenario, family, tmp_path / folder)
        logs.append([(entry.seq, entry.subject, entry.payload) for entry in outcome.entries])

    assert logs[0] == logs[1]


def test_other_delays_change_neither_log_nor_ledger(tmp_path):
    calm, _ = calm_run(0)
    outcome = run_world(scenario_of(0), Hasty(scenario_of(0), random.Random(3)), tmp_path)

    accounts = accounts_of(outcome)

    assert comparable(accounts.ledger) == comparable(calm.ledger)


@pytest.mark.parametrize("seed", range(6))
def test_a_scenario_is_large_enough(seed):
    scenario = scenario_of(seed)

    assert len(scenario.jobs) >= 5
    assert scenario.market.slots >= 30
    assert len({job.tenant for job in scenario.jobs}) >= 2


def test_points_are_those_of_the_ports_and_those_left_out_exist():
    points = all_points()

    assert "cloud_actuator.Ledger.write_intents.before" in points
    assert "cloud_actuator.CloudProvider.launch.after" in points
    assert {point.partition(".")[0] for point in points} == set(SERVICES)
    assert not [point for point in points if point.rpartition(".")[0] in NEVER_REACHED]


def test_what_is_left_out_is_never_reached():
    _, points = calm_run(0)

    assert not set(points) - set(all_points())


def test_seeds_are_spread_over_the_families():
    rounds = spread(5, ["a", "b"])

    assert rounds == [(0, ("a", "b")), (1, ("a", "b")), (2, ("a",))]
    assert spread(3, ["a", "b"], first_seed=7) == [(7, ("a", "b")), (8, ("a",))]


def test_the_figures_have_the_form_that_was_promised():
    report = FaultsReport(seeds=1, runs=[run_fault("kill", 0)])

    figures = report.as_json()

    assert set(figures) == {"families", "seeds", "fail_points_covered_percent"}
    assert set(figures["families"]["kill"]) == {"runs", "faults", "violations", "planted_caught"}
    assert figures["families"]["kill"]["planted_caught"] is False
    assert 0 < figures["fail_points_covered_percent"] < 100


@pytest.mark.parametrize("seed", [55, 64])
def test_what_a_cut_log_lost_of_answers_holds_up_nothing_and_counts_once(seed):
    """A charge that was said twice was charged again; a forecast that was lost held the market up."""
    assert run_fault("bus", seed).violations == ()
