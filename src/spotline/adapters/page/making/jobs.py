"""Makes the page of all jobs."""

from __future__ import annotations

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.application.page.jobs import job_row, visible_jobs
from spotline.application.page.state import PageState


def jobs_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """All jobs that the caller may see."""
    rows = [job_row(state, job_id) for job_id in visible_jobs(state, asked.tenant)]
    return {"rows": rows}
