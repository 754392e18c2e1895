"""Ours: time and money weighed for every job in turn, with room kept for those that wait.

Beyond the paper (arXiv:2605.25375): egress and spot risk cost money, the count of GPUs is chosen
with the path, a job may wait, and deadlines are kept. How ways to run are priced is in `ways.py`.

- Order: deadlines that were promised, in the order in which they were; then those that are asked
  for, the one that must begin first first; then least GPU time.
- Others' time: holding k of G GPUs for a second keeps each job behind waiting k / G of a second, to
  the extent that the queue wants more GPUs than are free.
- Waiting: where one of the next releases would let a job score `WORTH_WAITING` less, its wait
  included, it waits, and what it will take is kept from those behind it.
- Short queues that all find a place are gone through again in other orders and with other weights
  of others' time, and what comes to least for the whole queue (`weighing.py`) is taken: in order of
  size, the job with the largest bill would get the dearest GPUs.
- Deadlines: the cheapest way that meets it now; else at the first release that lets it be met, and
  what it will take is kept from all others until then. Else it is refused with the earliest finish
  there is beside what runs and was promised; only a job that was promised is placed late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from spotline.domain.placement.deadlines import earliest_on_empty
from spotline.domain.placement.free import Free, placed
from spotline.domain.placement.graph import FloatArray
from spotline.domain.placement.interface import PlacementMoment, Residual
from spotline.domain.placement.methods.bace_pipe import reason_of
from spotline.domain.placement.pathfinder import largest_paths
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.timeline import MAX_RELEASES, Timeline
from spotline.domain.placement.ways import TIME_WEIGHT, MarketPrices, Way, Weigher
from spotline.domain.placement.weighing import queued_jobs, weigh_queued

# A wait must promise this share of the score: releases come later than expected, not sooner.
WORTH_WAITING = 0.1

# Releases looked at where somebody has a deadline: a promise may rest on a late one.
_MAX_DEADLINE_RELEASES = 64

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
        """Go through the queue once, deadlines first, then least GPU time."""
        ordered = in_order(queue)
        if any(math.isfinite(job.deadline_s) for job in queue):
            return self._keeping_promises(ordered, moment)
        answers = self._one_pass(ordered, moment, 1.0)
        # Where somebody waits, what the wait is guessed to cost would decide more than the places.
        if not 1 < len(queue) <= MAX_TRIED_JOBS or any(
            isinstance(answer, NoPlacement) for answer in answers
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

    def _keeping_promises(
        self, ordered: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Whose promise would break, and then who would be refused, is put first if that helps."""
        run = self._pass(moment, ordered)
        answers = self._answers(run, ordered, 1.0)
        urgent = sum(math.isfinite(job.deadline_s) for job in ordered)
        # A job that asks together with many may be refused; one that was promised may not.
        heard = 1 < urgent <= MAX_TRIED_JOBS
        first: list[str] = []
        for _ in range(MAX_TRIED_JOBS):
            wronged = [*run.late, *(run.refused if heard else ())]
            wronged = [one for one in wronged if one not in first]
            if not wronged:
                break
            first = [wronged[0], *first]
            rank = {job_id: place for place, job_id in enumerate(first)}
            order = sorted(ordered, key=lambda job: rank.get(job.job_id, len(rank)))
            other = self._pass(moment, order)
            tried = self._answers(other, order, 1.0)
            if (len(other.late), len(other.refused)) < (len(run.late), len(run.refused)):
                run, answers = other, tried
        return answers

    def _one_pass(
        self, ordered: Sequence[PipelineJob], moment: PlacementMoment, pressure: float
    ) -> tuple[Placement | NoPlacement, ...]:
        return self._answers(self._pass(moment, ordered), ordered, pressure)

    def _pass(self, moment: PlacementMoment, queue: Sequence[PipelineJob]) -> _Pass:
        urgent = any(math.isfinite(job.deadline_s) for job in queue)
        return _Pass(
            moment,
            self.time_weight,
            max_waiting=_MAX_WAITING if self._may_wait else 0,
            max_releases=_MAX_DEADLINE_RELEASES if urgent else MAX_RELEASES,
        )

    def _answers(
        self, run: _Pass, ordered: Sequence[PipelineJob], pressure: float
    ) -> tuple[Placement | NoPlacement, ...]:
        wanted = np.array([job.best_gpus for job in ordered], dtype=np.int64)
        wanted_on = np.cumsum(wanted[::-1])[::-1].tolist()
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


def in_order(queue: Sequence[PipelineJob]) -> list[PipelineJob]:
    """Promised deadlines, deadlines by when they must begin, then the rest by GPU time at K*."""
    runs_s = {job.job_id: job.iterations * job.iteration_s(job.best_gpus) for job in queue}

    def key(job: PipelineJob) -> tuple[int, float, float, str]:
        run_s = runs_s[job.job_id]
        begins_s = job.deadline_s - run_s
        if job.promised and math.isfinite(begins_s):
            # As they were promised one after the other: so each finds what it was promised.
            return 0, job.arrival_s, begins_s, job.job_id
        if math.isfinite(begins_s):
            return 1, begins_s, job.arrival_s, job.job_id
        return 2, run_s * job.best_gpus, job.arrival_s, job.job_id

    return sorted(queue, key=key)


@dataclass(frozen=True, slots=True)
class _Later:
    """A way at one of the next releases."""

    at: int
    way: Way


class _Pass:
    """One pass through a queue.

    Attributes
    ----------
    late
        Jobs whose promised deadline is not kept.
    refused
        Jobs that are refused, though they would be in time if nothing else ran.
    """

    def __init__(
        self,
        moment: PlacementMoment,
        time_weight: float,
        *,
        max_waiting: int,
        max_releases: int,
    ) -> None:
        self.late: list[str] = []
        self.refused: list[str] = []
        self._moment = moment
        self._graph = moment.residual.graph
        self._market = MarketPrices(self._graph, moment.usd_per_gpu_hour)
        self._timeline = Timeline(moment, max_releases=max_releases)
        self._time_weight = time_weight
        self._may_wait = max_waiting
        self._total_gpus = max(1, int(self._graph.gpus.sum()))
        self._empty: Free | None = None

    def answer(self, job: PipelineJob, wanted_gpus: int, behind: float) -> Placement | NoPlacement:
        """Place one job, with `behind` others after it; all want `wanted_gpus`."""
        if math.isfinite(job.deadline_s):
            return self._by_deadline(job)
        free = self._timeline.available()
        free_gpus = int(free.gpus.sum())
        if free_gpus < job.min_gpus:
            return NoPlacement(
                job_id=job.job_id,
                reason=f"needs {job.min_gpus} GPUs, {free_gpus} are free and not kept for others",
            )
        pressure = behind * max(0.0, 1.0 - free_gpus / wanted_gpus) / self._total_gpus
        weigher = self._weigher(job, free, pressure)
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

    def _by_deadline(self, job: PipelineJob) -> Placement | NoPlacement:
        left_s = job.deadline_s - self._begins_s()
        timeline = self._timeline
        least_gpus = self._weigher(job, timeline.at(0), 0.0).least_gpus_within(left_s)
        for at in np.flatnonzero(timeline.gpus() >= least_gpus).tolist():
            weigher = self._weigher(job, timeline.at(at), 0.0)
            way = weigher.cheapest_within(left_s[at])
            if way is None:
                way = weigher.stalled()
                if way is None or job.iterations * way.expected_s > left_s[at]:
                    continue
            if at == 0:
                return self._take(job, weigher.free, way)
            return self._wait(job, _Later(at, way), "a place that meets its deadline")
        return self._too_late(job)

    def _too_late(self, job: PipelineJob) -> Placement | NoPlacement:
        soonest_s, soonest = self._soonest(job)
        if job.promised:
            self.late.append(job.job_id)
            if soonest is None:
                return self._without_path(job)
            if soonest.at:
                return self._wait(job, soonest, "a place where it is done first")
            return self._take(job, self._timeline.at(0), soonest.way)
        if soonest is None:
            soonest_s = earliest_on_empty(job, self._graph, self._moment.now_s).finish_s
            if soonest_s <= job.deadline_s:
                # It is not known when what is in its way will end.
                return self._without_path(job)
        if self._moment.now_s + job.iterations * job.iteration_s(job.best_gpus) <= job.deadline_s:
            self.refused.append(job.job_id)
        when = f"{soonest_s:.0f} s" if math.isfinite(soonest_s) else "never on these regions"
        return NoPlacement(
            job_id=job.job_id,
            reason=f"deadline_s must be >= the earliest finish ({when}), "
            f"was {job.deadline_s:.0f} s",
            earliest_finish_s=soonest_s,
        )

    def _soonest(self, job: PipelineJob) -> tuple[float, _Later | None]:
        """When a job could be done at the earliest, beside all that runs and was promised."""
        begins_s = self._begins_s()
        timeline = self._timeline
        bounds_s = begins_s + self._weigher(job, timeline.at(0), 0.0).shortest_s(timeline.gpus())
        soonest_s, best = math.inf, None
        # Most promising first: the others seldom have to be looked at then.
        for at in np.argsort(bounds_s, kind="stable").tolist():
            if bounds_s[at] >= soonest_s:
                break
            weigher = self._weigher(job, timeline.at(at), 0.0)
            way = weigher.fastest() or weigher.stalled()
            if way is not None and begins_s[at] + job.iterations * way.expected_s < soonest_s:
                soonest_s = float(begins_s[at]) + job.iterations * way.expected_s
                best = _Later(at, way)
        return soonest_s, best

    def _begins_s(self) -> FloatArray:
        """When a job could begin at the latest if it takes what is free now, then, ..."""
        begins_s = np.array(self._timeline.times_s)
        begins_s[1:] += self._moment.notice_s
        return begins_s

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
                best = _Later(at, way)
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
        at_s = self._timeline.times_s[later.at]
        until_s = at_s + self._moment.notice_s + job.iterations * draft.iteration_s
        self._timeline.claim(later.at, draft, until_s)
        return NoPlacement(
            job_id=job.job_id,
            reason=f"waits {at_s - self._moment.now_s:.0f} s for {what}: {reason_of(draft, job)}",
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
