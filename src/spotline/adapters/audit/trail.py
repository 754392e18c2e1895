"""A chain that a service writes to off its loop: what comes together is one write to the disk."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

import structlog

from spotline.application.identity.audit import Act, AuditRecord, ChainHead
from spotline.contracts.errors import AuditUnavailable
from spotline.runtime.metrics import Readings

_log = structlog.get_logger(__name__)

_HEAD_S = 600.0
_MOST_TOGETHER = 4_096
_MOST_OWED = 65_536


class Chain(Protocol):
    """What appends to a chain, as `ChainFile` does."""

    chain: str

    @property
    def head(self) -> ChainHead:
        """The last record."""
        ...

    def append(self, acts: Sequence[Act]) -> list[AuditRecord]:
        """Record acts in this order, all or none; `AuditUnavailable` for none."""
        ...

    def close(self) -> None:
        """Let go of what it writes to."""
        ...


@dataclass(slots=True)
class _Asked:
    """An act that somebody may wait for."""

    act: Act
    # It is about what was done already: it cannot be refused, only be late.
    owed: bool
    written: Future[int] = field(default_factory=Future)


@dataclass(slots=True)
class AuditFigures:
    """What was done since the start: records written, and how often none could be."""

    written: int = 0
    failures: int = 0
    owed: int = 0

    def records(self) -> Readings:
        """What was written, as a metric has it."""
        return [(float(self.written), {})]

    def failed(self) -> Readings:
        """How often nothing could be written, as a metric has it."""
        return [(float(self.failures), {})]


class ThreadedTrail:
    """The port `AuditTrail` on a chain, from a thread of its own; any loop may ask.

    Its head goes to the service's log at the start, at the end and every ten minutes in which
    something was written: kept elsewhere, it shows whether a chain was cut or written anew.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._owed: list[_Asked] = []
        self._told_at = float("-inf")
        self._closed = False
        # Held from the look at `_closed` to the queue: nothing is put behind the end, where the
        # thread would never come to it.
        self._closing = threading.Lock()
        self.figures = AuditFigures()
        self._thread = threading.Thread(target=self._run, name=f"audit-{chain.chain}", daemon=True)
        self._thread.start()

    async def write(self, act: Act) -> int:
        """Record an act; `AuditUnavailable` where it cannot be."""
        asked = self._ask(act, owed=False)
        return await asyncio.wrap_future(asked.written)

    async def settle(self, act: Act) -> None:
        """Record what came of something; what cannot be recorded now is owed."""
        # Recorded also where nobody waits any more: the caller may have gone.
        asked = self._ask(act, owed=True)
        await asyncio.shield(asyncio.wrap_future(asked.written))

    def note(self, act: Act) -> None:
        """Record an act that nothing waits for."""
        self._ask(act, owed=True)

    def write_now(self, act: Act) -> int:
        """As `write`, for those that have no loop; `AuditUnavailable` where it cannot be."""
        return self._ask(act, owed=False).written.result()

    def close(self) -> None:
        """Write what was asked for, and let go of the files. Safe to repeat."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._asked.put(None)
        self._thread.join()
        self._chain.close()

    def __enter__(self) -> ThreadedTrail:
        """Use it, and close it in the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _ask(self, act: Act, *, owed: bool) -> _Asked:
        asked = _Asked(act, owed)
        with self._closing:
            if not self._closed:
                self._asked.put(asked)
                return asked
        asked.written.set_exception(AuditUnavailable("the audit is closed: the service ends"))
        return asked

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        ending = False
        while not ending:
            batch: list[_Asked] = []
            asked = self._asked.get()
            while asked is not None:
                batch.append(asked)
                if len(batch) >= _MOST_TOGETHER or self._asked.empty():
                    break
                asked = self._asked.get()
            ending = asked is None
            # One that was cancelled before it was taken is not begun.
            self._record([each for each in batch if each.owed or _taken(each)])
        if self._owed:
            _log.error("audit_lost", chain=self._chain.chain, records=len(self._owed))
        self._tell_head(last=True)

    def _record(self, batch: list[_Asked]) -> None:
        together = [*self._owed, *batch]
        if not together:
            return
        try:
            records = self._chain.append([asked.act for asked in together])
        except AuditUnavailable as error:
            self._fail(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - told to the log and to whoever waits
            # A thread that ended here would leave every caller waiting for ever.
            _log.exception("audit_broken", chain=self._chain.chain)
            self._fail(batch, AuditUnavailable(f"it broke ({type(error).__name__}: {error})"))
            return
        if self._owed:
            _log.info("audit_caught_up", chain=self._chain.chain, records=len(self._owed))
        self._owed = []
        self.figures.written += len(records)
        self.figures.owed = 0
        for asked, record in zip(together, records, strict=True):
            _answer(asked, record.seq)
        self._tell_head()

    def _fail(self, batch: list[_Asked], error: AuditUnavailable) -> None:
        """Refuse what was not begun; what was done is owed."""
        self.figures.failures += 1
        _log.error("audit_failed", chain=self._chain.chain, reason=str(error))
        done = [asked for asked in batch if asked.owed]
        room = _MOST_OWED - len(self._owed)
        if len(done) > room:
            _log.error("audit_lost", chain=self._chain.chain, records=len(done) - room)
        self._owed += done[:room]
        self.figures.owed = len(self._owed)
        for asked in batch:
            if asked.owed:
                _answer(asked, 0)
            else:
                asked.written.set_exception(error)

    def _tell_head(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if not self.figures.written or (not last and now - self._told_at < _HEAD_S):
            return
        self._told_at = now
        head = self._chain.head
        _log.info("audit_head", chain=self._chain.chain, seq=head.seq, sha256=head.sha256)


def _taken(asked: _Asked) -> bool:
    return asked.written.set_running_or_notify_cancel()


def _answer(asked: _Asked, seq: int) -> None:
    if not asked.written.done():
        asked.written.set_result(seq)
