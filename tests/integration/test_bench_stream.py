import json
import os
import subprocess
import sys

import pytest

from spotline.bench.stream.apps import VARIANTS

COMMAND = "from spotline.cli.main import app; app()"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.slow
def test_the_figures_of_all_variants_are_written_side_by_side(tmp_path):
    out = tmp_path / "stream.json"

    # A process of its own: it has its own event loop and its own way of logging.
    result = subprocess.run(
        [
            *(sys.executable, "-c", COMMAND, "bench", "stream"),
            *("--events", "300", "--repeats", "1", "--json", str(out)),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    figures = json.loads(out.read_text())
    assert list(figures["variants"]) == list(VARIANTS)
    for one in figures["variants"].values():
        rates = one["events_per_s"]
        assert 0 < rates["min"] <= rates["median"] <= rates["max"]
        assert len(rates["runs"]) == 1
    assert sum(figures["profile"]["share_of_time"].values()) == pytest.approx(1.0, abs=0.01)
    assert figures["target"]["target"] == 25_000
    assert "Where it goes" in result.stdout
