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
        (
            ["generate", "-o", "no/such/folder/m"],
            "--output: expected a file in a folder that is there, found no folder no/such/folder",
        ),
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


def _described(*arguments):
    result = run(market_app, ["describe", *map(str, arguments), "--no-plot", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_json_says_the_numbers_of_the_text(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "m.parquet"
    _generate(path, "--preset", "cloud-gang", "--slots", "672")

    supply = _described(path, "--instances", 8)["supply"]
    text = run(market_app, ["describe", str(path), "--instances", "8", "--no-plot"]).stdout

    assert supply["instances"] == 8
    for offering in supply["offerings"]:
        assert 0 < offering["share_there"] < 1
        (line,) = [
            line
            for line in text.partition("Spot for a job of 8 instances")[2].splitlines()
            if line.startswith(offering["offering_id"])
        ]
        said = (f"{offering['share_there']:.1%}", f"{offering['mean_discount']:.1%}")
        assert all(number in line for number in said)
    assert f"all at once {supply['share_all']:.1%}" in text
    assert f"has enough {supply['share_any']:.1%} of the time" in text


def test_several_files_are_described_in_order_and_drawn_in_one_picture(tmp_path):
    for name, preset in (("a", "mixed"), ("b", "cloud-gang")):
        _generate(tmp_path / f"{name}.parquet", "--preset", preset)
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]

    markets = _described(*files)["markets"]
    result = run(market_app, ["describe", *map(str, files)])

    assert [market["path"] for market in markets] == [str(file) for file in files]
    assert result.stdout.index("a.parquet: 96 slots") < result.stdout.index("b.parquet: 96 slots")
    assert (tmp_path / "a-b.png").read_bytes().startswith(PNG_MAGIC)


def test_offerings_are_chosen_by_their_id(tmp_path):
    path = tmp_path / "m.parquet"
    _generate(path, "--preset", "cloud-zones")
    everything = _described(path)
    ids = [offering["offering_id"] for offering in everything["offerings"]]

    chosen = _described(path, "--offering", ids[5], "--offering", ids[2], "--offering", ids[5])

    assert len(ids) == 9
    assert len(everything["supply"]["offerings"]) == 8
    assert [o["offering_id"] for o in chosen["supply"]["offerings"]] == [ids[2], ids[5]]
    assert len(chosen["statistics"]["offerings"]) == 9


def test_an_offering_that_only_one_of_two_files_has_is_refused_for_the_other(tmp_path):
    for name, preset in (("a", "mixed"), ("b", "cloud-gang")):
        _generate(tmp_path / f"{name}.parquet", "--preset", preset)
    files = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]

    result = run(market_app, ["describe", *files, "--offering", "cloud:east-1a:a100-1x"])

    assert result.exit_code == 2
    assert f"--offering: expected at least one that {files[1]} has" in result.stderr


def test_a_reservation_is_no_spot_to_draw(tmp_path):
    from spotline.adapters.files.reservations_file import add_reservations
    from spotline.adapters.market.parquet import write_market

    _generate(tmp_path / "m.parquet")
    (tmp_path / "r.yaml").write_text(
        "reservations: [{offering: 'cloud:east-1a:a100-1x', id: mine, instances: 4}]"
    )
    market = add_reservations(read_market(tmp_path / "m.parquet"), tmp_path / "r.yaml")
    write_market(market, tmp_path / "r.parquet")

    described = _described(tmp_path / "r.parquet")
    reserved = described["offerings"][3]["offering_id"]
    result = run(
        market_app, ["describe", str(tmp_path / "r.parquet"), "--offering", reserved, "--no-plot"]
    )

    assert len(described["supply"]["offerings"]) == 3
    assert result.exit_code == 2
    assert "expected an offering with spot, found the reservation" in result.stderr


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_no_number_is_cut_at_any_width(tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    path = tmp_path / "m.parquet"
    _generate(path)

    lines = run(market_app, ["describe", str(path), "--no-plot"]).stdout.splitlines()

    tables = [line for line in lines if line.startswith(("cloud:", "neocloud:"))]
    assert len(tables) == 9
    assert all(len(line) <= width and "\u2026" not in line for line in tables)
