"""Where a job stands, as the service answers it: its place in the log, its etag, and its view."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import grpc

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.application.allocator.handler import JobsState
from spotline.application.allocator.messages import JobStatus
from spotline.application.allocator.ports import JobsHost
from spotline.application.board.messages import FleetView, JobView
from spotline.application.board.otherwise import OtherCosts, OtherLives, other_costs, other_lives
from spotline.application.board.ports import Outlooks
from spotline.application.board.view import SilenceLimit, fleet_of, view_of
from spotline.application.market_view import ClockReading
from spotline.contracts.mapping import digest
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.job import Job

_ETAG_CHARACTERS = 16
# Kernels may have to be compiled first: an answer then says what was worked out before.
_MOST_WAIT_S = 2.0
_MOST_COSTS = 20_000


def etag_of(job: Job) -> str:
    """A text that changes when what the owner of a job states does."""
    return digest(job)[:_ETAG_CHARACTERS]


def status_of(state: JobsState, feed: JobFeed, job_id: str) -> JobStatus:
    """Where a job stands.

    Raises
    ------
    RpcRefused
        There is no such job.
    """
    status, stated = state.statuses.get(job_id), state.owners(job_id)
    if status is None or stated is None:
        raise unknown_job(job_id)
    return replace(status, seq=feed.seq_of(job_id), etag=etag_of(stated))


def unknown_job(job_id: str, of: str = "") -> RpcRefused:
    """The refusal for a job that does not exist; `of` says more of it, such as its tenant."""
    if not job_id:
        return RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            "job_id must not be empty",
            reason=Reason.FIELD_INVALID,
            field="job_id",
        )
    return RpcRefused(
        grpc.StatusCode.NOT_FOUND,
        f"there is no job {job_id}{of}; `spotline status` lists all",
        reason=Reason.UNKNOWN_JOB,
        field="job_id",
    )


def need_open(status: JobStatus) -> None:
    """Refuse what comes for a job that is over."""
    if status.state.over:
        raise RpcRefused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"job {status.job.job_id} is over ({status.state.value}); nothing was recorded",
            reason=Reason.JOB_OVER,
            field="job_id",
        )


@dataclass(frozen=True, slots=True)
class _Priced:
    """What other rules would have cost `job` when it had so many offers and `slot` was open."""

    job: Job
    slots: int
    slot: int
    costs: OtherCosts


class JobViews:
    """Where jobs stand as people are shown it, from the host's read model.

    Parameters
    ----------
    outlooks
        What is expected of jobs; None: nothing is known of that.
    silence
        How long a program may be silent before it counts as stalled.
    """

    def __init__(
        self,
        host: JobsHost,
        feed: JobFeed,
        *,
        outlooks: Outlooks | None = None,
        silence: SilenceLimit | None = None,
    ) -> None:
        self._host = host
        self._feed = feed
        self._outlooks = outlooks
        self._silence = silence or SilenceLimit()
        self._priced: OrderedDict[str, _Priced] = OrderedDict()
        self._working: asyncio.Task[None] | None = None
        self._fleet: tuple[int, FleetView] | None = None

    def clock(self) -> ClockReading | None:
        """Market time with its wall time, None before a market is known."""
        reading = self._host.state.recent.clock()
        return reading and replace(reading, wall_ns=self._feed.opened_wall_ns)

    def view(self, job_id: str) -> JobView:
        """Where a job stands, at the costs that were worked out last.

        Raises
        ------
        RpcRefused
            There is no such job.
        """
        state = self._host.state
        status = state.statuses.get(job_id)
        if status is None:
            raise unknown_job(job_id)
        priced = self._priced.get(job_id)
        return view_of(
            state.board,
            status.job,
            state.recent,
            outlook=None if self._outlooks is None else self._outlooks.latest(job_id),
            otherwise=None if priced is None else priced.costs,
            silence=self._silence,
            last_report_wall_ns=self._feed.heard_wall_ns(job_id),
        )

    async def status(self, job_id: str) -> JobStatus:
        """`status_of` with the view."""
        return (await self.statuses((job_id,)))[0]

    async def statuses(self, job_ids: Sequence[str]) -> tuple[JobStatus, ...]:
        """`status_of` with the view, of several jobs at one moment."""
        await self._price(job_ids)
        state, feed = self._host.state, self._feed
        return tuple(
            replace(status_of(state, feed, job_id), view=self.view(job_id)) for job_id in job_ids
        )

    def fleet(self, tenant: str = "") -> FleetView:
        """What all jobs of a tenant hold together; empty: of all tenants.

        That of all is worked out again when something was applied, that of a tenant each time.
        """
        state = self._host.state
        if tenant:
            entries = {
                job_id: entry
                for job_id, entry in state.board.entries.items()
                if entry.tenant == tenant
            }
            theirs = replace(
                state.board, entries=entries, holding=state.board.holding & entries.keys()
            )
            their_views = (self.view(job_id) for job_id, entry in entries.items() if not entry.over)
            return fleet_of(theirs, state.recent, their_views)
        if self._fleet is not None and self._fleet[0] == state.applied:
            return self._fleet[1]
        open_jobs = [job_id for job_id, entry in state.board.entries.items() if not entry.over]
        fleet = fleet_of(state.board, state.recent, map(self.view, open_jobs))
        self._fleet = (state.applied, fleet)
        return fleet

    async def _price(self, job_ids: Sequence[str]) -> None:
        """Work out what other rules would have cost, where that is not known for now.

        In a thread, one at a time; what takes too long is there for a later answer.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOST_WAIT_S):
                while lives := self._unpriced(job_ids):
                    if self._working is None:
                        self._working = asyncio.ensure_future(self._work_out(lives))
                    working = self._working
                    await asyncio.wait((working,))
                    if self._working is working:
                        self._working = None
                    working.result()

    async def _work_out(self, lives: Sequence[tuple[str, _Priced, OtherLives]]) -> None:
        found = await asyncio.to_thread(lambda: [other_costs(life) for _, _, life in lives])
        for (job_id, priced, _), costs in zip(lives, found, strict=True):
            self._priced[job_id] = replace(priced, costs=costs)
            self._priced.move_to_end(job_id)
        while len(self._priced) > _MOST_COSTS:
            self._priced.popitem(last=False)

    def _unpriced(self, job_ids: Iterable[str]) -> list[tuple[str, _Priced, OtherLives]]:
        state = self._host.state
        market, found = state.recent, []
        for job_id in job_ids:
            offers, status = state.board.offers.jobs.get(job_id), state.statuses.get(job_id)
            if offers is None or status is None or market.opened is None:
                continue
            known = self._priced.get(job_id)
            at = (status.job, offers.slots, market.opened.slot)
            if known is not None and (known.job, known.slots, known.slot) == at:
                continue
            lives = other_lives(offers, status.job, market)
            if lives is not None:
                found.append((job_id, _Priced(*at, OtherCosts()), lives))
        return found
