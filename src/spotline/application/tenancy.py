"""Whose a job is: nobody says anything of it in another tenant's name."""

from __future__ import annotations

from collections.abc import Callable

from spotline.application.unfit import Unproven
from spotline.contracts.build import job_and_tenant_of
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobUpdated
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
    job_id, tenant = job_and_tenant_of(event)
    if not job_id or not tenant:
        return
    if isinstance(event, JobUpdated) and (event.job.job_id, event.job.tenant) != (job_id, tenant):
        raise Unproven("job", f"{job_id} of {tenant}", _named(event.job))
    owner = tenant_of(job_id)
    if owner is not None and owner != tenant:
        raise Unproven("tenant", f"{owner}, whose {job_id} is", tenant)


def _named(job: Job) -> str:
    return f"{job.job_id} of {job.tenant}"
