"""Which law of the market each job met: what nobody can exceed is told by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed
from spotline.domain.market.named_law import NamedLaw


@dataclass(slots=True)
class LawsChapter:
    """`latest` is by offering, `of_job` by job: the law of its first home as it was known then.

    A job that began before any law of its home was learned has the first that was, while it ran.
    """

    latest: dict[str, NamedLaw] = field(default_factory=dict)
    of_job: dict[str, NamedLaw] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        match event:
            case MarketLawLearned():
                self.latest[event.offering_id] = event.named
                met = [name for name, home in self._waiting.items() if home == event.offering_id]
                for job_id in met:
                    del self._waiting[job_id]
                    self.of_job[job_id] = event.named
            case JobAdmitted():
                named = self.latest.get(event.offering_id)
                if named is None:
                    self._waiting[event.job_id] = event.offering_id
                else:
                    self.of_job[event.job_id] = named
            case JobClosed():
                self._waiting.pop(event.job_id, None)
            case _:
                pass
