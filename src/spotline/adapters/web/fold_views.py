"""Views answered from a fold in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.standing import JobViews
from spotline.adapters.web.asked_outlooks import AskedOutlooks
from spotline.adapters.web.changes import ChangeWatch, RecentChanges
from spotline.application.allocator.jobs_state import JobsState
from spotline.application.allocator.messages import JobPage, JobStatus
from spotline.application.allocator.ports import JobsHost
from spotline.application.board.messages import FleetView
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
from spotline.contracts.errors import InvariantViolation
from spotline.contracts.reasons import Reason
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.runtime.health import Health

_OF_PIPELINES = (PipelineSubmitted, PlacementDecided, PlacementEnded)
_LONGEST_ID = 128


class FoldHost(JobsHost, Protocol):
    """What keeps the fold: a running host, or whatever else applies a log."""

    def health(self) -> Health:
        """Whether it follows its log."""
        ...


class FoldViews:
    """Answers from a host's state; give `on_applied` to the host, then `attach` it.

    Parameters
    ----------
    outlooks
        What is expected of jobs, None where nobody works that out.
    """

    def __init__(self, *, outlooks: AskedOutlooks | None = None) -> None:
        self._attached: tuple[FoldHost, JobViews] | None = None
        self._outlooks = outlooks
        self._feed = JobFeed()
        self._feed.on_change = self._note_change
        self._changes = RecentChanges(self._finished)

    def attach(self, host: FoldHost) -> None:
        """Name the host whose state is answered from."""
        self._attached = host, JobViews(host, self._feed, outlooks=self._outlooks)

    @property
    def _host(self) -> FoldHost:
        if self._attached is None:
            raise InvariantViolation("views are asked before a host is attached")
        return self._attached[0]

    @property
    def _views(self) -> JobViews:
        if self._attached is None:
            raise InvariantViolation("views are asked before a host is attached")
        return self._attached[1]

    @property
    def _state(self) -> JobsState:
        return self._host.state

    # --- the log --------------------------------------------------------------------------------

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the host: every applied event with its seq, in order. Never waits."""
        self._feed.on_applied(event, envelope, seq)
        if isinstance(event, MarketOpened | SlotOpened):
            self._changes.note(ViewChange(place=LogPlace(seq=seq), change=KINDS[type(event)]))
        elif isinstance(event, CostAccrued):
            status = self._state.statuses.get(event.job_id)
            if status is not None and status.state.over:
                # The last bill: nothing follows that would show it too.
                self._note_change(event.job_id, KINDS[CostAccrued], seq)

    def _note_change(self, job_id: str, change: str, seq: int) -> None:
        status, told = self._state.statuses.get(job_id), self._feed.told
        if status is None or (told is None and change == KINDS[AllocationDecided]):
            # A decision that changes nothing.
            return
        noted = ViewChange(
            place=LogPlace(seq=seq),
            change=change,
            job_id=job_id,
            tenant=status.job.tenant,
            ts_event_ns=0 if told is None else told.ts_event_ns,
            text="" if told is None else told.text,
        )
        self._changes.note(noted)

    def end(self) -> None:
        """End every watch: the server stops."""
        self._changes.end()
        self._feed.end()

    # --- answers --------------------------------------------------------------------------------

    def clock(self) -> ClockReading | None:
        """Market and wall time."""
        return self._views.clock()

    async def jobs(self, query: ViewQuery) -> JobPage:
        """A page of jobs."""
        await self._refresh()
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
            statuses=await self._views.statuses(shown),
            next_page_token=next_page_token,
            fleet=await self.fleet(query.tenant),
        )

    def _is_asked(self, query: ViewQuery, job_id: str) -> bool:
        if query.phase is None and query.flag is None:
            return True
        view = self._views.view(job_id)
        return query.phase in (None, view.phase) and (
            query.flag is None or query.flag in view.flags
        )

    async def job(self, job_id: str, *, tenant: str = "") -> JobStatus:
        """A job."""
        whole = self._whole(job_id, tenant)
        await self._refresh()
        return await self._views.status(whole)

    async def happenings(self, job_id: str, query: HappeningQuery) -> HappeningPage:
        """What happened to a job."""
        whole = self._whole(job_id, query.tenant)
        found = self._feed.history.of(whole, after_seq=query.after_seq)
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
        await self._refresh()
        return self._views.fleet(tenant)

    async def watch(self, query: WatchQuery) -> ChangeWatch:
        """Follow changes."""
        if query.job_id:
            query = replace(query, job_id=self._whole(query.job_id, query.tenant))
        return self._changes.watch(query)

    def health(self) -> Mapping[str, str | int | bool]:
        """What the host says of itself."""
        health = self._host.health()
        return {"healthy": health.healthy, **health.detail}

    async def _refresh(self) -> None:
        if self._outlooks is not None:
            await self._outlooks.refresh()

    # --- one job --------------------------------------------------------------------------------

    def _whole(self, job_id: str, tenant: str) -> str:
        """The id of the only job (of a tenant, where one is named) that `job_id` is, or begins."""
        statuses = self._state.statuses
        known = statuses.get(job_id)
        if known is not None and tenant in ("", known.job.tenant):
            return job_id
        found = [
            whole
            for whole, status in statuses.items()
            if whole.startswith(job_id) and tenant in ("", status.job.tenant)
        ]
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

    async def _finished(self, change: ViewChange) -> ViewChange:
        await self._refresh()
        known = change.job_id in self._state.statuses
        view = (await self._views.status(change.job_id)).view if known else None
        return replace(change, clock=self.clock(), view=view)
