"""When a job could be done at the earliest, and so which deadlines can be met at all.

What can be reached is what the pathfinder reaches: the longest path with enough GPUs is not
searched for exactly (it is NP-hard), so the earliest finish is one that can be had, not a bound
that might be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spotline.domain.placement.free import Free
from spotline.domain.placement.graph import RegionGraph
from spotline.domain.placement.interface import PlacementMoment, Residual
from spotline.domain.placement.pathfinder import grow_paths, largest_paths
from spotline.domain.placement.pipeline import PipelineJob
from spotline.domain.placement.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestFinish:
    """When a job would start and be done, on how many GPUs; infinite and 0 where it cannot run."""

    start_s: float
    finish_s: float
    iteration_s: float
    gpus: int


def fastest_iteration_s(job: PipelineJob, free: Free) -> tuple[float, int]:
    """Seconds of the fastest iteration there is room for, and its GPUs; (inf, 0) if none."""
    if int(free.gpus.sum()) < job.min_gpus:
        return math.inf, 0
    target, grown = largest_paths(job, free, job.best_gpus)
    gpus = min(int(grown.gpus.max()), target)
    if gpus >= job.min_gpus:
        return job.iteration_s(gpus), gpus
    # No link keeps even the fewest stages fed: they wait for the network.
    grown = grow_paths(free, job.min_gpus, 1.0)
    widths = [
        free.bottleneck_bytes_per_s(grown.path(seed))
        for seed in range(len(grown.seeds))
        if grown.gpus[seed] >= job.min_gpus
    ]
    if not widths:
        return math.inf, 0
    return job.iteration_s(job.min_gpus, max(widths)), job.min_gpus


def earliest_on_empty(job: PipelineJob, graph: RegionGraph, now_s: float) -> EarliestFinish:
    """The earliest finish if nothing else ran: no deadline before it can be met."""
    return _finish(job, Free.of(Residual.of(graph)), max(now_s, job.arrival_s))


def earliest_finish(job: PipelineJob, moment: PlacementMoment) -> EarliestFinish:
    """The earliest finish beside what is running, now or after one of the expected releases."""
    timeline = Timeline(moment, max_releases=len(moment.releases))
    options = [
        _finish(job, free, start_s)
        for start_s, free in zip(timeline.times_s, timeline.free, strict=True)
    ]
    return min(options, key=lambda option: (option.finish_s, option.start_s))


def _finish(job: PipelineJob, free: Free, start_s: float) -> EarliestFinish:
    iteration_s, gpus = fastest_iteration_s(job, free)
    return EarliestFinish(
        start_s=start_s if gpus else math.inf,
        finish_s=start_s + job.iterations * iteration_s,
        iteration_s=iteration_s,
        gpus=gpus,
    )
