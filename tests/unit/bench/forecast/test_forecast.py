"""The comparison of forecasters, on a market of a few days that is generated here."""

import json

import pytest
from typer.testing import CliRunner

from spotline.bench.forecast.families import ForecastFamily, load_families
from spotline.bench.forecast.measure import HORIZON_SLOTS, measure
from spotline.bench.forecast.report import PLOT_NAME, report_text, write_report
from spotline.cli.main import app
from spotline.contracts.errors import ContractError
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.market.generate import PRESETS, generate
from tests.fakes.market_slots import START_NS


@pytest.fixture(scope="module")
def bench():
    preset = min(PRESETS)
    market = generate(preset, seed=1, slots=120, slot_s=1800, start_ns=START_NS)
    family = ForecastFamily(name="made-up", description="a generated market", markets=(market,))
    return measure([family], forecasters=("persistence", "climatology", DEFAULT_FORECASTER))


def test_json_holds_a_list_of_twelve_per_measure(bench):
    written = json.loads(json.dumps(bench.as_json()))

    assert written["default"] == DEFAULT_FORECASTER
    assert set(written["families"]["made-up"]) == {"persistence", "climatology", DEFAULT_FORECASTER}
    for result in written["families"]["made-up"].values():
        for key in ("crps", "price_error_ppm", "vs_persistence", "coverage_50", "coverage_90"):
            assert len(result[key]) == HORIZON_SLOTS
        assert result["ms_per_slot"] > 0


def test_persistence_is_its_own_measure(bench):
    steps = bench.families[0].forecasters["persistence"].steps

    assert all(step.vs_persistence == step.price_vs_persistence == 1.0 for step in steps)


def test_report_names_the_default_and_has_a_plot(bench, tmp_path):
    path = write_report(bench, tmp_path / "report")

    text = path.read_text(encoding="utf-8")
    assert text == report_text(bench)
    assert f"| **{DEFAULT_FORECASTER}** |" in text
    assert (tmp_path / "report" / PLOT_NAME).stat().st_size > 1_000


def test_absent_data_is_named(tmp_path):
    with pytest.raises(ContractError, match=r"expected files .*16-node"):
        load_families(tmp_path)


def test_unknown_family_exits_with_two(tmp_path):
    answer = CliRunner().invoke(
        app, ["bench", "forecast", "--data", str(tmp_path), "--family", "32-node"]
    )

    assert answer.exit_code == 2
    assert "16-node, 4-node, nine-zones, neocloud" in answer.stderr
