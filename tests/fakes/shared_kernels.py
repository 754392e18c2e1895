"""Let the test processes of one checkout compile each numba kernel once, not once each."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from numba.core import event

from spotline.bootstrap.planners import compile_planners

_KERNELS = Path(__file__).resolve().parents[2] / "src" / "spotline" / "domain"


class _OneCompilerAtATime(event.Listener):
    """Holds a lock of the checkout from before numba looks into its cache until it has compiled.

    A process that waited finds what the other one wrote. The lock is on the folder itself, so that
    nothing has to be removed, and ends with the process.
    """

    def __init__(self) -> None:
        self._threads = threading.RLock()
        self._depth = 0
        self._folder = -1

    def on_start(self, event: event.Event) -> None:
        self._threads.acquire()
        self._depth += 1
        if self._depth == 1:
            self._folder = os.open(_KERNELS, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._folder, fcntl.LOCK_EX)

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            os.close(self._folder)
        self._threads.release()


def share_kernels() -> None:
    """Compile under a lock from now on, in this process."""
    event.register("numba:compiler_lock", _OneCompilerAtATime())


def compile_kernels() -> None:
    """As a service does before anything waits for it."""
    compile_planners()


if __name__ == "__main__":
    share_kernels()
    compile_kernels()
