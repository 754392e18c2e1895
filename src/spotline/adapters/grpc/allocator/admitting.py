"""Recording submissions, and waiting until log and ledger both hold them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc

from spotline.adapters.grpc.allocator.changing import Planning
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.application.allocator.ports import JobsHost
from spotline.application.spec import derive_id
from spotline.contracts.limits import CallerLimits
from spotline.contracts.reasons import Reason
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.units import PPM

_TIMEOUT_S = 10.0
_RETRY_S = 2.0
# Jobs end by the slot.
_RETRY_JOBS_S = 60.0
# Each waits in memory only; beyond this many nobody would wait for the last one's answer.
_MOST_WAITING = 4_000


async def likely_enough(planning: Planning, job: Job, least_on_time_ppm: int) -> JobOutlook | None:
    """What is expected of a job that is to be recorded, None where that is not asked for.

    Raises
    ------
    RpcRefused
        It is less likely to be on time than `least_on_time_ppm`, or nobody can say yet.
    """
    if not 0 <= least_on_time_ppm <= PPM:
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"least_on_time_ppm must be 0..{PPM}, was {least_on_time_ppm}",
            reason=Reason.FIELD_INVALID,
            field="least_on_time_ppm",
        )
    if not least_on_time_ppm:
        return None
    outlook = await planning.expected(job)
    if outlook is None:
        raise RpcRefused(
            grpc.StatusCode.UNAVAILABLE,
            "what is expected of the job cannot be said before a slot has opened; try again when "
            "one has, or leave out least_on_time_ppm",
            reason=Reason.MARKET_NOT_OPEN,
        )
    if outlook.on_time_probability_ppm < least_on_time_ppm:
        raise RpcRefused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"job.deadline must be met with a probability of at least {least_on_time_ppm / 1e4:g} %, "
            f"was {outlook.on_time_probability_ppm / 1e4:g} %; nothing was recorded",
            reason=Reason.DEADLINE_UNLIKELY,
            field="job.deadline",
        )
    return outlook


class Acknowledging:
    """Records jobs and waits until they are applied, and the ledger holds them.

    A job that was taken before 0.3.0 is in no ledger's admissions and is not waited for.
    """

    def __init__(self, host: JobsHost, feed: JobFeed, *, await_admission: bool) -> None:
        self._host = host
        self._feed = feed
        self._await_admission = await_admission
        # Jobs of one tenant that are not over.
        self.most_open = CallerLimits().most_open_jobs_a_tenant
        self._recording: Counter[str] = Counter()
        self._waiting = 0
        self._own: set[str] = set()

    @contextmanager
    def room(self) -> Iterator[None]:
        """Take one of the places for those who wait.

        Raises
        ------
        RpcRefused
            There is none.
        """
        if self._waiting >= _MOST_WAITING:
            raise RpcRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_MOST_WAITING} submissions wait to be acknowledged; nothing was recorded, try "
                "again later",
                reason=Reason.TOO_MANY_REQUESTS,
                retry_s=_RETRY_S,
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def record(self, job: Job) -> None:
        """Record a job, and wait until the read model shows it and the ledger holds it.

        Raises
        ------
        RpcRefused
            That takes too long; the same submission again says more. Or its tenant has too many
            jobs that are not over, and it was not recorded.
        """
        tenant = job.tenant
        open_jobs = self._host.state.open_jobs.get(tenant, 0) + self._recording[tenant]
        if open_jobs >= self.most_open:
            raise RpcRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"tenant {tenant!r} has {open_jobs} jobs that are not over, as many as it may have; "
                "nothing was recorded, try again when some are",
                reason=Reason.TOO_MANY_JOBS,
                retry_s=_RETRY_JOBS_S,
            )
        self._recording[tenant] += 1
        try:
            await self._record(job)
        finally:
            self._recording[tenant] -= 1
            if not self._recording[tenant]:
                del self._recording[tenant]

    async def _record(self, job: Job) -> None:
        job_id = job.job_id
        event = JobSubmitted(job=job, ts_event_ns=self._host.state.now_ns)
        if self._await_admission:
            self._own.add(job_id)
        seq = await self._host.publish_observation(
            event, event_id=derive_id(job_id, "submitted"), correlation_id=job_id
        )
        if not await self._until(job_id, lambda: job_id in self._host.state.statuses):
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"recorded as entry {seq}, but not applied within {_TIMEOUT_S:g} s; "
                "submit it again to learn more",
                reason=Reason.NOT_APPLIED_YET,
                retry_s=_RETRY_S,
            )
        await self.admitted(job_id)

    async def admitted(self, job_id: str) -> None:
        """Wait until the ledger holds a job that the log does; `RpcRefused` as `record`."""
        state = self._host.state
        if not self._await_admission or not (job_id in self._own or job_id in state.unrecorded):
            return
        if not await self._until(job_id, lambda: job_id in state.recorded):
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"the log holds it, but the ledger does not after {_TIMEOUT_S:g} s (is the actuator "
                "running?); submit it again to learn more",
                reason=Reason.NOT_ADMITTED_YET,
                retry_s=_RETRY_S,
            )
        self._own.discard(job_id)

    async def _until(self, job_id: str, condition: Callable[[], bool]) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._feed.arrivals.until(job_id, condition)
        except TimeoutError:
            return False
        return True
