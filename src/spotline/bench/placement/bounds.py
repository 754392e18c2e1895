"""What no method could beat in a setting, however it places and whatever it knows of the future."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from spotline.bench.placement.setting import Setting
from spotline.domain.placement.pipeline import PipelineJob

Figures = dict[str, Any]


def least_mean_jct_s(setting: Setting) -> float:
    """No placement of the setting's jobs, moved or not, has a lower mean JCT, seconds.

    The greater of two bounds:

    - every job runs from its arrival at K* stages that never wait, as if it were alone;
    - all GPUs are one machine that works off the least GPU time of each job, the one with least
      left first (which is optimal there).
    """
    alone_s = statistics.fmean(_shortest_s(job) for job in setting.jobs)
    return max(alone_s, _pooled_jct_s(setting.jobs, int(setting.graph.gpus.sum())))


def _shortest_s(job: PipelineJob) -> float:
    return job.iterations * job.iteration_s(job.best_gpus)


def _least_gpu_s(job: PipelineJob) -> float:
    counts = range(job.min_gpus, job.best_gpus + 1)
    return job.iterations * min(gpus * job.iteration_s(gpus) for gpus in counts)


def _pooled_jct_s(jobs: Sequence[PipelineJob], gpus: int) -> float:
    """Mean JCT of shortest-remaining-time-first on one machine as fast as all GPUs."""
    coming = sorted((job.arrival_s, _least_gpu_s(job) / gpus) for job in jobs)
    left: list[float] = []
    now_s, finished_s = 0.0, 0.0
    while coming or left:
        if not left:
            now_s = max(now_s, coming[0][0])
        while coming and coming[0][0] <= now_s:
            heappush(left, coming.pop(0)[1])
        work_s = heappop(left)
        until_s = min(now_s + work_s, coming[0][0] if coming else now_s + work_s)
        if until_s < now_s + work_s:
            heappush(left, work_s - (until_s - now_s))
        else:
            finished_s += until_s
        now_s = until_s
    return (finished_s - sum(job.arrival_s for job in jobs)) / len(jobs)


def most_lead_percent(
    setting: Setting, measured: Mapping[str, Mapping[str, float]], against: Sequence[str]
) -> dict[str, float]:
    """By how much a JCT could lie below that of each method at most, percent of the latter."""
    least_s = least_mean_jct_s(setting)
    return {name: 100.0 * (1.0 - least_s / measured[name]["mean_jct_s"]) for name in against}


def over_tables(
    leads: Sequence[Mapping[str, float]], against: Sequence[str], asked_percent: float
) -> Figures:
    """Of many tables: the median of the most lead, and in how many the asked one is possible."""
    return {
        "against": {
            name: {
                "median_percent": statistics.median(lead[name] for lead in leads),
                "possible_in": sum(lead[name] >= asked_percent for lead in leads),
            }
            for name in against
        },
        "possible_against_all_in": sum(
            all(lead[name] >= asked_percent for name in against) for lead in leads
        ),
        "tables": len(leads),
    }
