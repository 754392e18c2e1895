"""Outlooks worked out beside the log: the quote of a job handed over, and those of running jobs."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import structlog

from spotline.application.allocator.ports import JobsHost
from spotline.application.outlook.following import SelectorSnapshot
from spotline.application.outlook.outlook import job_outlook
from spotline.application.spec import derive_id
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed, JobQuoted, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.runtime.metrics import Readings
from spotline.runtime.telemetry import Telemetry

_log = structlog.get_logger(__name__)

# Jobs that wait to be quoted; the oldest gives way, for its quote would come the latest.
_MOST_WAITING = 64
# A job that was handed over longer ago, in slots, is not quoted any more.
_MOST_SLOTS_LATE = 2
# After each outlook the thread rests twice as long as that took: a third of a core.
_REST = 2.0
_TIMEOUT_S = 60.0


class BackgroundOutlooks:
    """Works out one outlook at a time in a thread of its own, at a third of a core at most.

    Jobs handed over come first, the oldest of them first: each is quoted once, as `JobQuoted`. Then
    jobs that run come in turn, each once a slot at most. Give `on_applied` to the host, and `run`
    to a task group; `latest` is what the board shows. An outlook that fails is counted in `failed`
    and ends nothing.
    """

    def __init__(self, host: JobsHost, telemetry: Telemetry) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="spotline-outlook")
        self._closed = threading.Event()
        self._found: dict[str, JobOutlook] = {}
        # Job id, and the slot that was open when it was handed over.
        self._waiting: deque[tuple[str, int]] = deque()
        # By job: the slot that its outlook was worked out in.
        self._done_in: dict[str, int] = {}
        self._wake = asyncio.Event()
        self.dropped = 0
        self.failed = 0
        telemetry.observe("spotline.quotes.dropped", lambda: _reading(self.dropped))
        telemetry.observe("spotline.outlooks.failed", lambda: _reading(self.failed))

    def latest(self, job_id: str) -> JobOutlook | None:
        """The outlook that was worked out last for a job, None where none was yet. Never waits."""
        return self._found.get(job_id)

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Take note of jobs and slots; nothing is worked out here."""
        match event:
            case JobSubmitted():
                self._queue(event.job.job_id)
            case JobQuoted():
                self._found.setdefault(event.job_id, event.outlook)
                self._unqueue(event.job_id)
            case JobClosed():
                self._forget(event.job_id)
            case SlotOpened():
                self._wake.set()
            case _:
                pass

    async def run(self) -> None:
        """Work until cancelled, from when the log is followed live."""
        while True:
            work = self._next()
            if work is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            began_s = perf_counter()
            await self._work_out(*work)
            await asyncio.sleep(_REST * (perf_counter() - began_s))

    def close(self) -> None:
        """Let go of the thread; an outlook in progress is given up before its next future."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _queue(self, job_id: str) -> None:
        following = self._host.state.following
        if following is None:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self._drop(self._waiting.popleft()[0])
        self._waiting.append((job_id, following.slot))
        self._wake.set()

    def _drop(self, job_id: str) -> None:
        self.dropped += 1
        _log.warning("quote_dropped", job_id=job_id, waiting=len(self._waiting))

    def _unqueue(self, job_id: str) -> None:
        self._waiting = deque(waits for waits in self._waiting if waits[0] != job_id)

    def _forget(self, job_id: str) -> None:
        self._found.pop(job_id, None)
        self._done_in.pop(job_id, None)
        self._unqueue(job_id)

    def _next(self) -> tuple[str, bool, SelectorSnapshot] | None:
        """The next job, whether it is to be quoted, and what is known now; None: nothing is due."""
        following = self._host.state.following
        if following is None or following.slot < 0:
            return None
        while self._waiting and 0 <= self._waiting[0][1] < following.slot - _MOST_SLOTS_LATE:
            self._drop(self._waiting.popleft()[0])
        quoted = bool(self._waiting)
        job_id = self._waiting.popleft()[0] if quoted else self._due(following.running())
        known = None if job_id is None else following.snapshot()
        if job_id is None or known is None:
            return None
        self._done_in[job_id] = following.slot
        return job_id, quoted, known

    def _due(self, running: list[str]) -> str | None:
        """The running job whose outlook is the oldest, None where all are of this slot."""
        following = self._host.state.following
        slot = -1 if following is None else following.slot
        behind = [job_id for job_id in running if self._done_in.get(job_id, -1) < slot]
        return min(behind, key=lambda job_id: (self._done_in.get(job_id, -1), job_id), default=None)

    async def _work_out(self, job_id: str, quoted: bool, known: SelectorSnapshot) -> None:
        status = self._host.state.statuses.get(job_id)
        if status is None or status.state.over:
            return
        try:
            outlook = await self._in_thread(known, status.job)
        except Exception:  # noqa: BLE001 - told in full below, counted and alarmed
            # Nothing is decided by an outlook: a bug in it must not end what buys and releases. The
            # job comes again with the next slot.
            self.failed += 1
            _log.exception("outlook_failed", job_id=job_id, slot=known.state.slot)
            return
        now = self._host.state.statuses.get(job_id)
        if outlook is None or now is None or now.state.over:
            return
        self._found[job_id] = outlook
        if quoted:
            await self._publish(status.job, known.state.slot, outlook)

    async def _in_thread(self, known: SelectorSnapshot, job: Job) -> JobOutlook | None:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads,
            lambda: job_outlook(known, job, wanted=lambda: not self._closed.is_set()),
        )

    async def _publish(self, job: Job, slot: int, outlook: JobOutlook) -> None:
        event = JobQuoted(job_id=job.job_id, tenant=job.tenant, slot=slot, outlook=outlook)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._host.publish_observation(
                    event, event_id=derive_id(job.job_id, "quoted"), correlation_id=job.job_id
                )
        except (ProviderUnavailable, TimeoutError) as error:
            # Nothing depends on a quote: the job goes on without one.
            self.dropped += 1
            _log.warning("quote_not_stored", job_id=job.job_id, error=str(error))


def _reading(count: int) -> Readings:
    return [(float(count), {})]
