"""Events as the log holds them: kind, place, id and cause, the last ones of each job."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.lifecycle import JobSubmitted

MOST_RAW = 500


class RawEntry(NamedTuple):
    """An event of the log that names a job."""

    seq: int
    kind: str
    event_id: str
    cause_id: str
    slot: int
    market_ns: int


@dataclass(slots=True)
class RawChapter:
    """The last `MOST_RAW` events that name a job, by its id, in the order of the log."""

    of_job: dict[str, deque[RawEntry]] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        job_id = event.job.job_id if isinstance(event, JobSubmitted) else _named(event)
        if not job_id:
            return
        self.of_job.setdefault(job_id, deque(maxlen=MOST_RAW)).append(
            RawEntry(told.seq, told.kind, told.event_id, told.cause_id, told.slot, told.market_ns)
        )


def _named(event: object) -> str:
    found = getattr(event, "job_id", "")
    return found if isinstance(found, str) else ""
