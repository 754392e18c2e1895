import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from spotline.adapters.market.parquet import read_market
from spotline.cli.market import market_app

run = CliRunner().invoke

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def _generate(path, *extra):
    return run(market_app, ["generate", "--slots", "96", "--seed", "3", "-o", str(path), *extra])


def test_generate_writes_a_market_and_says_what_is_in_it(tmp_path):
    result = _generate(tmp_path / "m.parquet")
    assert result.exit_code == 0
    assert "preset mixed, seed 3" in result.stdout
    assert read_market(tmp_path / "m.parquet").slots == 96


def test_generate_as_json_lists_offerings_and_times(tmp_path):
    path = tmp_path / "m.parquet"
    summary = json.loads(_generate(path, "--json", "--start", "2026-02-01T00:00:00+01:00").stdout)
    assert (summary["path"], summary["slots"], summary["slot_s"]) == (str(path), 96, 1800)
    assert (summary["start"], summary["end"]) == ("2026-01-31T23:00:00Z", "2026-02-02T23:00:00Z")
    assert len(summary["offerings"]) == 3


@pytest.mark.parametrize("preset", ["mixed", "cloud-zones", "neocloud"])
def test_describe_prints_and_draws(tmp_path, preset):
    _generate(tmp_path / "m.parquet", "--preset", preset)
    png = tmp_path / "m.png"
    result = run(market_app, ["describe", str(tmp_path / "m.parquet"), "--plot", str(png)])
    assert result.exit_code == 0
    assert "Spot price, USD per instance-hour" in result.stdout
    assert "Available spot instances" in result.stdout
    assert png.read_bytes().startswith(PNG_MAGIC)


def test_describe_draws_beside_the_file_unless_told_not_to(tmp_path):
    market = tmp_path / "m.parquet"
    run(market_app, ["generate", "--slots", "100", "-o", str(market)])

    run(market_app, ["describe", str(market), "--no-plot"])
    assert not (tmp_path / "m.png").exists()
    run(market_app, ["describe", str(market)])

    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_describe_as_json_holds_every_statistic(tmp_path):
    _generate(tmp_path / "m.parquet")
    described = json.loads(
        run(market_app, ["describe", str(tmp_path / "m.parquet"), "--json"]).stdout
    )
    first = described["statistics"]["offerings"][0]
    assert first["offering_id"] == "cloud:east-1a:a100-1x"
    assert 0 <= first["availability"]["up_fraction"] <= 1
    assert first["price"]["autocorrelation_1h"] <= 1


def test_import_of_unknown_counts_can_be_described_and_drawn(tmp_path):
    source = tmp_path / "p.csv"
    source.write_text(
        "slot_start,offering_id,spot_price_usd_per_instance_hour\n"
        + "".join(f"2026-01-01T{h:02d}:00:00Z,a:b1:c,{1 + h / 100}\n" for h in range(24))
    )
    market, png = str(tmp_path / "m.parquet"), tmp_path / "m.png"
    arguments = ["import", "--format", "csv", str(source), "--on-demand-usd", "3", "-o", market]
    imported = run(market_app, [*arguments, "--json"])
    assert imported.exit_code == 0
    assert json.loads(imported.stdout)["source"] == "csv: p.csv"
    described = run(market_app, ["describe", market, "--plot", str(png)])
    assert "counts unknown" in described.stdout
    assert png.read_bytes().startswith(PNG_MAGIC)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "none.parquet"], "none.parquet: expected a market file"),
        (["generate", "--preset", "x", "-o", "m"], "--preset: expected one of mixed"),
        (["generate", "--start", "2026-01-01", "-o", "m"], "--start: expected a time with UTC"),
        (["generate", "-o", "no/such/folder/m"], "--output: expected a file in a folder that is there, found no folder no/such/folder"),
        (["import", "--format", "x", "f", "-o", "m"], "--format: expected one of skypilot"),
        (["import", "--format", "csv", "none", "-o", "m"], "none: expected a file, found none"),
        (["import", "--format", "csv", "f", "--on-demand-usd", "x", "-o", "m"], "--on-demand-usd:"),
        (["import", "--format", "skypilot", "f", "--price", "x", "-o", "m"], "or an existing file"),
    ],
)
def test_bad_input_exits_2_and_says_what_was_expected(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = run(market_app, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_importing_the_commands_loads_no_heavy_library():
    code = (
        "import sys, spotline.cli.market; "
        "print([m for m in ('numpy', 'pyarrow', 'matplotlib', 'river') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"
