"""Answers that nobody can act on: what the allocator says is checked before it counts."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.selector.state import SelectorState
from spotline.application.unfit import Unfit
from spotline.domain.jobs.lot import holding_of
from spotline.domain.policies.answer import JobAnswer


def check_answers(state: SelectorState, answers: Sequence[JobAnswer]) -> None:
    """Refuse answers by which a job would hold more than it can use, and holds not already.

    A table of rates ends at a job's greatest count, and its limits are reckoned with that.

    Raises
    ------
    Unfit
        One gives a job more instances, or names a job that nobody knows.
    """
    for answer in answers:
        run = state.runs.get(answer.job_id)
        if run is None:
            raise Unfit("answers.job_id", "a submitted job", answer.job_id)
        most = max(run.job.max_instances, holding_of(run.held_lots).instances)
        instances = holding_of(answer.lots).instances
        if instances > most:
            expected = f"<= {most}, as many as job {answer.job_id} can use"
            raise Unfit("answers.lots", expected, instances)
