"""Views answered from a fold in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from spotline.adapters.grpc.allocator.history import JobHistory
from spotline.adapters.grpc.allocator.standing import etag_of
from spotline.adapters.web.changes import ChangeWatch, RecentChanges
from spotline.application.allocator.jobs_state import JobsState
from spotline.application.allocator.messages import JobPage, JobStatus
from spotline.application.board.messages import FleetView, JobView
from spotline.application.board.ports import Outlooks
from spotline.application.board.view import fleet_of, view_of
from spotline.application.market_view import ClockReading
from spotline.application.paging import page_of_ids
from spotline.application.read_model.messages import (
    HappeningPage,
    HappeningQuery,
    LogPlace,
    MarketBoard,
    ViewChange,
    ViewQuery,
    WatchQuery,
)
from spotline.application.read_model.ports import InputProblem, ViewRefused, refused_input
from spotline.contracts.envelope import Envelope
from spotline.contracts.reasons import Reason
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.jobs.lot import Lot
from spotline.runtime.health import Health

_OF_PIPELINES = (PipelineSubmitted, PlacementDecided, PlacementEnded)
_LONGEST_ID = 128


class FoldHost(Protocol):
    """What keeps the fold: a running host, or whatever else applies a log."""

    @property
    def state(self) -> JobsState:
        """The fold, to be read between awaits and never changed."""
        ...

    def health(self) -> Health:
        """Whether it follows its log."""
        ...


class FoldViews:
    """Answers from a host's state; give `on_applied` to the host.

    Parameters
    ----------
    outlooks
        What is expected of jobs, None where nobody works that out.
    """

    def __init__(self, *, outlooks: Outlooks | None = None) -> None:
        self._host: FoldHost | None = None
        self._outlooks = outlooks
        self._history = JobHistory()
        self._changes = RecentChanges(self._finished)
        self._seqs: dict[str, int] = {}
        self._held: dict[str, tuple[Lot, ...]] = {}

    def attach(self, host: FoldHost) -> None:
        """Name the host whose state is answered from."""
        self._host = host

    @property
    def _state(self) -> JobsState:
        if self._host is None:
            raise RuntimeError("views are asked before a host is attached")
        return self._host.state

    # --- the log --------------------------------------------------------------------------------

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the host: every applied event with its seq, in order. Never waits."""
        if isinstance(event, MarketOpened | SlotOpened):
            self._history.note(event, "", seq)
            self._note(event, seq)
        elif isinstance(event, CapacityReported):
            self._note_held(event, seq)
        elif not isinstance(event, _OF_PIPELINES):
            job_id = event.job.job_id if isinstance(event, JobSubmitted) else _job_id_of(event)
            happening = self._history.note(event, job_id, seq)
            status = self._state.statuses.get(job_id)
            if status is None:
                return
            self._seqs[job_id] = seq
            if happening is None and self._is_told_otherwise(event, status):
                return
            self._note(
                event,
                seq,
                job_id=job_id,
                tenant=status.job.tenant,
                ts_event_ns=0 if happening is None else happening.ts_event_ns,
                text="" if happening is None else happening.text,
            )

    @staticmethod
    def _is_told_otherwise(event: Event, status: JobStatus) -> bool:
        """Whether an event changes nothing, or what a later one of the same slot shows too."""
        if isinstance(event, CostAccrued):
            return not status.state.over
        return isinstance(event, AllocationDecided)

    def _note_held(self, event: CapacityReported, seq: int) -> None:
        held = {holding.job_id: holding.lots for holding in event.holdings}
        before, self._held = self._held, held
        for job_id in sorted(before.keys() | held.keys()):
            status = self._state.statuses.get(job_id)
            if status is not None and before.get(job_id, ()) != held.get(job_id, ()):
                self._seqs[job_id] = seq
                self._note(event, seq, job_id=job_id, tenant=status.job.tenant)

    def _note(
        self,
        event: Event,
        seq: int,
        *,
        job_id: str = "",
        tenant: str = "",
        ts_event_ns: int = 0,
        text: str = "",
    ) -> None:
        change = ViewChange(
            place=LogPlace(seq=seq),
            change=KINDS[type(event)],
            job_id=job_id,
            tenant=tenant,
            ts_event_ns=ts_event_ns,
            text=text,
        )
        self._changes.note(change)

    def end(self) -> None:
        """End every watch: the server stops."""
        self._changes.end()
        self._history.end()

    # --- answers --------------------------------------------------------------------------------

    def clock(self) -> ClockReading | None:
        """Market and wall time."""
        return self._state.recent.clock()

    async def jobs(self, query: ViewQuery) -> JobPage:
        """A page of jobs."""
        state = self._state
        shown, next_page_token = page_of_ids(
            query,
            (
                job_id
                for job_id, status in state.statuses.items()
                if query.tenant in ("", status.job.tenant) and self._is_asked(query, job_id)
            ),
        )
        return JobPage(
            statuses=tuple(self._status(job_id) for job_id in shown),
            next_page_token=next_page_token,
            fleet=await self.fleet(query.tenant),
        )

    def _is_asked(self, query: ViewQuery, job_id: str) -> bool:
        if query.phase is None and query.flag is None:
            return True
        view = self._view(job_id)
        return query.phase in (None, view.phase) and (
            query.flag is None or query.flag in view.flags
        )

    async def job(self, job_id: str) -> JobStatus:
        """A job."""
        return self._status(self._whole(job_id))

    async def happenings(self, job_id: str, query: HappeningQuery) -> HappeningPage:
        """What happened to a job."""
        found = self._history.of(self._whole(job_id), after_seq=query.after_seq)
        size = query.size
        # Those of one entry of the log come together: a place leads behind all of them.
        while size < len(found) and found[size].seq == found[size - 1].seq:
            size += 1
        shown = tuple(found[:size])
        more = len(found) > len(shown)
        return HappeningPage(happenings=shown, next_after_seq=shown[-1].seq if more else 0)

    async def market(self) -> MarketBoard:
        """The market."""
        recent = self._state.recent
        return MarketBoard(
            status=self._state.market_status(),
            offerings=recent.offerings,
            quotes=() if recent.opened is None else recent.opened.quotes,
        )

    async def fleet(self, tenant: str) -> FleetView:
        """What all jobs hold together."""
        state = self._state
        open_jobs = [
            job_id
            for job_id, status in state.statuses.items()
            if not status.state.over and tenant in ("", status.job.tenant)
        ]
        return fleet_of(state.board, state.recent, [self._view(job_id) for job_id in open_jobs])

    async def watch(self, query: WatchQuery) -> ChangeWatch:
        """Follow changes."""
        if query.job_id:
            query = replace(query, job_id=self._whole(query.job_id))
        return self._changes.watch(query)

    def health(self) -> Mapping[str, str | int | bool]:
        """What the host says of itself."""
        if self._host is None:
            return {"healthy": False}
        health = self._host.health()
        return {"healthy": health.healthy, **health.detail}

    # --- one job --------------------------------------------------------------------------------

    def _whole(self, job_id: str) -> str:
        """The id of the only job whose id is, or begins with, `job_id`."""
        statuses = self._state.statuses
        if job_id in statuses:
            return job_id
        found = [whole for whole in statuses if whole.startswith(job_id)]
        if len(found) == 1 and job_id:
            return found[0]
        if not found or not job_id:
            raise ViewRefused(
                Reason.UNKNOWN_JOB,
                f"there is no job {job_id[:_LONGEST_ID]}; `spotline status` lists all",
                (InputProblem(field="job_id", expected="a job's id", found=job_id[:_LONGEST_ID]),),
            )
        raise refused_input(
            InputProblem(
                field="job_id",
                expected="an id, or a beginning of one that no other has",
                found=f"{job_id[:_LONGEST_ID]!r}, with which {len(found)} begin",
            )
        )

    def _status(self, job_id: str) -> JobStatus:
        state = self._state
        stated = state.owners(job_id)
        return replace(
            state.statuses[job_id],
            seq=self._seqs.get(job_id, 0),
            etag="" if stated is None else etag_of(stated),
            view=self._view(job_id),
        )

    def _view(self, job_id: str) -> JobView:
        state = self._state
        outlook = None if self._outlooks is None else self._outlooks.latest(job_id)
        return view_of(state.board, state.statuses[job_id].job, state.recent, outlook=outlook)

    def _finished(self, change: ViewChange) -> ViewChange:
        known = change.job_id in self._state.statuses
        view = self._view(change.job_id) if known else None
        return replace(change, clock=self.clock(), view=view)


def _job_id_of(event: Event) -> str:
    return str(getattr(event, "job_id", ""))
