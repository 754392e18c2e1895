"""The page of all jobs: where each stands, filtered by what its address says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.allocator.messages import JobStatus
from spotline.application.board.messages import JobView
from spotline.application.board.view import view_of
from spotline.application.page.state import PageState
from spotline.domain.jobs.outlook import JobOutlook


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job as a table shows it."""

    job_id: str
    name: str
    status: JobStatus
    view: JobView


def job_row(state: PageState, job_id: str, outlook: JobOutlook | None = None) -> SeenJob:
    """A job at the state's place in the log.

    Raises
    ------
    KeyError
        There is no such job.
    """
    status = state.jobs.statuses[job_id]
    view = view_of(state.jobs.board, status.job, state.jobs.recent, outlook=outlook)
    return SeenJob(job_id=job_id, name=status.job.name or job_id[:8], status=status, view=view)


def visible_jobs(state: PageState, tenant: str) -> Sequence[str]:
    """The ids of the jobs that a caller of a tenant (empty: of any) may see, oldest first."""
    return [
        job_id
        for job_id, status in state.jobs.statuses.items()
        if tenant in ("", status.job.tenant)
    ]
