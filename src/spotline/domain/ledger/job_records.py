"""What the log said of a job, as a ledger holds it."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.events.lifecycle import JobCancelled, JobClosed, JobSubmitted, JobUpdated

JobEvent = JobSubmitted | JobUpdated | JobCancelled | JobClosed


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What the log said of a job, with the ids that it said it by: it can be said again."""

    event_id: str
    correlation_id: str
    job_id: str
    event: JobEvent
