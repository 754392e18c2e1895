"""What has happened, a line for each event that people are told of: of one job, or of all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from spotline.application.allocator.happenings import happening_text
from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason

MOST_OF_A_JOB = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLine:
    """Something that happened to a job, in words; `changed` is false for what changed nothing.

    `slot` and `revision` name the decision, where it is one (-1: it is none).
    """

    seq: int
    kind: str
    slot: int
    market_ns: int
    wall_ns: int
    text: str
    changed: bool = True
    revision: int = -1


@dataclass(slots=True)
class FeedChapter:
    """The last `MOST_OF_A_JOB` lines of each job, in the order of the log."""

    of_job: dict[str, deque[FeedLine]] = field(default_factory=dict)
    _decided: dict[str, tuple[tuple[Lot, ...], DecisionReason]] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        job_id = event.job.job_id if isinstance(event, JobSubmitted) else _job_id_of(event)
        if not job_id:
            return
        text = happening_text(event)
        if text is None:
            return
        line = FeedLine(
            seq=told.seq,
            kind=told.kind,
            slot=told.slot,
            market_ns=told.market_ns,
            wall_ns=told.wall_ns,
            text=text,
            changed=self._changes(event),
            revision=event.revision if isinstance(event, AllocationDecided) else -1,
        )
        self.of_job.setdefault(job_id, deque(maxlen=MOST_OF_A_JOB)).append(line)

    def newest_first(self, job_id: str, *, with_unchanged: bool = False) -> Iterator[FeedLine]:
        """The lines of a job from the newest on; decisions that changed nothing are left out."""
        for line in reversed(self.of_job.get(job_id, ())):
            if line.changed or with_unchanged:
                yield line

    def _changes(self, event: object) -> bool:
        if isinstance(event, JobClosed):
            self._decided.pop(event.job_id, None)
        if not isinstance(event, AllocationDecided):
            return True
        told = (event.lots, event.reason)
        before = self._decided.get(event.job_id)
        self._decided[event.job_id] = told
        return before != told


def _job_id_of(event: object) -> str:
    found = getattr(event, "job_id", "")
    return found if isinstance(found, str) else ""
