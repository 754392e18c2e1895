"""Let the test processes of one checkout compile each numba kernel once, not once each."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core import event
from numba.core.caching import Cache

from spotline.bootstrap.planners import compile_planners
from spotline.domain.kernels import CACHE_FOLDER

# They call kernels as nothing else does, and compile for up to minutes each: some have less time.
COMPILING = (
    "tests/unit/domain/certificates/test_certificate.py"
    "::test_charged_by_the_true_value_every_future_earns_the_optimum",
    "tests/unit/application/page/test_comparing.py"
    "::test_without_luck_no_job_earned_more_than_the_certified_bound",
    "tests/unit/domain/solvers/test_joint_bound.py::test_no_schedule_of_two_jobs_earns_more",
    "tests/contract/test_rules_match_reference.py"
    "::test_a_slot_is_decided_as_the_reference_decides_it",
    "tests/unit/domain/solvers/test_zone_table.py"
    "::test_spot_that_is_hardly_ever_lost_costs_its_ticks",
    "tests/unit/domain/solvers/test_coupled.py::test_one_job_is_the_window_program",
)

_KERNELS = Path(__file__).resolve().parents[2] / "src" / "spotline" / "domain"


class _OneCompilerAtATime(event.Listener, threading.local):
    """Holds a lock of the checkout from where numba misses a kernel on disk until it has compiled it.

    A process that waited finds what the other one wrote; who finds all that it needs waits for
    nobody. The lock is on the folder itself, so that nothing has to be removed, and ends with the
    process.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._folder = -1

    def take(self) -> None:
        if self._folder < 0:
            self._folder = os.open(_KERNELS, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._folder, fcntl.LOCK_EX)

    def on_start(self, event: event.Event) -> None:
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0 and self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def share_kernels() -> None:
    """Compile under a lock from now on, in this process."""
    lock, load = _OneCompilerAtATime(), Cache.load_overload

    def load_or_lock(cache: Any, signature: Any, target: Any) -> Any:
        found = load(cache, signature, target)
        if found is not None:
            return found
        lock.take()
        return load(cache, signature, target)

    event.register("numba:compiler_lock", lock)
    Cache.load_overload = load_or_lock


def compile_kernels() -> None:
    """What services call, then what tests alone call; once per folder of compiled kernels."""
    compile_planners()
    mark = None if CACHE_FOLDER is None else CACHE_FOLDER / "kernels-of-tests-compiled"
    if mark is None or mark.exists():
        return
    # If that is ended half-way, tests compile the rest themselves.
    with suppress(OSError):
        mark.touch()
    # In this process's place, so that it ends when this one is told to. What is wrong, the suite says.
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "-q", "-n0", *COMPILING])


if __name__ == "__main__":
    share_kernels()
    compile_kernels()
