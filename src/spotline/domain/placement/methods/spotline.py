"""Ours: time and money weighed for every job in turn, with room kept for those that wait.

Beyond the paper (arXiv:2605.25375): egress and spot risk cost money, the count of GPUs is chosen
with the path, a job may wait, and deadlines are kept. How ways to run are priced is in `ways.py`.

- Order: jobs whose deadline leaves them less slack than the longest job of the queue takes go
  first, least slack first, as being passed over once may cost that long. Then least GPU time.
- Others' time: holding k of G GPUs for a second keeps each job behind waiting k / G of a second, to
  the extent that the queue wants more GPUs than are free.
- Waiting: where one of the next releases would let a job score `WORTH_WAITING` less, its wait
  included, it waits, and what it will take is kept from those behind it.
- Short queues that all find a place are gone through again in other orders and with other weights
  of others' time, and what comes to least for the whole queue (`weighing.py`) is taken: in order of
  size, the job with the largest bill would get the dearest GPUs.
- Deadlines: the cheapest way that meets it; else a wait that meets it; else the fastest way. None
  at all if not even an empty graph could: the answer says when it could be done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from spotline.domain.placement.deadlines import earliest_on_empty
from spotline.domain.placement.free import Free, placed
from spotline.domain.placement.interface import PlacementMoment, Residual
from spotline.domain.placement.methods.bace_pipe import reason_of
from spotline.domain.placement.pathfinder import largest_paths
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.timeline import Timeline
from spotline.domain.placement.ways import TIME_WEIGHT, Market, Way, Weigher
from spotline.domain.placement.weighing import queued_jobs, weigh_queued

# A wait must promise this share of the score: releases come later than expected, not sooner.
WORTH_WAITING = 0.1

# Each waiting job is weighed at every release that is looked at; the rest of a long queue is not.
_MAX_WAITING = 8

# Short queues are gone through in several orders and with several weights of others' waiting.
MAX_TRIED_JOBS = 8
MAX_PERMUTED_JOBS = 4
_PRESSURES = (0.0, 1.0, 2.0, 4.0)


class Spotline:
    """Time and money weighed for every job in turn."""

    def __init__(
        self,
        method_id: str = "spotline",
        *,
        time_weight: float = TIME_WEIGHT,
        may_wait: bool = True,
    ) -> None:
        if not (math.isfinite(time_weight) and time_weight > 0):
            raise ValueError(f"time_weight must be finite and > 0, was {time_weight}")
        self.method_id = method_id
        self.time_weight = time_weight
        self._may_wait = may_wait

    def place(
        self, queue: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Go through the queue once, urgent deadlines first, then least GPU time."""
        ordered = in_order(queue, moment.now_s)
        answers = self._one_pass(ordered, moment, 1.0)
        # Where somebody waits, what the wait is guessed to cost would decide more than the places.
        if (
            not 1 < len(queue) <= MAX_TRIED_JOBS
            or any(math.isfinite(job.deadline_s) for job in queue)
            or any(isinstance(answer, NoPlacement) for answer in answers)
        ):
            return answers
        jobs = queued_jobs(ordered, moment, time_weight=self.time_weight)
        least_usd = weigh_queued(jobs, answers, moment).total_usd
        for order in _orders(ordered):
            for factor in _PRESSURES:
                tried = self._one_pass(order, moment, factor)
                total_usd = weigh_queued(jobs, tried, moment).total_usd
                # By more than rounding, so that equal answers do not depend on it.
                if total_usd < least_usd - 1e-9 * abs(least_usd):
                    answers, least_usd = tried, total_usd
        return answers

    def _one_pass(
        self, ordered: Sequence[PipelineJob], moment: PlacementMoment, pressure: float
    ) -> tuple[Placement | NoPlacement, ...]:
        wanted = np.array([job.best_gpus for job in ordered], dtype=np.int64)
        wanted_on = np.cumsum(wanted[::-1])[::-1].tolist()
        run = _Pass(moment, self.time_weight, _MAX_WAITING if self._may_wait else 0)
        return tuple(
            run.answer(job, wanted_gpus, pressure * behind)
            for job, wanted_gpus, behind in zip(
                ordered, wanted_on, range(len(ordered) - 1, -1, -1), strict=True
            )
        )


def _orders(ordered: Sequence[PipelineJob]) -> list[tuple[PipelineJob, ...]]:
    """Orders in which a short queue is tried: all of them, or each job moved to the front."""
    if len(ordered) <= MAX_PERMUTED_JOBS:
        return list(permutations(ordered))
    fronts = [(job, *(other for other in ordered if other is not job)) for job in ordered]
    return [tuple(ordered), tuple(reversed(ordered)), *fronts[1:]]


def in_order(queue: Sequence[PipelineJob], now_s: float) -> list[PipelineJob]:
    """Urgent deadlines by slack, then the rest by GPU time at K*; ties by arrival and id."""
    runs_s = {job.job_id: job.iterations * job.iteration_s(job.best_gpus) for job in queue}
    longest_s = max(runs_s.values(), default=0.0)

    def key(job: PipelineJob) -> tuple[bool, float, float, str]:
        run_s = runs_s[job.job_id]
        slack_s = job.deadline_s - now_s - run_s
        urgent = slack_s < longest_s
        by = slack_s if urgent else run_s * job.best_gpus
        return not urgent, by, job.arrival_s, job.job_id

    return sorted(queue, key=key)


@dataclass(frozen=True, slots=True)
class _Later:
    """A way at one of the next releases."""

    at: int
    way: Way
    gain_usd: float


class _Pass:
    """One pass through a queue."""

    def __init__(self, moment: PlacementMoment, time_weight: float, max_waiting: int) -> None:
        self._moment = moment
        self._graph = moment.residual.graph
        self._market = Market(self._graph, moment.usd_per_gpu_hour)
        self._timeline = Timeline(moment)
        self._time_weight = time_weight
        self._may_wait = max_waiting
        self._total_gpus = max(1, int(self._graph.gpus.sum()))
        self._empty: Free | None = None

    def answer(self, job: PipelineJob, wanted_gpus: int, behind: float) -> Placement | NoPlacement:
        """Place one job, with `behind` others after it; all want `wanted_gpus`."""
        now_s = self._moment.now_s
        if math.isfinite(job.deadline_s):
            soonest = earliest_on_empty(job, self._graph, now_s)
            if soonest.finish_s > job.deadline_s:
                return NoPlacement(
                    job_id=job.job_id,
                    reason=f"deadline_s must be >= the earliest finish ({soonest.finish_s:.0f} s) "
                    f"even on empty regions, was {job.deadline_s:.0f} s",
                    earliest_finish_s=soonest.finish_s,
                )
        free = self._timeline.available()
        free_gpus = int(free.gpus.sum())
        if free_gpus < job.min_gpus:
            return NoPlacement(
                job_id=job.job_id,
                reason=f"needs {job.min_gpus} GPUs, {free_gpus} are free and not kept for others",
            )
        pressure = behind * max(0.0, 1.0 - free_gpus / wanted_gpus) / self._total_gpus
        weigher = self._weigher(job, free, pressure)
        if math.isfinite(job.deadline_s):
            return self._by_deadline(job, weigher)
        way = weigher.best()
        if way is None:
            way = self._stalled(job, weigher)
        if way is None:
            return self._without_path(job)
        later = self._worth_waiting(job, weigher, way, pressure)
        if later is not None:
            return self._wait(job, later, "a better place")
        return self._take(job, free, way)

    def _weigher(self, job: PipelineJob, free: Free, pressure: float) -> Weigher:
        return Weigher(
            job, free, self._market, time_weight=self._time_weight, waiting_per_gpu=pressure
        )

    def _by_deadline(self, job: PipelineJob, weigher: Weigher) -> Placement | NoPlacement:
        now_s = self._moment.now_s
        way = weigher.cheapest_within(job.deadline_s - now_s)
        if way is not None:
            return self._take(job, weigher.free, way)
        for at, at_s in enumerate(self._timeline.times_s[1:], start=1):
            free = self._timeline.at(at)
            way = self._weigher(job, free, 0.0).cheapest_within(job.deadline_s - at_s)
            if way is not None:
                return self._wait(job, _Later(at, way, 0.0), "a place that meets its deadline")
        way = weigher.fastest() or weigher.stalled()
        return self._without_path(job) if way is None else self._take(job, weigher.free, way)

    def _worth_waiting(
        self, job: PipelineJob, weigher: Weigher, now: Way, pressure: float
    ) -> _Later | None:
        if self._may_wait <= 0:
            return None
        now_usd = weigher.score_usd(now)
        least_usd = now_usd - WORTH_WAITING * abs(now_usd)
        bound_usd = weigher.bound_usd()
        best = None
        for at, at_s in enumerate(self._timeline.times_s[1:], start=1):
            delay_usd = (at_s - self._moment.now_s) * weigher.time_usd_per_s
            if bound_usd + delay_usd >= least_usd:
                break
            later = self._weigher(job, self._timeline.at(at), pressure)
            way = later.best()
            if way is not None and later.score_usd(way) + delay_usd < least_usd:
                least_usd = later.score_usd(way) + delay_usd
                best = _Later(at, way, now_usd - least_usd)
        return best

    def _stalled(self, job: PipelineJob, weigher: Weigher) -> Way | None:
        """A way that waits for the network, for jobs that no network of ours keeps fed."""
        if self._empty is None:
            self._empty = Free.of(Residual.of(self._graph))
        _, grown = largest_paths(job, self._empty, job.min_gpus)
        if int(grown.gpus.max(initial=0)) >= job.min_gpus:
            return None
        return weigher.stalled()

    def _without_path(self, job: PipelineJob) -> NoPlacement:
        return NoPlacement(
            job_id=job.job_id,
            reason=f"no path of wide enough links has {job.min_gpus} free GPUs",
        )

    def _wait(self, job: PipelineJob, later: _Later, what: str) -> NoPlacement:
        self._may_wait -= 1
        way = later.way
        free = self._timeline.at(later.at)
        draft = placed(job, free, way.path, way.gpus, usd_per_iteration=way.usd)
        self._timeline.claim(later.at, draft)
        return NoPlacement(
            job_id=job.job_id,
            reason=f"waits {self._timeline.times_s[later.at] - self._moment.now_s:.0f} s for "
            f"{what}: {reason_of(draft, job)}",
        )

    def _take(self, job: PipelineJob, free: Free, way: Way) -> Placement:
        draft = placed(job, free, way.path, way.gpus, usd_per_iteration=way.usd)
        self._timeline.hold(draft, self._moment.now_s + job.iterations * draft.iteration_s)
        return Placement(
            job_id=draft.job_id,
            path=draft.path,
            reserved_bytes_per_s=draft.reserved_bytes_per_s,
            iteration_s=draft.iteration_s,
            usd_per_iteration=draft.usd_per_iteration,
            reason=reason_of(draft, job),
        )
