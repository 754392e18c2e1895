"""The whole benchmark, as small as it gets: figures in the agreed form, targets, and a report."""

import json

import pytest

from spotline.bench.placement.report import write_report
from spotline.bench.placement.run import PlacementExtent, run_placement
from spotline.bench.placement.sweeps import METHOD_IDS, change_percent, spread
from spotline.bench.placement.targets import judged

# The whole benchmark once: make test-slow, and `spotline bench placement` itself.
pytestmark = pytest.mark.slow

TINY = PlacementExtent(
    tables=2,
    sweep_tables=1,
    reading_tables=0,
    queues=1,
    starts=1,
    deadline_tables=0,
    failures=1,
    job_counts=(20, 40),
    region_counts=(4, 8),
    quick=True,
)


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    return run_placement(tmp_path_factory.mktemp("nothing"), extent=TINY)


def test_json_has_the_agreed_form(figures):
    read = json.loads(json.dumps(figures))

    assert set(read["settings"]["paper"]) == set(METHOD_IDS)
    for row in read["settings"]["paper"].values():
        assert row["mean_jct_s"] > 0
        assert row["total_cost_usd"] > 0
    assert set(read["ablations"]) == {"no_priority", "no_pathfinder", "no_cost_min"}
    for row in read["ablations"].values():
        assert {"jct_change_percent", "cost_change_percent"} <= set(row)
    assert {"bandwidth", "gpus", "jobs"} <= set(read["sweeps"])
    assert {"jct", "cost"} <= set(read["exact_gap_percent"])


def test_settings_without_data_are_left_out_and_named(figures):
    assert figures["settings"]["real"] == {}
    assert figures["meta"]["settings_without_data"] == ["energy", "rent"]


def test_report_shows_every_section_and_picture(figures, tmp_path):
    path = write_report(figures, tmp_path)

    text = path.read_text(encoding="utf-8")
    for one in figures["targets"]:
        assert one["where"] in text
    pictures = [line.split("(")[1].rstrip(")") for line in text.splitlines() if line[:2] == "!["]
    assert "placement-map-paper.png" in pictures
    for name in pictures:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_target_is_judged_by_what_was_measured(figures):
    row = {"mean_jct_s": 100.0, "total_cost_usd": 10.0}
    better = {"mean_jct_s": 30.0, "total_cost_usd": 8.0}
    paper = {name: row for name in METHOD_IDS} | {"bace_pipe": better}
    changed = {**figures, "settings": {"paper": paper}}

    met = {(one["what"], one["where"]): one["met"] for one in judged(changed)}

    assert met["mean JCT lower by %", "bace_pipe against lcf, paper's setting"]
    assert met["mean JCT lower by %, aim", "bace_pipe against the worst baseline, paper's setting"]
    assert met["total cost lower by %", "bace_pipe against lcf, paper's setting"]
    assert not met["mean JCT lower by %", "spotline against lcf, paper's setting"]


def test_spread_takes_the_highest_change_as_the_worst():
    runs = [
        {
            "a": {"mean_jct_s": jct, "total_cost_usd": 5.0},
            "b": {"mean_jct_s": 10.0, "total_cost_usd": 5.0},
        }
        for jct in (5.0, 9.0, 20.0)
    ]

    row = spread(runs, ("a",), ("b",))["a"]["b"]

    assert row["median_jct_change_percent"] == pytest.approx(-10.0)
    assert row["worst_jct_change_percent"] == pytest.approx(100.0)
    assert row["lower_in_jct_percent_of_tables"] == pytest.approx(200 / 3)


def test_change_against_a_negative_cost_keeps_its_sign():
    assert change_percent(-5.0, -10.0) == 50.0
    assert change_percent(1.0, 0.0) == 0.0
