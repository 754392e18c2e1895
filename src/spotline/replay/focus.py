"""A recorded log as rows of FOCUS."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.focus.rows import FocusLedger, FocusRow
from spotline.application.page.applied import applied
from spotline.replay.recorded import ReadableLog


def focus_rows(log: Path, ledger: FocusLedger) -> Iterator[FocusRow]:
    """The rows of a log's charges, in its order, and then what of commitments nobody used.

    `ledger` is a fresh one; its totals are those of the rows that were yielded.

    Raises
    ------
    UnreadableLog
        There is none, or it cannot be read.
    """
    reader = EventLogReader(log)
    for recorded in chain.from_iterable(map(ReadableLog().events_of, reader)):
        told = applied(recorded.event, recorded.envelope, recorded.seq, wall_ns=recorded.stored_ns)
        yield from ledger.fold(told)
    yield from ledger.unused()
