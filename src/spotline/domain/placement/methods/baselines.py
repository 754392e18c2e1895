"""LCF, LDF, CR-LCF and CR-LDF: the paper's baselines (arXiv:2605.25375).

All serve the queue first come first served, and the first job that does not fit blocks the rest:
the paper explains their completion times with early large jobs that block the queue. All cap the
GPUs at K*. Reconstructed, as the paper names but does not define them:

- LCF takes one region, the cheapest with enough free GPUs for the model's memory, and up to K* of
  them; LDF takes the region with most free GPUs;
- CR-LCF takes regions in order of rising price until it has K* GPUs, and fills them in that
  order; CR-LDF starts where most GPUs are free and goes on to the region with most free GPUs among
  those it has a link to, the wider link among equals. Neither asks whether a link keeps up: where
  it does not, the stages wait. A region that has no free link to the path's end is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spotline.domain.placement.cost_min import split_in_order
from spotline.domain.placement.free import Free
from spotline.domain.placement.graph import FloatArray
from spotline.domain.placement.interface import PlacementMoment
from spotline.domain.placement.methods.bace_pipe import take
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.priority import by_arrival

# Regions in the order in which a job fills them, or none that will do.
Chooser = Callable[[PipelineJob, Free, FloatArray], list[int]]


class Baseline:
    """First come first served, with a rule that chooses regions."""

    def __init__(self, method_id: str, choose: Chooser) -> None:
        self.method_id = method_id
        self._choose = choose

    def place(
        self, queue: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Go through the queue in order of arrival until a job does not fit."""
        free = Free.of(moment.residual)
        answers: list[Placement | NoPlacement] = []
        blocked_by = ""
        for job in by_arrival(queue):
            if blocked_by:
                answers.append(NoPlacement(job_id=job.job_id, reason=f"waits behind {blocked_by}"))
                continue
            path = self._choose(job, free, moment.usd_per_gpu_hour)
            gpus = min(job.best_gpus, sum(int(free.gpus[region]) for region in path))
            if gpus < job.min_gpus:
                blocked_by = job.job_id
                answers.append(
                    NoPlacement(
                        job_id=job.job_id,
                        reason=f"no {job.min_gpus} free GPUs where {self.method_id} looks",
                    )
                )
                continue
            shares = split_in_order(path, gpus, free.gpus)
            answers.append(take(job, free, path, shares, moment.usd_per_gpu_hour))
        return tuple(answers)


def cheapest_region(job: PipelineJob, free: Free, price: FloatArray) -> list[int]:
    """The cheapest region that holds the model."""
    fitting = np.flatnonzero(free.gpus >= job.min_gpus)
    return [int(fitting[price[fitting].argmin()])] if len(fitting) else []


def largest_region(job: PipelineJob, free: Free, price: FloatArray) -> list[int]:
    """The region with most free GPUs."""
    return [int(free.gpus.argmax())] if len(free.gpus) else []


def regions_by_price(job: PipelineJob, free: Free, price: FloatArray) -> list[int]:
    """Regions in order of rising price until there are K* GPUs."""
    path: list[int] = []
    found = 0
    for region in np.argsort(price, kind="stable").tolist():
        if found >= job.best_gpus:
            break
        if free.gpus[region] and (not path or free.width[path[-1], region] >= 1):
            path.append(region)
            found += int(free.gpus[region])
    return path


def regions_by_capacity(job: PipelineJob, free: Free, price: FloatArray) -> list[int]:
    """Regions by free GPUs, then by the width of the link to them, until there are K* GPUs."""
    path = largest_region(job, free, price)
    found = int(free.gpus[path].sum())
    while path and found < job.best_gpus:
        width = free.width[path[-1]]
        able = (free.gpus > 0) & (width >= 1)
        able[path] = False
        if not able.any():
            break
        following = int(np.lexsort((-width, -free.gpus, ~able))[0])
        path.append(following)
        found += int(free.gpus[following])
    return path


BASELINES = (
    Baseline("lcf", cheapest_region),
    Baseline("ldf", largest_region),
    Baseline("cr_lcf", regions_by_price),
    Baseline("cr_ldf", regions_by_capacity),
)
