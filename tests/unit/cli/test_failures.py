"""What commands say of files that they cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotline.cli.main import app

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"

# Ports that nobody has, whoever else runs here.
ANYWHERE = tuple(
    word
    for name in ("", "agents-", "configurator-", "placer-", "analytics-", "http-")
    for word in (f"--{name}address", "127.0.0.1:0")
)


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    return result.stderr


def test_place_names_file_and_field_of_pipeline_and_geography(tmp_path: Path) -> None:
    pipeline, geography = tmp_path / "p.yaml", tmp_path / "g.yaml"
    pipeline.write_text((EXAMPLES / "pipeline.yaml").read_text() + "gpus: 8\n")
    geography.write_text("regions: [{id: a, gpus: -1, energy_usd_per_kwh: 0.1}]")
    good = str(EXAMPLES / "pipeline.yaml")

    wrong_pipeline = said("place", str(pipeline), "--geography", str(EXAMPLES / "geography.yaml"))
    wrong_geography = said("place", good, "--geography", str(geography))

    assert wrong_pipeline == (
        f"spotline: {pipeline}: gpus: expected a known field (did you mean min_gpus?), found gpus\n"
    )
    assert (
        wrong_geography
        == f"spotline: {geography}: regions[0].gpus: expected a number >= 0, found -1\n"
    )


def test_place_names_the_file_that_a_geography_names(tmp_path: Path) -> None:
    geography = tmp_path / "geography.yaml"
    geography.write_text((EXAMPLES / "geography-series.yaml").read_text())
    prices = tmp_path / "prices.csv"
    header, first, *rest = (EXAMPLES / "prices.csv").read_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index("usd_per_mwh")] = "dear"
    prices.write_text("\n".join([header, ",".join(cells), *rest, ""]))

    line = said("place", str(EXAMPLES / "pipeline.yaml"), "--geography", str(geography))

    assert line == (
        f"spotline: {geography}: regions[0].energy_usd_per_kwh: {prices}: line 2, field usd_per_mwh: "
        "expected a number, found 'dear'\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "jobs.yaml: (file): expected at least one job, found an empty list"),
        ("[" * 5000, "jobs.yaml: line 1: expected at most 32 levels of lists and mappings, found"),
        ("- 5", "jobs.yaml [0]: (file): expected a mapping of fields, found 5"),
        ("value_usd: 1e30", "jobs.yaml: value_usd: expected a number <= 1e+12 (USD), found '1e30'"),
    ],
)
def test_simulate_names_file_entry_and_field(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)

    assert expected in said("simulate", "--market", "mixed", "--jobs", str(path))


def test_weights_are_named_as_any_other_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text('{"format_version": 1, "format_version": 1}')

    line = said("simulate", "--market", "mixed", "--jobs", "1", "--warm-start", str(path))

    assert line == f"spotline: {path}: format_version: expected each field once, found it again\n"


def test_a_store_that_cannot_be_made_is_said_in_a_line(tmp_path: Path) -> None:
    market, file = tmp_path / "m.parquet", tmp_path / "file"
    file.write_text("")
    made = CliRunner().invoke(
        app, ["market", "generate", "--preset", "mixed", "--days", "1", "-o", str(market)]
    )
    assert made.exit_code == 0, made.output

    line = said("up", "--market", str(market), "--store", str(file / "store"), *ANYWHERE)
    again = said("demo", "--market", str(market), "--out", str(file / "run"))

    assert line == (
        f"spotline: {file / 'store'}: expected a path that can be used, found: Not a directory\n"
    )
    assert again.endswith(
        f"{file / 'run' / 'store'}: expected a path that can be used, found: Not a directory\n"
    )


def test_a_cloud_that_is_not_there_and_a_setting_that_no_cloud_has_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("up", "--market", "m.parquet", "--store", str(tmp_path / "store"))

    no_cloud = said(*words, "--cloud", "moon")
    monkeypatch.setenv("SPOTLINE_CLOUD_SIMULATED_SEDE", "3")
    no_setting = said(*words)

    assert no_cloud == "spotline: cloud: expected one of aws, local, simulated, found 'moon'\n"
    assert no_setting.startswith(
        "spotline: SPOTLINE_CLOUD_SIMULATED_SEDE: expected a setting of a cloud (did you mean "
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--speed", "60", "--slots-per-s", "2", "--market", "m.parquet"),
            "--speed, --slots-per-s: expected one of them, as each says how fast the market runs, found 2",
        ),
        (
            ("--speed", "60", "--wall-clock", "--market", "m.parquet"),
            "--speed, --wall-clock: expected one of them, as each says how fast the market runs, found 2",
        ),
        (("--speed", "inf"), "--speed: expected finite and >= 0, found inf"),
        (
            (),
            "--market: expected a file with the prices of cloud simulated "
            "(docs/market-format.md), found nothing",
        ),
        (
            ("--cloud", "local", "--market", "m.parquet"),
            "this cloud's instances live in wall time, so its market must too: give --speed X "
            "(market seconds in a second) or --wall-clock",
        ),
        (
            ("--cloud", "local", "--wall-clock"),
            "--wall-clock shifts a market file to begin now, and there is no --market: leave it "
            "out, the machine's own market runs by time",
        ),
        (
            ("--cloud", "local", "--speed", "60", "--wait-for-work"),
            "a market that runs by wall clock cannot wait for work: choose one of the two",
        ),
    ],
)
def test_up_says_which_options_do_not_go_together(
    tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    assert said("up", "--store", str(tmp_path / "store"), *words) == f"spotline: {line}\n"
