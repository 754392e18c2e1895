"""Let the test processes of one checkout compile each numba kernel once, not once each."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import Any

from numba.core import event
from numba.core.caching import Cache

from spotline.bootstrap.planners import compile_planners


class _OneCompilerAKernel(event.Listener, threading.local):
    """Holds a lock of each kernel from when numba does not find it on disk until it is there.

    A process that waited finds what the other one wrote, and nobody waits for another kernel.
    Kernels wait for those that they call, which never call them, so no two processes wait for each
    other. Locks end with their process.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._held: dict[str, int] = {}

    def take(self, cache: Any) -> None:
        path = _lock_of(cache)
        if path not in self._held:
            os.makedirs(cache.cache_path, exist_ok=True)
            self._held[path] = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._held[path], fcntl.LOCK_EX)

    def give(self, cache: Any) -> None:
        if (held := self._held.pop(_lock_of(cache), None)) is not None:
            os.close(held)

    def on_start(self, event: event.Event) -> None:
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            # Of kernels that could not be compiled.
            for held in self._held.values():
                os.close(held)
            self._held.clear()


def _lock_of(cache: Any) -> str:
    return f"{cache._cache_file._index_path}.lock"


def share_kernels() -> None:
    """Compile under locks from now on, in this process."""
    locks, load, save = _OneCompilerAKernel(), Cache.load_overload, Cache.save_overload

    def load_or_lock(cache: Any, signature: Any, target: Any) -> Any:
        found = load(cache, signature, target)
        if found is not None:
            return found
        locks.take(cache)
        found = load(cache, signature, target)
        if found is not None:
            locks.give(cache)
        return found

    def save_and_unlock(cache: Any, signature: Any, compiled: Any) -> None:
        try:
            save(cache, signature, compiled)
        finally:
            locks.give(cache)

    event.register("numba:compiler_lock", locks)
    Cache.load_overload, Cache.save_overload = load_or_lock, save_and_unlock


def compile_kernels() -> None:
    """As a service does before anything waits for it."""
    compile_planners()


if __name__ == "__main__":
    share_kernels()
    compile_kernels()
