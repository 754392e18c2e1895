"""Commands that only ask a running system start at once: what computes is not loaded for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numba", "ortools", "river", "pyarrow", "matplotlib", "sqlalchemy", "aiohttp", "nats")


@pytest.mark.parametrize("module", ["spotline.cli.main", "spotline.adapters.grpc.allocator.client"])
def test_what_only_asks_loads_none_of_the_heavy_libraries(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"
