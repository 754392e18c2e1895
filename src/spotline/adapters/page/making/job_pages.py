"""The pages of one job and of one decision, with the parts that are loaded after them."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.page.app import PageSpec
from spotline.adapters.page.making.decision import DecisionMaker
from spotline.adapters.page.making.job import JobMaker
from spotline.adapters.page.sources import PageSources

_JOB = "/jobs/{job_id}"
_DECISION = "/jobs/{job_id}/decisions/{slot}"


def job_pages(sources: PageSources) -> Sequence[PageSpec]:
    """Pages of one job, made with what `sources` can say."""
    job, decision = JobMaker(sources), DecisionMaker(sources)
    return (
        PageSpec(
            path=_JOB, template="job.html", build=job.page, under="/jobs", gather=job.outlook_now
        ),
        PageSpec(
            path=f"{_JOB}/outlook",
            template="job_outlook.html",
            build=job.outlook_part,
            under="/jobs",
            gather=job.outlook,
        ),
        PageSpec(
            path=f"{_JOB}/otherwise",
            template="job_otherwise.html",
            build=job.otherwise_part,
            under="/jobs",
            gather=job.otherwise,
        ),
        PageSpec(
            path=_DECISION,
            template="decision.html",
            build=decision.page,
            under="/jobs",
            gather=decision.explanation_asked,
        ),
        PageSpec(
            path=f"{_DECISION}/why",
            template="decision_why.html",
            build=decision.why,
            under="/jobs",
            gather=decision.explanation,
        ),
    )
