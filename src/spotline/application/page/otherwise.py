"""Which jobs are over for good: what simple rules would have cost can be told of those."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import SlotOpened


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledJob:
    """A job that is over and whose deadline has passed: no rule would spend any more on it."""

    job_id: str
    tenant: str
    slot: int
    spent_micro_usd: int


@dataclass(slots=True)
class OtherwiseChapter:
    """`settled` are the jobs that are over and whose deadline has passed, in that order."""

    settled: list[SettledJob] = field(default_factory=list)
    _due: dict[str, tuple[int, SettledJob]] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        if isinstance(event, JobClosed) and event.job_id in jobs.statuses:
            due = max(event.slot, jobs.statuses[event.job_id].deadline_slot) + 1
            self._due[event.job_id] = (
                due,
                SettledJob(
                    job_id=event.job_id,
                    tenant=event.tenant,
                    slot=due,
                    spent_micro_usd=event.cost_micro_usd,
                ),
            )
        elif isinstance(event, SlotOpened):
            passed = [job_id for job_id, (due, _) in self._due.items() if due <= event.slot]
            self.settled.extend(self._due.pop(job_id)[1] for job_id in passed)
