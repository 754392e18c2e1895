"""Geography and pipeline files, what market_ingest shows of them, and `spotline place` on both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotline.adapters.files.geography.geography_file import parse_geography, read_geography
from spotline.adapters.files.pipeline_file import read_pipeline
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.cli.main import app
from spotline.contracts.errors import ContractError
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import LinkObserved, RegionObserved
from spotline.domain.market.generate import generate
from spotline.domain.placement.price_steps import MOST_HOURS
from tests.fakes.placer import START_NS

EXAMPLES = Path(__file__).parents[5] / "docs" / "examples"

GEOGRAPHY = """
regions:
  - {id: a, gpus: 8, energy_usd_per_kwh: [0.1, 0.1, 0.3]}
  - {id: b, gpus: 8, energy_usd_per_kwh: 0.2}
links:
  - {from: a, to: b, gbit_per_s: 8, egress_usd_per_gb: 0.02}
region_changes:
  - {after_hours: 0.5, region: b, down: true}
link_changes:
  - {after_hours: 1, from: b, to: a, gbit_per_s: 0, both_ways: false}
"""


def observed(slots: int) -> list[list[RegionObserved | LinkObserved]]:
    """What every slot of half an hour shows."""
    market = generate("mixed", seed=3, slots=slots, slot_s=1800, start_ns=START_NS)
    handler = IngestHandler(
        market, IngestOptions(), parse_geography(GEOGRAPHY, where="geography.yaml")
    )
    events = [handler.slot_events(slot) for slot in range(slots)]
    assert all(isinstance(one[-1], SlotOpened) for one in events)
    kinds = RegionObserved | LinkObserved
    return [[event for event in one if isinstance(event, kinds)] for one in events]


def test_the_first_slot_shows_everything_and_the_others_what_changed() -> None:
    first, *later = observed(6)

    assert len(first) == 4
    assert [event.more_follow for event in first] == [True, True, True, False]
    shown = [
        [event.region.region_id if isinstance(event, RegionObserved) else "link" for event in slot]
        for slot in later
    ]
    # b is lost; a's hour begins and the link is cut; a's last hour begins.
    assert shown == [["b"], ["a", "link"], [], ["a"], []]


def test_hourly_prices_come_with_those_of_the_hours_ahead() -> None:
    slots = observed(5)

    prices = [
        (event.region.energy_usd_per_kwh, event.energy_ahead_usd_per_kwh)
        for slot in slots
        for event in slot
        if isinstance(event, RegionObserved) and event.region.region_id == "a"
    ]

    assert prices == [(0.1, (0.1, 0.3)), (0.1, (0.3,)), (0.3, ())]


def test_a_link_without_bandwidth_is_down_in_that_direction_only() -> None:
    geography = parse_geography(GEOGRAPHY, where="geography.yaml")

    assert geography.link_at("a", "b", 3600).bytes_per_s == 1e9
    assert geography.link_at("b", "a", 3600).bytes_per_s == 0
    assert geography.graph_at(1800).gpus.tolist() == [8, 0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("gpus: 8, energy_usd_per_kwh: 0.2", "gpus: -1, energy_usd_per_kwh: 0.2"),
            "regions[1].gp",
        ),
        (("gbit_per_s: 8", "gbit_per_s: fast"), "links[0].gbit_per_s"),
        (
            ("egress_usd_per_gb", "egress"),
            "links[0].egress: expected a known field (did you mean egress_usd_per_gb?)",
        ),
        (("id: b, ", ""), "regions[1].id: expected this field, found nothing"),
        (("id: b, ", "id: a, "), "regions[1].id: expected different ids, found a again"),
        (("to: b", "to: c"), "links[0].to: expected the id of a region, found no region c"),
        (
            ("region: b", "region: c"),
            "region_changes[0].region: expected the id of a region, found no region c",
        ),
        (("down: true", "down: null"), "region_changes[0]: expected down or gpus, found neither"),
        (("gpus: 8", "gpus: yes"), "expected a number, found True"),
        (
            ("after_hours: 0.5", "after_hours: 1.0e+300"),
            "region_changes[0].after_hours: expected a number <= 500,000, found 1e+300",
        ),
        (
            ("after_hours: 1,", "after_hours: 500001,"),
            "link_changes[0].after_hours: expected a number <= 500,000, found 500001",
        ),
        (
            ("after_hours: 0.5", "after_hours: .nan"),
            "region_changes[0].after_hours: expected a finite number",
        ),
        (
            ("gbit_per_s: 0,", "gbit_per_s: 1e308,"),
            "link_changes[0].gbit_per_s: expected a number <= 1,000,000,000, found",
        ),
        (
            ("egress_usd_per_gb: 0.02", "egress_usd_per_gb: 1e300"),
            "links[0].egress_usd_per_gb: expected a number <= 1,000,000, found '1e300'",
        ),
        (("id: b, ", "id: b, spot: true, "), "regions[1].spot: expected offering as well"),
        (("regions:", "- regions:"), "geography.yaml: line 5: expected '-'"),
    ],
)
def test_a_mistake_is_named_with_field_and_expectation(change, said) -> None:
    with pytest.raises(ContractError) as caught:
        parse_geography(GEOGRAPHY.replace(*change), where="geography.yaml")

    assert said in str(caught.value)
    assert "geography.yaml" in str(caught.value)


def test_a_region_may_name_what_its_gpus_are_rented_as() -> None:
    rented = GEOGRAPHY.replace("id: b, ", "id: b, offering: aws/x/y/p4d.24xlarge, spot: true, ")

    geography = parse_geography(rented, where="geography.yaml")

    one, other = (geography.region_at(name, 0).region for name in "ab")
    assert (other.offering_id, other.spot) == ("aws/x/y/p4d.24xlarge", True)
    assert (one.offering_id, one.spot) == ("", False)


def test_a_change_as_late_as_there_is_time_for_is_taken() -> None:
    late = GEOGRAPHY.replace("after_hours: 0.5", f"after_hours: {MOST_HOURS}")

    geography = parse_geography(late, where="geography.yaml")

    last_s = MOST_HOURS * 3600
    assert not geography.region_at("b", last_s - 1).down
    assert geography.region_at("b", last_s).down


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ContractError, match=r"nowhere\.yaml: \(file\): expected a file, found none"
    ):
        read_geography(Path("nowhere.yaml"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("iterations: 0", "job.yaml: iterations: expected a number >= 1, found 0"),
        ("compute_s: -1", "job.yaml: compute_s: expected a number >= 0, found -1"),
        ("min_gpus: 50", "job.yaml: max_gpus: expected a number >= min_gpus (50), found 40"),
        ("max_gpus: 100000000", "job.yaml: max_gpus: expected a number <= 65536, found 1e+08"),
        ("gpus: 8", "gpus: expected a known field (did you mean min_gpus?), found gpus"),
    ],
)
def test_a_mistake_in_a_pipeline_file_is_named(tmp_path: Path, line: str, said: str) -> None:
    key = line.partition(":")[0]
    kept = [
        one
        for one in (EXAMPLES / "pipeline.yaml").read_text().splitlines()
        if not one.startswith(f"{key}:")
    ]
    file = tmp_path / "job.yaml"
    file.write_text("\n".join([*kept, line]))

    with pytest.raises(ContractError) as caught:
        read_pipeline(file)

    assert said in str(caught.value)


def test_equal_files_are_the_same_request() -> None:
    one, again = (read_pipeline(EXAMPLES / "pipeline.yaml") for _ in range(2))

    assert one == again
    assert one.job_id


# --- the command ------------------------------------------------------------------------------


def place(*arguments: str):
    files = [str(EXAMPLES / "pipeline.yaml"), "--geography", str(EXAMPLES / "geography.yaml")]
    return CliRunner().invoke(app, ["place", *files, *arguments])


def test_the_command_marks_one_path_and_shows_bottleneck_and_cost_of_all() -> None:
    result = place("--json")

    answer = json.loads(result.output)
    assert result.exit_code == 0
    assert sum(path["chosen"] for path in answer["paths"]) == 1
    across = [path for path in answer["paths"] if path["bottleneck_source"]]
    assert across
    assert all(path["bottleneck_bytes_per_s"] > 0 for path in across)
    assert all(path["egress_usd"] > 0 for path in across)


def test_the_command_without_json_shows_a_table_with_a_star() -> None:
    result = place("--cost", "rent", "--method", "bace_pipe")

    assert result.exit_code == 0
    assert "method bace_pipe, cost rent" in result.output
    assert sum(line.startswith("*") for line in result.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "said"),
    [(("--cost", "co2"), "--cost: expected one of energy, rent"), (("--method", "x"), "spotline")],
)
def test_the_command_refuses_options_that_do_not_exist(option, said) -> None:
    result = place(*option)

    assert result.exit_code == 2
    assert said in result.stderr
