"""What the allocator expects of jobs, asked of it while somebody reads: it alone works that out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.application.allocator.messages import JobQuery, JobState, JobStatus
from spotline.application.paging import LARGEST_PAGE
from spotline.domain.jobs.outlook import JobOutlook

_log = structlog.get_logger(__name__)

FRESH_S = 2.0
_WAIT_S = 1.0
_OPEN = (JobState.PENDING, JobState.RUNNING, JobState.FINISHING)


class JobLister(Protocol):
    """Lists jobs with their views; the allocator's client is one."""

    async def list_all(self, query: JobQuery | None = None) -> tuple[JobStatus, ...]:
        """Every job a query finds.

        Raises
        ------
        RpcFailed
            It is refused, or no answer comes in time.
        """
        ...


class AskedOutlooks:
    """The outlooks of open jobs, as the allocator said them last; each says of which slot it is.

    Parameters
    ----------
    fresh_s
        Seconds of wall time within which it is not asked again.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        allocator: JobLister,
        *,
        fresh_s: float = FRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allocator = allocator
        self._fresh_s = fresh_s
        self._clock = clock
        self._known: Mapping[str, JobOutlook] = {}
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._answered = True

    @property
    def known(self) -> Mapping[str, JobOutlook]:
        """What was said last, by job. Never waits."""
        return self._known

    def latest(self, job_id: str) -> JobOutlook | None:
        """What was said last of a job. Never waits."""
        return self._known.get(job_id)

    async def refresh(self) -> None:
        """Ask again where that was long ago, and wait a moment for the answer."""
        if self._asking is None:
            if self._clock() < self._asked_s + self._fresh_s:
                return
            self._asking = asyncio.create_task(self._ask(), name="outlooks")
            self._asking.add_done_callback(self._forget)
        await asyncio.wait((self._asking,), timeout=_WAIT_S)

    def close(self) -> None:
        """Ask no more. Safe to repeat."""
        if self._asking is not None:
            self._asking.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            # What is no refusal of the allocator's is a mistake of ours.
            task.result()

    async def _ask(self) -> None:
        self._asked_s = self._clock()
        known: dict[str, JobOutlook] = {}
        try:
            for state in _OPEN:
                query = JobQuery(state=state, page_size=LARGEST_PAGE)
                for status in await self._allocator.list_all(query):
                    if status.view is not None and status.view.outlook is not None:
                        known[status.job.job_id] = status.view.outlook
        except RpcFailed as error:
            if self._answered:
                _log.warning("outlooks_not_told", error=str(error))
            self._answered = False
            return
        self._known, self._answered = known, True
