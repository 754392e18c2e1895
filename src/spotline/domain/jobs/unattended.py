"""Jobs whose programs nobody starts: in simulations, and on paper."""

from __future__ import annotations

from dataclasses import replace

from spotline.domain.jobs.job import Job


def without_program(job: Job) -> Job:
    """The job as it runs where nobody starts its program: its progress is what rates say.

    Nobody says either that it has ended: it ends when its work is done.
    """
    job = replace(job, awaits_exit=False)
    if job.run is None:
        return job
    return replace(job, run=None, egress_budget_micro_usd=job.egress_cap_micro_usd or 0)
