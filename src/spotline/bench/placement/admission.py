"""Deadlines: the admission that ours has for methods that have none, and the most that can be met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spotline.bench.placement.setting import Setting
from spotline.domain.placement.deadlines import earliest_on_empty
from spotline.domain.placement.interface import PlacementMethod, PlacementMoment
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement

_SEED = 1
# Seconds of the program's clock; rounded so that what is found is never too little.
_STEP_S = 60.0


class Admitting:
    """A method that refuses a job where the place it would give it is too late.

    A job that has to wait stays until even empty regions could not meet its deadline any more.
    """

    def __init__(self, method: PlacementMethod) -> None:
        self.method_id = f"{method.method_id}_admitting"
        self._method = method

    def place(
        self, queue: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Let the method answer until nobody it places is late; ids of the refused come last."""
        left, refused = list(queue), dict[str, NoPlacement]()
        while True:
            answers = self._method.place(left, moment)
            jobs = {job.job_id: job for job in left}
            late = {
                answer.job_id: finish_s
                for answer in answers
                if (finish_s := self._finish_s(jobs[answer.job_id], answer, moment))
                > jobs[answer.job_id].deadline_s
            }
            if not late:
                return (*answers, *refused.values())
            # The first only: without it the others may get better places.
            first = next(answer.job_id for answer in answers if answer.job_id in late)
            refused[first] = NoPlacement(
                job_id=first, reason="would be late", earliest_finish_s=late[first]
            )
            left = [job for job in left if job.job_id != first]

    def _finish_s(
        self, job: PipelineJob, answer: Placement | NoPlacement, moment: PlacementMoment
    ) -> float:
        if not math.isfinite(job.deadline_s):
            return -math.inf
        if isinstance(answer, Placement):
            return moment.now_s + job.iterations * answer.iteration_s
        return earliest_on_empty(job, moment.residual.graph, moment.now_s).finish_s


def most_deadlines(setting: Setting, *, max_deterministic_time: float = 5.0) -> int:
    """No method meets more deadlines than this, even one that knows all that comes.

    Solved with CP-SAT where links carry anything, times are rounded in favour of the jobs, and
    nobody without a deadline is in the way. Jobs are not moved.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    room = [int(gpus) for gpus in setting.graph.gpus]
    intervals: list[list[Any]] = [[] for _ in room]
    demands: list[list[Any]] = [[] for _ in room]
    met, every, counted = [], [], []
    for job in setting.jobs:
        if not math.isfinite(job.deadline_s):
            continue
        first = math.floor(job.arrival_s / _STEP_S)
        last = math.ceil(job.deadline_s / _STEP_S)
        counts = range(job.min_gpus, min(job.best_gpus, sum(room)) + 1)
        steps = [math.floor(job.iterations * job.iteration_s(k) / _STEP_S) for k in counts]
        if not steps or min(steps) > last - first:
            continue
        taken = model.new_bool_var("")
        met.append(taken)
        count = model.new_int_var(counts[0], counts[-1], "")
        lasts = model.new_int_var(min(steps), max(steps), "")
        model.add_element(count - counts[0], steps, lasts)
        start, end = model.new_int_var(first, last, ""), model.new_int_var(first, last, "")
        interval = model.new_optional_interval_var(start, lasts, end, taken, "")
        shares = []
        for place, gpus in enumerate(room):
            share = model.new_int_var(0, min(gpus, counts[-1]), "")
            intervals[place].append(interval)
            demands[place].append(share)
            shares.append(share)
        model.add(sum(shares) == count)
        every.append(interval)
        counted.append(count)
    for place, gpus in enumerate(room):
        model.add_cumulative(intervals[place], demands[place], gpus)
    # Follows from the regions, and is far easier to refute.
    model.add_cumulative(every, counted, sum(room))
    model.maximize(sum(met))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = max_deterministic_time
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return len(met)
    return math.floor(solver.best_objective_bound + 1e-6)
