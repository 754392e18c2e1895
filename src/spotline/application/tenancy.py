"""Whose a job is: nobody says anything of it in another tenant's name."""

from __future__ import annotations

from collections.abc import Callable

from spotline.application.unfit import Unproven
from spotline.contracts.build import job_of
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted, JobUpdated
from spotline.domain.jobs.job import Job

TenantOf = Callable[[str], str | None]
"""The tenant of a job by its id, None where that is not known."""


def check_tenant(event: Event, tenant_of: TenantOf) -> None:
    """Refuse an event about a job that names another tenant than the job's own.

    Raises
    ------
    Unproven
        It does.
    """
    about = job_of(event)
    if not about.job_id or not about.tenant:
        return
    if (
        isinstance(event, JobUpdated)
        and job_of(JobSubmitted(job=event.job, ts_event_ns=0)) != about
    ):
        raise Unproven("job", f"{about.job_id} of {about.tenant}", _named(event.job))
    owner = tenant_of(about.job_id)
    if owner is not None and owner != about.tenant:
        raise Unproven("tenant", f"{owner}, whose {about.job_id} is", about.tenant)


def _named(job: Job) -> str:
    return f"{job.job_id} of {job.tenant}"
