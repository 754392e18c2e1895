"""A recorded log folded to what a written report says of it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.page.applied import applied
from spotline.application.page.state import PageState
from spotline.contracts.errors import ContractError
from spotline.replay.recorded import ReadableLog


def page_state_of(log: Path) -> PageState:
    """A log's end, as its pages are made from it.

    Raises
    ------
    UnreadableLog
        There is none, or it cannot be read.
    ContractError
        No slot was ever opened in it.
    """
    state = PageState()
    entries = EventLogReader(log)
    for recorded in chain.from_iterable(map(ReadableLog().events_of, entries)):
        state.fold(
            applied(recorded.event, recorded.envelope, recorded.seq, wall_ns=recorded.stored_ns)
        )
    if state.slot < 0:
        raise ContractError(str(log), "expected a log in which a slot was opened, found none")
    return state


def job_named(state: PageState, name: str) -> str:
    """The id of a job by its id, how that begins, or its name.

    Raises
    ------
    ContractError
        There is none, or there are several.
    """
    statuses = state.jobs.statuses
    found = [name] if name in statuses else []
    found = found or [each for each, status in statuses.items() if status.job.name == name]
    found = found or [each for each in statuses if each.startswith(name)]
    if len(found) != 1:
        several = ", ".join(each[:12] for each in found[:5])
        raise ContractError(
            "JOB", f"expected one job of {name!r}, found {several if found else 'none'}"
        )
    return found[0]
