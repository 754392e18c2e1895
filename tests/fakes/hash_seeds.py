"""What a function says in processes with other hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def told_under_seeds(module: str, function: str, *seeds: str) -> list[str]:
    """What `function()` of a module returns, as text, in a process with each of these hash seeds."""
    told = []
    for seed in seeds:
        said = subprocess.run(
            [sys.executable, "-c", f"from {module} import {function}; print({function}())"],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT))),
            },
            check=True,
            capture_output=True,
            text=True,
        )
        told.append(said.stdout.strip())
    return told
