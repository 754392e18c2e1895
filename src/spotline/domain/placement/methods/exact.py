"""Exact placement for queues short enough; beyond that, or unproven, ours (see `exact.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from spotline.domain.placement.exact import MAX_JOBS, place_exactly
from spotline.domain.placement.interface import PlacementMoment
from spotline.domain.placement.methods.spotline import Spotline, in_order
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement


class Exact:
    """The optimum of one moment for up to `MAX_JOBS` jobs without deadlines.

    Longer queues, and queues with a deadline in them, are answered as `spotline` would; every
    answer's reason then says so, as it does where the optimum could not be proven.
    """

    def __init__(self, method_id: str = "exact", *, max_deterministic_time: float = 2.0) -> None:
        self.method_id = method_id
        self._greedy = Spotline()
        self._max_deterministic_time = max_deterministic_time

    def place(
        self, queue: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Place the whole queue at once."""
        greedy = self._greedy.place(queue, moment)
        if len(queue) > MAX_JOBS:
            return _said(greedy, f"greedy, more than {MAX_JOBS} jobs")
        if any(math.isfinite(job.deadline_s) for job in queue):
            return _said(greedy, "greedy, a job has a deadline")
        ordered = in_order(queue)
        by_id = {answer.job_id: answer for answer in greedy}
        found = place_exactly(
            ordered,
            moment,
            time_weight=self._greedy.time_weight,
            hint=[by_id[job.job_id] for job in ordered],
            max_deterministic_time=self._max_deterministic_time,
        )
        if found is None:
            return _said(greedy, "greedy, nothing exact was found")
        return _said(found.answers, "proven" if found.proven else "not proven to be the best")


def _said(
    answers: Sequence[Placement | NoPlacement], what: str
) -> tuple[Placement | NoPlacement, ...]:
    return tuple(
        replace(answer, reason=f"{answer.reason}; {what}" if answer.reason else what)
        for answer in answers
    )
