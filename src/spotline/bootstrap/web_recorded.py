"""What pages of a recorded log ask of it beside the book: explanations, and what was expected."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

import structlog

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.page.sources import Workbench
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.outlook.following import Following
from spotline.application.outlook.outlook import job_outlook
from spotline.bootstrap.beside import ProcessBeside
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted, JobUpdated
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.replay.explain import LogExplainer, RecordedEntries
from spotline.replay.handlers import selector_options
from spotline.replay.recorded import readable_events

_MOST_KEPT = 500
_MOST_LISTED = 5_000

_log = structlog.get_logger(__name__)


class RecordedExplainer:
    """Explains decisions of one recorded log; it is read when the first is asked for."""

    def __init__(self, log: Path, bench: Workbench) -> None:
        self._log = log
        self._bench = bench
        self._opened: tuple[LogExplainer, RecordedEntries] | None = None
        self._kept: OrderedDict[DecisionQuery, DecisionExplanation] = OrderedDict()

    async def explain(self, query: DecisionQuery, *, token: str = "") -> DecisionExplanation:
        """See `Explainer`."""
        return await self._bench.work(lambda: self._explained(query))

    def _explained(self, query: DecisionQuery) -> DecisionExplanation:
        known = self._kept.get(query)
        if known is not None:
            return known
        if self._opened is None:
            reader = EventLogReader(self._log)
            explainer = LogExplainer(selector_options(reader.manifest.settings))
            self._opened = explainer, RecordedEntries(reader)
        explainer, entries = self._opened
        explanation = explainer.explain(entries, query)
        self._kept[query] = explanation
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return explanation


class FoldedOutlooks:
    """Says what was expected of a job at the end of a slot, as the allocator would have.

    The selector's state is folded on from slot to slot, and again from the beginning for one that
    lies before.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._events: list[Event] | None = None
        self._following: Following | None = None
        self._place = 0
        self._jobs: dict[str, Job] = {}
        self._kept: OrderedDict[tuple[str, int], JobOutlook | None] = OrderedDict()

    def worked_out(self, job_id: str, at: int | None) -> JobOutlook | None:
        """As `JobOutlooks.outlook`; seconds."""
        self._fold_to(at)
        following = self._following
        if following is None:
            return None
        key = (job_id, following.slot)
        if key not in self._kept:
            known, job = following.snapshot(), self._only(job_id)
            if known is None or job is None:
                return None
            self._kept[key] = job_outlook(known, job)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    def _fold_to(self, at: int | None) -> None:
        if self._events is None:
            self._events = list(self._read())
        following = self._following
        if following is None or (at is not None and following.slot > at):
            options = selector_options(EventLogReader(self._log).manifest.settings)
            following, self._place = Following(options), 0
            self._jobs.clear()
            self._following = following
        for event in self._events[self._place :]:
            if at is not None and isinstance(event, SlotOpened) and event.slot > at:
                break
            following.fold(event)
            if isinstance(event, JobSubmitted | JobUpdated):
                self._jobs[event.job.job_id] = event.job
            self._place += 1

    def _only(self, name: str) -> Job | None:
        """The job of this id, or the only one whose id begins so."""
        found = [job for job_id, job in self._jobs.items() if name and job_id.startswith(name)]
        return self._jobs.get(name) or (found[0] if len(found) == 1 else None)

    def _read(self) -> Iterator[Event]:
        for recorded in readable_events(EventLogReader(self._log)):
            yield recorded.event


class RecordedOutlooks:
    """Works outlooks of one recorded log out on a bench, for the page of one job."""

    def __init__(self, log: Path, bench: Workbench) -> None:
        self._folded = FoldedOutlooks(log)
        self._bench = bench

    async def outlook(self, job_id: str, at: int | None, *, token: str = "") -> JobOutlook | None:
        """See `JobOutlooks`."""
        return await self._bench.work(lambda: self._folded.worked_out(job_id, at))


class ListedOutlooks:
    """Works outlooks of many jobs of one recorded log out in a process of its own, one by one.

    Each is worked out once: it is a function of log, slot and job.
    """

    def __init__(self, log: Path, beside: ProcessBeside | None = None) -> None:
        self._log = log
        self._beside = beside or ProcessBeside()
        self._begun: OrderedDict[tuple[str, int | None], Future[JobOutlook | None]] = OrderedDict()

    def known(self, job_ids: Sequence[str], at: int | None) -> Mapping[str, JobOutlook | None]:
        """See `JobOutlooksBeside`."""
        wanted = {(job_id, at) for job_id in job_ids}
        for key, begun in list(self._begun.items()):
            # What nobody looks at any more goes behind; it is begun again when somebody does.
            if key not in wanted and begun.cancel():
                del self._begun[key]
        found = {}
        for job_id in job_ids:
            key = job_id, at
            if key not in self._begun:
                self._begun[key] = self._beside.begin(listed_outlook, self._log, job_id, at)
            self._begun.move_to_end(key)
            if self._begun[key].done():
                found[job_id] = _said(self._begun[key], job_id)
        while len(self._begun) > _MOST_LISTED and next(iter(self._begun)) not in wanted:
            self._begun.popitem(last=False)
        return found

    def close(self) -> None:
        """Work nothing out any more. Safe to repeat."""
        self._beside.close()


def _said(begun: Future[JobOutlook | None], job_id: str) -> JobOutlook | None:
    error = begun.exception()
    if error is None:
        return begun.result()
    _log.warning("outlook_not_worked_out", job_id=job_id, error=f"{type(error).__name__}: {error}")
    return None


_folded: dict[Path, FoldedOutlooks] = {}
"""In the process beside: what was folded of its log for the outlook before."""


def listed_outlook(log: Path, job_id: str, at: int | None) -> JobOutlook | None:
    """Work an outlook out in this process, which keeps what it has folded for the next."""
    if log not in _folded:
        _folded[log] = FoldedOutlooks(log)
    return _folded[log].worked_out(job_id, at)
