"""The demo on a real trace, end to end through the broker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.analytics.options import StatisticsOptions
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of, is_dead_letter
from tests.fakes.batch_statistics import batch, latest
from tests.fakes.processes import ROOT
from tests.fakes.statistics_log import folded
from tests.integration.test_commands import spotline

DATA = Path(os.environ.get("SPOTLINE_DATA", ROOT.parent / "shared" / "data"))
TRACES = DATA / "spot-traces-skypilot" / "availability" / "16-node" / "aws-08-27-2023"
PRICES = DATA / "spot-price-aws-gpu-2020" / "aws_spot_price_2019-12-20_2020-03-23.csv.gz"


# Two minutes of a suite that may take ten; the demos on generated markets run every time.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (TRACES.is_dir() and PRICES.is_file()),
        reason="real traces are not here: set SPOTLINE_DATA to the folder that holds them",
    ),
]


@pytest.fixture(scope="module")
def real_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Thirty jobs on a real trace: the folder of the run, and what it says of itself."""
    folder = tmp_path_factory.mktemp("real")
    imported = spotline(
        *("market", "import", "--format", "skypilot"),
        *(str(path) for path in sorted(TRACES.glob("*.json"))),
        *("--price", str(PRICES), "--start", "2023-08-27T00:00:00Z", "--slot", "1800"),
        *("-o", "real.parquet"),
        cwd=folder,
    )
    assert imported.returncode == 0, imported.stderr
    done = spotline(
        *("demo", "--market", "real.parquet", "--jobs", "30", "--out", "run", "--json", "r.json"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads((folder / "r.json").read_text())


def test_hard_deadlines_are_met_and_msu_is_not_better(
    real_demo: tuple[Path, dict[str, Any]],
) -> None:
    _, result = real_demo

    assert result["completed"] == 30
    assert result["missed_deadlines"] == 0
    ours = result["policies"]["spotline"]["mean_utility_usd"]
    assert ours >= result["policies"]["msu"]["mean_utility_usd"]
    assert result["ledger_usd"] == result["decided_usd"]


def test_statistics_equal_a_batch_over_the_recorded_log(
    real_demo: tuple[Path, dict[str, Any]],
) -> None:
    folder, result = real_demo
    options = StatisticsOptions()
    log = EventLogReader(folder / "run" / "log")
    taken = [one for entry in log if not is_dead_letter(entry) for one in unpacked(entry)]
    ours = list(log.statistics())
    issued = {one.headers["ce-id"]: event_of(one) for one in ours}

    expected = {one.event_id: one.event for one in folded(taken, options)}

    # A run ends with its last job, whether or not the analytics are done.
    assert len(issued) > 0.8 * len(expected)
    assert issued.items() <= expected.items()
    specs = [(one.size_s, one.hop_s) for one in options.windows]
    whole = batch(taken, specs)
    assert latest(expected.values()) == whole
    days = [one for key, one in whole.items() if key[:3] == ("platform", "*", 86_400)]
    spent = max(one["total"]["spend"][0] for one in days)
    assert 0 < spent <= result["ledger_usd"] * 1e6
    assert max(one["total"]["regret"][0] for one in days) > 0
