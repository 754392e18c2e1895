"""Commands that only ask a running system start at once: what computes is not loaded for them."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numba", "ortools", "river", "pyarrow", "matplotlib", "sqlalchemy", "aiohttp", "nats")


def test_the_command_line_loads_nothing_that_computes():
    code = f"import sys, spotline.cli.main; print([m for m in {HEAVY} if m in sys.modules])"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


def test_nor_does_the_client_that_commands_call_with():
    code = (
        "import sys, spotline.adapters.grpc.allocator.client; "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"
