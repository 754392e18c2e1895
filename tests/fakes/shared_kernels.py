"""Let the test processes of one checkout compile each numba kernel once, not once each."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

from numba.core import event
from numba.core.caching import Cache

from spotline.bootstrap.planners import compile_planners

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
    """As a service does before anything waits for it."""
    compile_planners()


if __name__ == "__main__":
    share_kernels()
    compile_kernels()
