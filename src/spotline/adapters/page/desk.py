"""Where the page's book is kept: a thread of its own folds, looks up and renders.

Whoever serves only hands over what was applied and waits for what is asked: neither folding a log
nor making a page of many jobs holds up the loop that events flow through.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import structlog

from spotline.application.page.applied import Applied
from spotline.application.page.book import PageBook
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.reasons import Reason

_log = structlog.get_logger(__name__)

T = TypeVar("T")

# Deciding goes before showing.
_NICENESS = 10
_A_TURN = 500
# Of a log that is folded from its beginning events come faster than they are folded here.
_MOST_WAITING = 20_000


class FileShelf:
    """Keeps bytes in a file that has no name, and is gone with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="spotline-page-")  # noqa: SIM115 - see close
        self._places: list[tuple[int, int]] = []
        self._end = 0

    def put(self, content: bytes) -> int:
        """See `Shelf`."""
        self._file.seek(self._end)
        self._file.write(content)
        self._places.append((self._end, len(content)))
        self._end += len(content)
        return len(self._places) - 1

    def get(self, number: int) -> bytes:
        """See `Shelf`."""
        at, size = self._places[number]
        self._file.seek(at)
        return self._file.read(size)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class PageDesk:
    """A book, and the thread that alone touches it."""

    def __init__(self) -> None:
        self._shelf = FileShelf()
        self._book = PageBook(self._shelf)
        self._thread = ThreadPoolExecutor(1, "page", initializer=yield_to_others)
        self._waiting: deque[Applied] = deque()
        self._folding: Future[None] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def apply(self, told: Applied) -> None:
        """Take an event; it is folded in the thread. Waits for it where very many wait already."""
        self._waiting.append(told)
        if len(self._waiting) >= _MOST_WAITING:
            self._thread.submit(self._fold_some).result()
        self._wake()

    async def ask(self, work: Callable[[PageBook], T]) -> T:
        """What `work` finds in the book, with all folded that was applied before.

        Raises
        ------
        ViewRefused
            What was applied cannot be kept now, such as on a full disk: nothing of it is lost.
        """

        def answered() -> T:
            try:
                self._fold(len(self._waiting))
            except OSError as error:
                raise ViewRefused(
                    Reason.VIEWS_UNAVAILABLE, f"pages cannot be kept on disk now: {error}"
                ) from error
            return work(self._book)

        return await asyncio.wrap_future(self._thread.submit(answered))

    def read(self, log: Iterable[Applied]) -> None:
        """Fold a log as far as it goes; returns when that is done."""

        def folded() -> None:
            for told in log:
                self._book.apply(told)

        self._thread.submit(folded).result()

    def close(self) -> None:
        """Fold and answer no more. Safe to repeat."""
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._shelf.close()

    def _wake(self) -> None:
        with self._lock:
            if self._closed or (self._folding is not None and not self._folding.done()):
                return
            self._folding = self._thread.submit(self._turn)

    def _turn(self) -> None:
        # In portions, so that a page is not waited for until a long log is folded.
        folded = self._fold_some()
        with self._lock:
            self._folding = None
        if folded and self._waiting:
            self._wake()

    def _fold_some(self) -> bool:
        """Fold a portion; False where it cannot be kept now: the next event tries again."""
        try:
            self._fold(_A_TURN)
        except OSError as error:
            _log.warning("page_not_folded", error=str(error), waiting=len(self._waiting))
            return False
        return True

    def _fold(self, most: int) -> None:
        for _ in range(most):
            try:
                told = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._book.apply(told)
            except OSError:
                # Nothing was folded of it: it comes first when there is room again.
                self._waiting.appendleft(told)
                raise


def yield_to_others() -> None:
    """Be scheduled behind the threads that decide, where the system knows niceness of threads."""
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
