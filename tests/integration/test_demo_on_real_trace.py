"""The demo on a real trace, end to end through the broker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.fakes.processes import ROOT
from tests.integration.test_commands import spotline

DATA = Path(os.environ.get("SPOTLINE_DATA", ROOT.parent / "shared" / "data"))
TRACES = DATA / "spot-traces-skypilot" / "availability" / "16-node" / "aws-08-27-2023"
PRICES = DATA / "spot-price-aws-gpu-2020" / "aws_spot_price_2019-12-20_2020-03-23.csv.gz"


@pytest.mark.skipif(
    not (TRACES.is_dir() and PRICES.is_file()),
    reason="real traces are not here: set SPOTLINE_DATA to the folder that holds them",
)
def test_hard_deadlines_are_met_and_msu_is_not_better(tmp_path: Path) -> None:
    imported = spotline(
        *("market", "import", "--format", "skypilot"),
        *(str(path) for path in sorted(TRACES.glob("*.json"))),
        *("--price", str(PRICES), "--start", "2023-08-27T00:00:00Z", "--slot", "1800"),
        *("-o", "real.parquet"),
        cwd=tmp_path,
    )
    assert imported.returncode == 0, imported.stderr

    done = spotline(
        *("demo", "--market", "real.parquet", "--jobs", "30", "--out", "run", "--json", "r.json"),
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["completed"] == 30
    assert result["missed_deadlines"] == 0
    ours = result["policies"]["spotline"]["mean_utility_usd"]
    assert ours >= result["policies"]["msu"]["mean_utility_usd"]
    assert result["ledger_usd"] == result["decided_usd"]
