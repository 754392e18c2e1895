"""The small run as pages fold it, made once for all tests of a process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from spotline.application.page.applied import Applied, applied
from spotline.contracts.envelope import StoredEntry
from spotline.replay.recorded import readable_events
from tests.fakes.recorded_run import small_run


@cache
def small_entries() -> Sequence[StoredEntry]:
    """The log's entries."""
    return tuple(small_run())


@cache
def small_log() -> Sequence[Applied]:
    """What the log says, in its order."""
    return tuple(
        applied(found.event, found.envelope, found.seq, wall_ns=found.stored_ns)
        for found in readable_events(small_entries())
    )
