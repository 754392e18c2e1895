"""Clocks, ids and dice are refused in deciding code, and only there."""

from __future__ import annotations

import pytest

CALLS = {
    "clock": "import time\n\nNOW_S = time.time()\n",
    "aliased_clock": "from time import monotonic as now\n\nNOW_S = now()\n",
    "wall_clock_in_utc": "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n",
    "random_id": "from uuid import uuid4\n\nID = uuid4()\n",
    "dice": "import random\n\nDRAW = random.random()\n",
    "numpy_dice": "import numpy as np\n\nRNG = np.random.default_rng()\n",
    "stray_task": "import asyncio\n\nTASK = asyncio.create_task(None)\n",
}


def banned(tree, folder: str, source: str) -> str:
    tree.append(f"{folder}/planted.py", source)
    return tree.run(
        "ruff", "check", "--no-cache", "--select", "TID251", "--output-format", "concise", folder
    ).stdout


@pytest.mark.parametrize("layer", ["domain", "contracts", "application"])
@pytest.mark.parametrize("call", CALLS)
def test_planted_call_is_caught_in_deciding_code(tree, layer, call):
    report = banned(tree, f"src/spotline/{layer}", CALLS[call])

    assert "planted.py" in report
    assert "TID251" in report


@pytest.mark.parametrize(
    "folder",
    [
        *(f"src/spotline/{layer}" for layer in ("adapters", "runtime", "cli", "replay", "bench")),
        "src/spotline/bootstrap",
        "src/spotline/demo",
        "services/forecaster",
    ],
)
def test_shells_may_read_the_clock(tree, folder):
    report = banned(tree, folder, CALLS["clock"])

    assert "planted.py" not in report
