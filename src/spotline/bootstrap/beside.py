"""A process beside the one that serves: what takes seconds or minutes holds up no page there."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_NICENESS = 10


class ProcessBeside:
    """Works one piece after another in a fresh process, which begins with the first of them."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._children: set[BaseProcess] = set()

    def begin(self, piece: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin with a piece when those before it are done. Never waits."""
        try:
            return self._submitted(piece, *args, **kwargs)
        except BrokenProcessPool:
            # What ended it was told to whoever waited for that piece; others go on in another.
            self.close()
            return self._submitted(piece, *args, **kwargs)

    def _submitted(self, piece: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._pool is None:
            # A fresh process: this one has threads, which a fork would not have.
            fresh = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=fresh, initializer=end_with_parent)
        others = set(multiprocessing.active_children())
        begun = self._pool.submit(piece, *args, **kwargs)
        self._children |= set(multiprocessing.active_children()) - others
        return begun

    def close(self) -> None:
        """Work nothing out any more. Safe to repeat."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for child in self._children:
                child.terminate()
            self._pool = None


def end_with_parent() -> None:
    """End this process with the one that began it, however that ends: nobody would wait for it.

    What serves goes before it.
    """
    os.nice(_NICENESS)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def end() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=end, name="parent", daemon=True).start()
