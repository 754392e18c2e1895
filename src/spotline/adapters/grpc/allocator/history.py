"""What has happened to every job, kept from what the host applies, also while it recovers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from spotline.application.allocator.happenings import JobHappening, happening_text
from spotline.contracts.build import ts_event_ns_of
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S

MOST_OF_A_JOB = 2_000
# Of all jobs together, about 100 MB; what is older is in the log.
MOST_OF_ALL = 300_000

# That one of these begins or ends is news, also where it changes nothing that is held.
_LIMITS = (DecisionReason.BUDGET, DecisionReason.NO_CAPACITY, DecisionReason.SAFETY_NET)
_OF_PIPELINES = (PipelineSubmitted, PlacementDecided, PlacementEnded)


class JobHistory:
    """The last happenings of each job, in the order of the log.

    A decision that changes nothing and reports of progress are left out.
    """

    def __init__(self, *, most: int = MOST_OF_A_JOB, most_of_all: int = MOST_OF_ALL) -> None:
        self._most = most
        self._most_of_all = most_of_all
        self._by_job: dict[str, deque[JobHappening]] = {}
        self._told: dict[str, tuple[tuple[Lot, ...], DecisionReason | None]] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._count = 0
        self._slot: SlotOpened | MarketOpened | None = None
        self.ended = False

    def note(self, event: Event, job_id: str, seq: int, *, wall_ns: int = 0) -> JobHappening | None:
        """Take what was applied, and stored at `wall_ns`; return what people are told. Never waits."""
        if isinstance(event, SlotOpened | MarketOpened):
            self._slot = event
            return None
        if not job_id or isinstance(event, _OF_PIPELINES) or self._says_nothing(event):
            return None
        text = happening_text(event)
        if text is None:
            return None
        happening = JobHappening(
            seq=seq,
            kind=KINDS[type(event)],
            ts_event_ns=self._ts_ns(event),
            text=text,
            wall_ns=wall_ns,
        )
        kept = self._by_job.setdefault(job_id, deque())
        kept.append(happening)
        self._count += 1
        if len(kept) > self._most:
            kept.popleft()
            self._count -= 1
        while self._count > self._most_of_all:
            self._forget_oldest()
        self._tell(job_id)
        return happening

    def of(self, job_id: str, *, after_seq: int = 0) -> Sequence[JobHappening]:
        """What happened to a job after a place in the log, oldest first."""
        kept = self._by_job.get(job_id, ())
        return [happening for happening in kept if happening.seq > after_seq]

    async def change(self, job_id: str, after_seq: int) -> None:
        """Return when something has happened to a job after a place, or the server stops."""
        while not self.ended:
            kept = self._by_job.get(job_id)
            if kept and kept[-1].seq > after_seq:
                return
            await self._changed.setdefault(job_id, asyncio.Event()).wait()

    def end(self) -> None:
        """Wake everybody: the server stops."""
        self.ended = True
        for job_id in tuple(self._changed):
            self._tell(job_id)

    def _says_nothing(self, event: Event) -> bool:
        if isinstance(event, JobClosed):
            self._told.pop(event.job_id, None)
        if not isinstance(event, AllocationDecided):
            return False
        before = self._told.get(event.job_id, ((), None))
        told = (event.lots, event.reason if event.reason in _LIMITS else None)
        self._told[event.job_id] = told
        return before == told

    def _ts_ns(self, event: Event) -> int:
        """When it happened: its own time, or that of its place in its slot."""
        own_ns = ts_event_ns_of(event)
        slot, opened = getattr(event, "slot", None), self._slot
        if own_ns or opened is None:
            return own_ns
        if isinstance(opened, MarketOpened):
            return opened.first_slot_start_ns
        if slot is None:
            return opened.ts_event_ns
        passed_s = (slot - opened.slot) * opened.slot_s + getattr(event, "offset_s", 0)
        return opened.ts_event_ns + int(passed_s) * NS_PER_S

    def _forget_oldest(self) -> None:
        """Drop the job that was submitted first, of those that have any."""
        job_id = next(iter(self._by_job))
        self._count -= len(self._by_job.pop(job_id))

    def _tell(self, job_id: str) -> None:
        changed = self._changed.pop(job_id, None)
        if changed is not None:
            changed.set()
