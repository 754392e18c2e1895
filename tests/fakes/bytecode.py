"""Compiles the tests once, before many processes would each compile all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Fewer are compiled by the workers as fast.
_WORTH_IT = 50


def compile_tests(root: Path, processes: int) -> None:
    """Have every test file of `root` compiled and its assertions rewritten, each file once.

    A test that cannot be collected is told of by the workers.
    """
    fresh = [file for file in sorted(root.rglob("test_*.py")) if not _is_compiled(file)]
    if len(fresh) < _WORTH_IT:
        return
    compiling = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-qq", *map(str, share)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for share in (fresh[first::processes] for first in range(processes))
    ]
    for process in compiling:
        process.wait()


def _is_compiled(file: Path) -> bool:
    tag = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}"
    compiled = file.parent / "__pycache__" / f"{file.stem}.{tag}.pyc"
    return compiled.exists() and compiled.stat().st_mtime >= file.stat().st_mtime
