"""What the host applies, handed on to callers that wait for a job or watch one."""

from __future__ import annotations

import asyncio

import grpc

from spotline.adapters.grpc.allocator.history import JobHistory
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.contracts.envelope import Envelope
from spotline.contracts.reasons import Reason
from spotline.contracts.subjects import KINDS
from spotline.domain.events.capacity import (
    CapacityLost,
    InterruptionNoticed,
    InterruptionWithdrawn,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    AdmissionRecorded,
    JobClosed,
    JobExited,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.events.training import (
    AgentJoined,
    CheckpointCommitted,
    CheckpointFailed,
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
    NoticeAcknowledged,
    TrainingRestarted,
)
from spotline.runtime.applied import AppliedFeed

_QUEUED_UPDATES = 256
_OF_PIPELINES = (PipelineSubmitted, PlacementDecided, PlacementEnded)
# What a status does not show; ReadEvents tells of it.
_IN_NO_STATUS = (
    *(CapacityLost, InterruptionNoticed, InterruptionWithdrawn, JobExited),
    *(AgentJoined, GenerationFormed, TrainingRestarted, JobSilent, JobHeard),
    *(CheckpointCommitted, CheckpointFailed, NoticeAcknowledged, JobStalled, JobStallEnded),
)


class JobFeed:
    """What the host applies, handed on to callers that wait for a job or watch one.

    `arrivals` are the submissions and updates, and that the ledger holds a job, by job id;
    `history` is what has happened to each.
    """

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}
        self.arrivals = AppliedFeed(_waited_for)
        self.history = JobHistory()
        self._watches: dict[str, set[Watch]] = {}

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the host: every applied event with its seq, in order. Never waits."""
        job_id = event.job.job_id if isinstance(event, JobSubmitted) else _job_id_of(event)
        self.history.note(event, job_id, seq)
        if not job_id or isinstance(event, _OF_PIPELINES + _IN_NO_STATUS):
            return
        if isinstance(event, AdmissionRecorded):
            # Nothing that a status shows.
            self.arrivals.on_applied(event, envelope, seq)
            return
        self._seqs[job_id] = max(seq, self._seqs.get(job_id, 0))
        self.arrivals.on_applied(event, envelope, seq)
        for watch in self._watches.get(job_id, ()):
            watch.put(KINDS[type(event)], seq, closes=isinstance(event, JobClosed))

    def seq_of(self, job_id: str) -> int:
        """The seq of the last event of a job that this process has seen applied, 0 for none."""
        return self._seqs.get(job_id, 0)

    def watch(self, job_id: str) -> Watch:
        """Follow a job from now on; close it in the end."""
        watch = Watch(self, job_id)
        self._watches.setdefault(job_id, set()).add(watch)
        return watch

    def end(self) -> None:
        """End every watch: the server stops."""
        for watches in self._watches.values():
            for watch in watches:
                watch.end()
        self.history.end()

    def forget(self, watch: Watch) -> None:
        """Stop feeding a watch. Safe to repeat."""
        watches = self._watches.get(watch.job_id)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._watches[watch.job_id]


class Watch:
    """One watcher's bounded queue; it is dropped rather than let to hold back the rest."""

    def __init__(self, feed: JobFeed, job_id: str) -> None:
        self.job_id = job_id
        self._broken: RpcRefused | None = None
        self._feed = feed
        self._queue: asyncio.Queue[tuple[str, int, bool]] = asyncio.Queue(_QUEUED_UPDATES)

    def put(self, change: str, seq: int, *, closes: bool) -> None:
        """Queue a change; the watch breaks where it is too far behind."""
        try:
            self._queue.put_nowait((change, seq, closes))
        except asyncio.QueueFull:
            self._broken = RpcRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the watch fell {_QUEUED_UPDATES} changes behind; watch again",
                reason=Reason.WATCH_TOO_SLOW,
            )

    def end(self) -> None:
        """Break the watch: its server stops."""
        self._broken = RpcRefused(
            grpc.StatusCode.UNAVAILABLE,
            "the allocator is stopping; watch again",
            reason=Reason.SERVER_STOPPING,
        )
        if self._queue.empty():
            self._queue.put_nowait(("", 0, True))

    async def next(self) -> tuple[str, int, bool]:
        """Wait for the next change: its kind, its seq, and whether the job is over with it.

        Raises
        ------
        RpcRefused
            The watch is broken; nothing more follows.
        """
        change = await self._queue.get()
        if self._broken is not None:
            raise self._broken
        return change

    def close(self) -> None:
        """Stop following."""
        self._feed.forget(self)


def _waited_for(event: Event) -> str | None:
    if isinstance(event, JobSubmitted | JobUpdated):
        return event.job.job_id
    return event.job_id if isinstance(event, AdmissionRecorded) else None


def _job_id_of(event: Event) -> str:
    return str(getattr(event, "job_id", ""))
