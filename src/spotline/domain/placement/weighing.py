"""What the answers to a whole queue come to, in the figure that `spotline` and `exact` minimise.

    usd of the job + time_usd_per_s * (seconds until it is expected to be done), over all jobs

A job that waits is charged with the wait of `expected_wait_s` and then with the best way it could
run alone on the whole graph: one moment cannot know better.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.domain.placement.free import Free
from spotline.domain.placement.interface import PlacementMoment, Residual
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.ways import TIME_WEIGHT, MarketPrices, Weigher


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What a set of answers to a queue comes to.

    `mean_jct_s` is from arrival to the expected end, `usd` over all jobs, `total_usd` what is
    minimised.
    """

    mean_jct_s: float
    usd: float
    total_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job with what waiting comes to: seconds until done, and USD; and how its ways are priced."""

    job: PipelineJob
    weigher: Weigher
    waiting_s: float
    waiting_usd: float

    @property
    def total_usd(self) -> float:
        """What waiting counts for."""
        return self.waiting_usd + self.weigher.time_usd_per_s * self.waiting_s


def queued_jobs(
    queue: Sequence[PipelineJob], moment: PlacementMoment, *, time_weight: float = TIME_WEIGHT
) -> list[QueuedJob]:
    """What running on the whole graph, and waiting for that, come to for each job of a queue."""
    graph = moment.residual.graph
    market = MarketPrices(graph, moment.usd_per_gpu_hour)
    empty = Free.of(Residual.of(graph))
    weighers = [Weigher(job, empty, market, time_weight=time_weight) for job in queue]
    ways = [weigher.best() or weigher.stalled() for weigher in weighers]
    # A job that fits nowhere waits at the same price whatever is decided.
    runs = [
        (job.iterations * way.expected_s, sum(way.gpus))
        if way
        else (job.iterations * job.iteration_s(job.best_gpus), job.best_gpus)
        for job, way in zip(queue, ways, strict=True)
    ]
    return [
        QueuedJob(
            job=job,
            weigher=weigher,
            waiting_s=wait_s + run_s,
            waiting_usd=job.iterations * way.usd if way else 0.0,
        )
        for job, weigher, way, wait_s, (run_s, _) in zip(
            queue, weighers, ways, expected_wait_s(queue, runs, moment), runs, strict=True
        )
    ]


def expected_wait_s(
    queue: Sequence[PipelineJob], runs: Sequence[tuple[float, int]], moment: PlacementMoment
) -> list[float]:
    """How long each job of a queue would have to wait if it is not placed now, seconds.

    As if all GPUs were in one place: jobs start in order of GPU time as soon as there are enough
    GPUs, which running jobs and those before give back when they end; but not before the next of
    those ends.

    Parameters
    ----------
    queue, moment
        Who waits, and what is free and running.
    runs
        Seconds and GPUs of each job, once it runs.
    """
    now_s = moment.now_s
    ends = sorted(
        (max(0.0, release.at_s - now_s), release.placement.gpus) for release in moment.releases
    )
    ranks = sorted(
        range(len(queue)),
        key=lambda i: (math.prod(runs[i]), queue[i].arrival_s, queue[i].job_id),
    )
    free_gpus = int(np.maximum(moment.residual.gpus, 0).sum())
    waits = [0.0] * len(queue)
    start_s = 0.0
    for i in ranks:
        run_s, gpus = runs[i]
        others_s = min((runs[k][0] for k in range(len(queue)) if k != i), default=run_s)
        soonest_s = ends[0][0] if ends else others_s
        while free_gpus < gpus and ends:
            start_s, given_back = ends.pop(0)
            free_gpus += given_back
        waits[i] = max(start_s, soonest_s)
        free_gpus = max(0, free_gpus - gpus)
        insort(ends, (start_s + run_s, gpus))
    return waits


def weigh(
    queue: Sequence[PipelineJob],
    answers: Sequence[Placement | NoPlacement],
    moment: PlacementMoment,
    *,
    time_weight: float = TIME_WEIGHT,
) -> Weighed:
    """Add up what any method's answers to a queue are expected to come to."""
    return weigh_queued(queued_jobs(queue, moment, time_weight=time_weight), answers, moment)


def weigh_queued(
    jobs: Sequence[QueuedJob],
    answers: Sequence[Placement | NoPlacement],
    moment: PlacementMoment,
) -> Weighed:
    """As `weigh`, for a queue that is weighed more than once."""
    by_id = {answer.job_id: answer for answer in answers}
    index = moment.residual.graph.index
    jcts, usd, total = 0.0, 0.0, 0.0
    for queued in jobs:
        job, answer = queued.job, by_id[queued.job.job_id]
        if isinstance(answer, Placement):
            regions = [index[share.region_id] for share in answer.path]
            way = queued.weigher.way(
                regions, [share.gpus for share in answer.path], answer.iteration_s
            )
            run_s, job_usd = job.iterations * way.expected_s, job.iterations * way.usd
        else:
            run_s, job_usd = queued.waiting_s, queued.waiting_usd
        jcts += moment.now_s + run_s - job.arrival_s
        usd += job_usd
        total += job_usd + queued.weigher.time_usd_per_s * run_s
    return Weighed(mean_jct_s=jcts / max(1, len(jobs)), usd=usd, total_usd=total)
