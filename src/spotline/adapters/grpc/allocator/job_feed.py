"""What the host applies, handed on to callers that wait for a job or watch one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from spotline.adapters.grpc.allocator.history import JobHistory
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.application.allocator.happenings import JobHappening
from spotline.application.board.fold import REPORTS
from spotline.contracts.envelope import Envelope
from spotline.contracts.reasons import Reason
from spotline.contracts.subjects import KINDS
from spotline.domain.events.capacity import CapacityReported, CostAccrued, InstancesEnded
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    AdmissionRecorded,
    JobClosed,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.events.training import AgentJoined
from spotline.domain.jobs.lot import Lot
from spotline.runtime.applied import AppliedFeed

_QUEUED_UPDATES = 256
_OF_PIPELINES = (PipelineSubmitted, PlacementDecided, PlacementEnded)
# What comes too often, or says nothing that is shown; ReadEvents tells of some of it.
_QUIET = (AdmissionRecorded, AgentJoined, CostAccrued, InstancesEnded)


class JobFeed:
    """What the host applies, handed on to callers that wait for a job or watch one.

    `arrivals` are the submissions and updates, and that the ledger holds a job, by job id;
    `history` is what has happened to each. `opened_wall_ns` is when the log stored that the latest
    slot opened (0: not known). `told` is what people are told of the event that was applied last,
    `on_change` is called with a job's id, the kind of change and its seq for every change of a job.
    """

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}
        self.arrivals = AppliedFeed(_waited_for)
        self.history = JobHistory()
        self._watches: dict[str, set[Watch]] = {}
        self._held: dict[str, tuple[Lot, ...]] = {}
        self._heard_wall_ns: dict[str, int] = {}
        self.opened_wall_ns = 0
        self.told: JobHappening | None = None
        self.on_change: Callable[[str, str, int], None] = lambda job_id, change, seq: None

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the host: every applied event with its seq, in order. Never waits."""
        job_id = event.job.job_id if isinstance(event, JobSubmitted) else _job_id_of(event)
        self.told = self.history.note(event, job_id, seq, wall_ns=envelope.stored_ns)
        if isinstance(event, MarketOpened | SlotOpened):
            self.opened_wall_ns = envelope.stored_ns
        elif isinstance(event, CapacityReported):
            self._tell_held(event, seq)
        elif isinstance(event, REPORTS) and envelope.stored_ns:
            self._heard_wall_ns[job_id] = envelope.stored_ns
        if not job_id or isinstance(event, _OF_PIPELINES):
            return
        self.arrivals.on_applied(event, envelope, seq)
        if not isinstance(event, _QUIET):
            self._tell(job_id, KINDS[type(event)], seq, closes=isinstance(event, JobClosed))

    def _tell_held(self, event: CapacityReported, seq: int) -> None:
        """Tell of the jobs that hold something else than before."""
        held = {holding.job_id: holding.lots for holding in event.holdings}
        for job_id in sorted(held.keys() | self._held.keys()):
            # A pipeline that rents instances is in the report too, and nobody watches it here.
            if held.get(job_id, ()) != self._held.get(job_id, ()) and job_id in self._seqs:
                self._tell(job_id, KINDS[CapacityReported], seq, closes=False)
        self._held = held

    def _tell(self, job_id: str, change: str, seq: int, *, closes: bool) -> None:
        self._seqs[job_id] = max(seq, self._seqs.get(job_id, 0))
        self.on_change(job_id, change, seq)
        for watch in self._watches.get(job_id, ()):
            watch.put(change, seq, closes=closes)

    def seq_of(self, job_id: str) -> int:
        """The seq of the last event of a job that this process has seen applied, 0 for none."""
        return self._seqs.get(job_id, 0)

    def heard_wall_ns(self, job_id: str) -> int:
        """When the log stored what a job's program said last, 0 where that is not known."""
        return self._heard_wall_ns.get(job_id, 0)

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
