"""The quality benchmark: its statistics, its pieces, and a run on made-up data."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from spotline.bench.quality.cells import SHOWN, SPOTLINE, Density, courses_of, run_cell
from spotline.bench.quality.episodes import BASE, Replays, program_of, spaced_starts
from spotline.bench.quality.families import GANG, SINGLE, load_families, synthetic_price_ppm
from spotline.bench.quality.forecasts import (
    Said,
    forecast_family,
    uncounted_forecasts,
    window_forecasts,
    with_noise,
)
from spotline.bench.quality.information import run_information
from spotline.bench.quality.known_law import KNOWN_LAWS, known_law_table, sample
from spotline.bench.quality.learning import served
from spotline.bench.quality.misses import deciding_slot
from spotline.bench.quality.report import FAMILIES_PLOT, NOISE_PLOT, PAIRED_PLOT, write_report
from spotline.bench.quality.run import QualityExtent, run_quality
from spotline.bench.quality.statistics import bootstrap_points, percent, time_lines
from spotline.bench.quality.targets import judged
from spotline.cli.bench import bench_app
from spotline.contracts.errors import ContractError
from spotline.domain.jobs.program import Holding
from spotline.domain.market.law import run_states, transitions
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.replay import SlotRecord
from spotline.replay.clouds import Information

P = 3_060_000
REAL = Path(os.environ.get("SPOTLINE_DATA", Path(__file__).resolve().parents[5] / "shared/data"))

TINY = QualityExtent(
    base={10: Density(reported=2, rehearsed=2), 20: Density(reported=2, rehearsed=2)},
    other={10: Density(reported=1, rehearsed=1), 20: Density(reported=1, rehearsed=1)},
    dense=Density(reported=4, rehearsed=2),
    aside=Density(reported=2, rehearsed=1),
    selector_jobs=10,
    known_law_jobs=4,
    known_law_pasts=1,
    known_law_futures=2,
    known_law_entries=200_000,
    noise_shares_percent=(0, 100),
    noise_seeds=(31,),
    most_series=1,
    most_slots=160,
)


def write_zone(folder: Path, zone: str, counts: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    trace = {"metadata": {"gap_seconds": 1800}, "data": counts}
    (folder / f"{zone}_v100_1.json").write_text(json.dumps(trace), encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gangs of 16 in two zones of different lengths, up and down by turns."""
    root = tmp_path_factory.mktemp("data")
    folder = root / "spot-traces-skypilot" / "availability" / "16-node" / "aws-08-27-2023"
    for zone, slots, seed in (("us-east-2b", 130, 1), ("us-west-2a", 160, 2)):
        rng = np.random.Generator(np.random.PCG64(seed))
        counts: list[int] = []
        while len(counts) < slots:
            counts += [16 * (len(counts) % 2)] * int(rng.integers(2, 9))
        write_zone(folder, zone, counts[:slots])
    return root


@pytest.fixture(scope="module")
def figures(data: Path) -> dict[str, Any]:
    return run_quality(data, extent=TINY, forecaster="persistence")


# --- statistics -------------------------------------------------------------------------------


def test_percent_is_a_ratio_of_sums_and_never_a_mean_of_ratios() -> None:
    assert percent(np.array([1.0, 30.0]), np.array([10.0, 30.0])) == pytest.approx(77.5)
    assert math.isnan(percent(np.array([1.0]), np.array([0.0])))


def dependent(rng: np.random.Generator, jobs: int, keep: float) -> np.ndarray:
    values = rng.standard_normal(jobs)
    for job in range(1, jobs):
        values[job] = keep * values[job - 1] + math.sqrt(1.0 - keep * keep) * values[job]
    return values


def coverage(block_slots: int) -> float:
    """How often the interval holds the true mean, 0, of jobs that depend on those before."""
    rng = np.random.Generator(np.random.PCG64(7))
    jobs, held, trials = 400, 0, 80
    start = np.arange(jobs)
    lines = time_lines(["one"], np.zeros(jobs, dtype=np.int64), start)
    for trial in range(trials):
        difference = dependent(rng, jobs, 0.8)
        low, _, high = bootstrap_points(
            difference, np.ones(jobs), lines, block_slots=block_slots, seed=trial, resamples=200
        )
        held += low <= 0.0 <= high
    return held / trials


def test_intervals_of_long_blocks_cover_the_mean_of_dependent_jobs() -> None:
    assert coverage(40) >= 0.85
    assert coverage(1) <= 0.7


def test_an_interval_brackets_its_mean_and_knows_when_nothing_varies() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    start = np.arange(0, 300, 3)
    lines = time_lines(["one"], np.zeros(100, dtype=np.int64), start)
    optimum = rng.uniform(50.0, 90.0, 100)

    low, mean, high = bootstrap_points(
        rng.normal(1.0, 3.0, 100), optimum, lines, block_slots=20, seed=1
    )
    same = bootstrap_points(0.02 * optimum, optimum, lines, block_slots=20, seed=1)

    assert low < mean < high
    assert same == pytest.approx((2.0, 2.0, 2.0))


def test_a_second_world_of_the_same_slots_does_not_narrow_the_interval() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    start = np.arange(200)
    difference = dependent(rng, 200, 0.8)
    once = time_lines(["zone"], np.zeros(200, dtype=np.int64), start)
    series = np.repeat([0, 1], 200)
    twice = time_lines(["zone", "zone"], series, np.tile(start, 2))

    alone = bootstrap_points(difference, np.ones(200), once, block_slots=30, seed=1)
    doubled = bootstrap_points(np.tile(difference, 2), np.ones(400), twice, block_slots=30, seed=1)

    assert doubled == pytest.approx(alone)


def test_starts_are_equally_far_apart_and_no_more_than_asked_for() -> None:
    assert spaced_starts(10, 20, 5).tolist() == [10, 12, 14, 16, 18]
    assert spaced_starts(10, 13, 100).tolist() == [10, 11, 12]
    assert spaced_starts(10, 10, 5).size == 0


# --- families, jobs, forecasts ----------------------------------------------------------------


def test_synthetic_prices_depend_on_seed_and_zone_only() -> None:
    price = synthetic_price_ppm(2000, seed=11, name="us-east-2b")

    assert np.array_equal(price, synthetic_price_ppm(2000, seed=11, name="us-east-2b"))
    assert not np.array_equal(price, synthetic_price_ppm(2000, seed=12, name="us-east-2b"))
    assert not np.array_equal(price, synthetic_price_ppm(2000, seed=11, name="us-west-2a"))
    assert 0.25e6 < price.mean() < 0.40e6
    assert price.min() >= 0.15e6
    assert price.max() <= 0.95e6


def test_a_hard_deadline_changes_nothing_but_what_lateness_is_worth() -> None:
    soft = program_of(BASE, GANG, 10, P, hard=False)
    hard = program_of(BASE, GANG, 10, P, hard=True)

    assert soft.end_slots == 15
    assert soft.value_micro_usd[10] == 80 * P // 2 * 3 // 2
    assert soft.value_micro_usd[15] == 0
    assert hard.value_micro_usd == soft.value_micro_usd[:11]
    assert (soft.launch_s, soft.shrink_s) == (180, 90)


def test_the_single_instance_job_is_as_tight_as_the_gang() -> None:
    gang = program_of(BASE, GANG, 10, P, hard=False)
    single = program_of(BASE, SINGLE, 10, P, hard=False)

    assert gang.slots_on_demand(gang.work_quanta, 180) == 7
    assert single.slots_on_demand(single.work_quanta, 180) == 7


def test_families_without_data_are_named_and_none_at_all_is_an_error(
    data: Path, tmp_path: Path
) -> None:
    families, missing = load_families(data)

    assert [one.name for one in families] == ["16-node"]
    assert [one.slots for one in families[0].series] == [130, 130, 160, 160]
    assert "neocloud" in missing
    with pytest.raises(ContractError, match="found none"):
        load_families(tmp_path)
    with pytest.raises(ContractError, match="--family"):
        load_families(data, names=("17-node",))


@pytest.fixture(scope="module")
def said(data: Path) -> tuple[Said, ...]:
    families, _ = load_families(data)
    return forecast_family(families[0].series, "persistence")


def test_zones_of_one_world_are_forecast_together_until_they_end(said: tuple[Said, ...]) -> None:
    assert len(said) == 2
    assert [one.world for one in said[0].series] == [0, 0]
    assert [len(issued.forecasts) for issued in said[0].forecasts] == [2] * 130 + [1] * 30
    assert {name: len(found) for name, found in steps(said[0]).items()} == {
        "us-east-2b": 130,
        "us-west-2a": 160,
    }


def steps(said: Said) -> Mapping[str, np.ndarray]:
    return {name: one.steps for name, one in window_forecasts(said, judged=True).items()}


def test_noise_replaces_forecasts_by_recorded_ones_and_more_noise_replaces_more(
    said: tuple[Said, ...],
) -> None:
    first = said[0]
    recorded = {one for issued in first.forecasts for one in issued.forecasts}
    rungs = [with_noise(first, share, seed=5).forecasts for share in (0.0, 0.3, 0.6, 1.0)]

    assert rungs[0] == first.forecasts
    for rung in rungs[1:]:
        assert {one for issued in rung for one in issued.forecasts} <= recorded
    changed = [
        {
            (slot, one.offering_id)
            for slot, (issued, own) in enumerate(zip(rung, first.forecasts, strict=True))
            for one, before in zip(issued.forecasts, own.forecasts, strict=True)
            if one != before
        }
        for rung in rungs
    ]
    assert changed[0] == set()
    assert changed[1] < changed[2] < changed[3]


def test_forecasts_without_counts_promise_plenty(said: tuple[Said, ...]) -> None:
    found = uncounted_forecasts(said[0])["us-west-2a"]

    assert set(found.spot_available.flatten().tolist()) == {UNCOUNTED}


# --- the default ------------------------------------------------------------------------------


def replays(utility: np.ndarray, start: np.ndarray) -> Replays:
    return Replays(
        series=np.zeros(len(start), dtype=np.int64),
        start=start,
        utility=utility,
        on_time=np.ones(utility.shape, dtype=np.bool_),
        optimum=utility.max(axis=1),
    )


def test_the_default_learns_from_no_job_whose_deadline_has_not_passed() -> None:
    rng = np.random.Generator(np.random.PCG64(2))
    utility = rng.integers(0, 90_000_000, (20, 3))
    start = np.arange(100, 140, 2)
    before = replays(rng.integers(0, 90_000_000, (4, 3)), np.arange(4))
    changed = utility.copy()
    changed[10] = (0, 0, 10**9)

    one = served(replays(utility, start), before, ("a", "b", "c"), known_after_slots=10)
    other = served(replays(changed, start), before, ("a", "b", "c"), known_after_slots=10)

    # Job 10 begins in slot 120 and is known from slot 130 on, that of job 15.
    assert np.array_equal(one.weights[:15], other.weights[:15])
    assert not np.array_equal(one.weights[15:], other.weights[15:])
    assert one.utility[0] == pytest.approx(float(one.weights[0] @ utility[0]))


def test_rehearsals_decide_what_the_first_job_runs_under() -> None:
    utility = np.full((3, 2), 50_000_000)
    rehearsed = np.tile([[10_000_000, 60_000_000]], (12, 1))

    one = served(
        replays(utility, np.arange(3) + 50),
        replays(rehearsed, np.arange(12)),
        ("a", "b"),
        known_after_slots=10,
    )

    assert one.weights[0, 1] > 0.9


def record(spot: int) -> SlotRecord:
    return SlotRecord(
        spot_price=900_000,
        on_demand_price=P,
        spot_available=spot,
        on_demand_available=UNCOUNTED,
        forecast=None,
    )


def test_the_slot_that_decided_a_miss_is_the_first_after_which_nothing_saves_it() -> None:
    program = program_of(BASE, GANG, 10, P, hard=True)
    idle = [Holding()] * 10

    # Seven slots of twelve instances are needed: idling through the fourth loses the deadline.
    assert deciding_slot(program, [record(0)] * 10, idle) == 4
    working = [Holding(on_demand=12)] * 7
    assert deciding_slot(program, [record(0)] * 7, working) == 0


# --- less information -------------------------------------------------------------------------


def test_with_plenty_of_spot_it_does_not_matter_what_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "spot-traces-skypilot/availability/16-node/aws-08-27-2023"
    write_zone(folder, "us-east-2b", [16] * 120)
    families, _ = load_families(tmp_path)
    family = replace(families[0], series=families[0].series[:1])
    group = forecast_family(family.series, "persistence")[0]
    one = family.series[0]
    key = (one.together, one.name, one.world)
    counted = courses_of(
        family, {key: window_forecasts(group, judged=True)[one.name]}, relearn_slots=48
    )
    blind = courses_of(family, {key: uncounted_forecasts(group)[one.name]}, relearn_slots=48)
    density = Density(reported=3, rehearsed=1)

    censored = run_information(family, blind, Information.CENSORED, density)
    first = run_information(family, counted, Information.DECIDE_FIRST, density)

    # All useful spot from the first slot on: nobody has to be told that it is there.
    assert np.array_equal(censored.utility("msu"), first.utility("msu"))
    assert censored.late(SPOTLINE).size == first.late(SPOTLINE).size == 0


def test_hidden_counts_are_compared_with_seen_ones_on_the_same_jobs(
    figures: dict[str, Any],
) -> None:
    for deadlines in figures["censored"].values():
        for rows in deadlines.values():
            low, mean, high = rows[SPOTLINE]["vs_counted_points"]
            assert low <= mean <= high
            assert mean <= 100.0
    judged_points = [
        one["what"] for one in judged(figures) if str(one["what"]).startswith("counts hidden")
    ]
    assert len(judged_points) == 2 * len(figures["censored"])


# --- known laws -------------------------------------------------------------------------------


@pytest.mark.parametrize("known", KNOWN_LAWS, ids=lambda known: known.name)
def test_sampled_markets_follow_their_law(known: Any) -> None:
    law = known.law
    market = sample(law, 20_000, seed=1)
    moves = transitions(law.space, market.spot_available)
    seen = moves / np.maximum(1, moves.sum(axis=1, keepdims=True))
    often = moves.sum(axis=1) > 500

    assert np.abs(seen - law.run_matrix())[often].max() < 0.05
    assert run_states(law.space, market.spot_available).max() < law.space.run_states


def test_a_learned_law_is_compared_with_the_true_one_on_the_same_path() -> None:
    table = known_law_table(jobs=40, pasts=1, futures=2, most_entries=200_000)

    assert set(table) == {known.name for known in KNOWN_LAWS}
    for row in table.values():
        assert 95.0 < float(str(row["percent_of_true_law_optimum"])) < 102.0
        certificate: Any = row["certificate"]
        assert certificate["exact"]
        assert certificate["above_percent"][1] >= 0.0


# --- the whole --------------------------------------------------------------------------------


def test_figures_have_the_promised_shape(figures: dict[str, Any]) -> None:
    assert set(figures["families"]) == {"16-node", "16-node/heavy", "16-node/low-margin"}
    for deadlines in figures["families"].values():
        assert set(deadlines) == {"10", "20"}
        for rows in deadlines.values():
            assert tuple(rows) == SHOWN
            for row in rows.values():
                assert len(row["vs_best_baseline_points"]) == 3
                assert {"percent_of_clairvoyant", "spread_captured_percent", "misses"} <= set(row)
                assert row["runs"] > 0
    assert set(figures["known_law"]) == {known.name for known in KNOWN_LAWS}
    assert set(figures["noise"]) == {"0", "100"}
    assert {"percent_of_best_fixed", "regret_jobs"} == set(figures["selector"]["adahedge"])
    assert set(figures["censored"]) == set(figures["decide_first"]) == {"16-node"}
    assert "neocloud" in figures["meta"]["families_without_data"]
    json.dumps(figures, allow_nan=False)


def test_nobody_beats_the_clairvoyant_and_no_hard_deadline_is_missed(
    figures: dict[str, Any],
) -> None:
    for deadlines in figures["families"].values():
        for rows in deadlines.values():
            for row in rows.values():
                assert row["percent_of_clairvoyant"] <= 100.0
                assert row["misses"] == 0
    assert figures["misses"] == []


def test_a_run_can_be_repeated(data: Path, figures: dict[str, Any]) -> None:
    again = run_quality(data, extent=TINY, forecaster="persistence")

    again["meta"]["wall_s"] = figures["meta"]["wall_s"]
    assert again == figures


def test_the_report_names_every_family_and_missed_target(
    figures: dict[str, Any], tmp_path: Path
) -> None:
    path = write_report(figures, tmp_path / "report")

    text = path.read_text(encoding="utf-8")
    assert "## 16-node/heavy" in text
    for name in (FAMILIES_PLOT, PAIRED_PLOT, NOISE_PLOT):
        assert (path.parent / name).stat().st_size > 10_000
        assert name in text
    for target in figures["targets"]:
        assert target["met"] is not False or target["where"] in text


def test_targets_tell_met_from_missed_and_from_unknown(figures: dict[str, Any]) -> None:
    worse = json.loads(json.dumps(figures))
    row = worse["families"]["16-node"]["10"][SPOTLINE]
    row["percent_of_clairvoyant"], row["misses"] = 97.49, 1
    row["vs_best_baseline_points"] = [None, None, None]

    found = {
        one["what"]: one["met"]
        for one in judged(worse)
        if str(one["where"]).startswith("16-node, d = 10") and "information" not in one
    }

    assert found["% of clairvoyant"] is False
    assert found["mean against the best baseline"] is None


def test_bad_input_is_explained(tmp_path: Path) -> None:
    runner = CliRunner()

    absent = runner.invoke(bench_app, ["quality", "--data", str(tmp_path)])
    unknown = runner.invoke(bench_app, ["quality", "--data", str(tmp_path), "--family", "x"])

    assert absent.exit_code == unknown.exit_code == 2
    assert "expected recorded markets" in absent.stderr
    assert "--family" in unknown.stderr


@pytest.mark.skipif(
    not (REAL / "spot-traces-skypilot").is_dir(),
    reason="real data absent: set SPOTLINE_DATA to the folder that holds it",
)
def test_baselines_on_recorded_gangs_are_where_the_literature_has_them() -> None:
    families, _ = load_families(REAL, names=("16-node",))
    family = replace(families[0], series=tuple(one for one in families[0].series if one.world == 0))
    forecasts = {
        (one.together, one.name, one.world): window_forecasts(group, judged=True)[one.name]
        for group in forecast_family(family.series, "persistence")
        for one in group.series
    }
    courses = courses_of(family, forecasts, relearn_slots=10_000)

    cell = run_cell(
        family, courses, BASE, 10, Density(reported=15, rehearsed=2), adapt=False, strict=False
    )

    percents = {name: cell.row(name)["percent_of_clairvoyant"] for name in SHOWN}
    assert 50.0 < percents["on_demand_only"] < 66.0
    assert 90.0 < percents["msu"] < 99.0
    assert 90.0 < percents["uniform_progress"] < 98.0
    assert 95.0 < percents[SPOTLINE] <= 100.0
