"""What a program says in processes with other hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def said_under(hash_seed: str, program: str) -> str:
    """What a program prints in a process of its own with this hash seed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT))),
        },
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.stdout.strip()


def told_under_seeds(module: str, function: str, *seeds: str) -> list[str]:
    """What `function()` of a module returns, as text, in a process with each of these hash seeds."""
    program = f"from {module} import {function}; print({function}())"
    return [said_under(seed, program) for seed in seeds]
