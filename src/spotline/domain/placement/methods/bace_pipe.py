"""BACE-Pipe: dynamic priority, bandwidth-aware pathfinder, cost-minimising allocator.

The paper's three stages (arXiv:2605.25375), each of which can be switched off for an ablation.
Reconstructed, as the paper does not say:

- a job that finds no path is passed over, and the next is tried: priority exists so that no job
  blocks the head of the line. Without priority the queue is first come first served, and then the
  first job that does not fit blocks the rest, as it does for the baselines;
- K is K*, or where no path has as many GPUs behind wide enough links, the most that one has: fewer
  stages compute longer and ask less of a link. They must be enough for the model's memory;
- of the paths from different seeds the fastest is taken, then the cheapest, then the shortest.
  Choosing by money is part of the third stage, as is preferring the cheaper region behind equally
  wide links: without it the shortest path is taken, then that of the seed with most GPUs, and its
  regions are filled in the order in which they joined;
- without the pathfinder regions join in order of their free GPUs, whatever their links carry, and
  what a link cannot carry the stages wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spotline.domain.placement import cost_min
from spotline.domain.placement.free import Free, placed
from spotline.domain.placement.graph import FloatArray
from spotline.domain.placement.interface import PlacementMoment
from spotline.domain.placement.pathfinder import GrownPaths, grow_paths, largest_paths
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.priority import by_arrival, by_priority, congestion

_S_PER_HOUR = 3600.0


class BacePipe:
    """The paper's method; a flag per stage."""

    def __init__(
        self,
        method_id: str = "bace_pipe",
        *,
        prioritise: bool = True,
        find_paths: bool = True,
        minimise_cost: bool = True,
    ) -> None:
        self.method_id = method_id
        self._prioritise = prioritise
        self._find_paths = find_paths
        self._minimise_cost = minimise_cost

    def place(
        self, queue: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Go through the queue once, by priority."""
        free = Free.of(moment.residual)
        if self._prioritise:
            ordered = by_priority(queue, congestion(moment.residual))
        else:
            ordered = by_arrival(queue)
        answers: list[Placement | NoPlacement] = []
        blocked_by = ""
        for job in ordered:
            if blocked_by:
                answers.append(NoPlacement(job_id=job.job_id, reason=f"waits behind {blocked_by}"))
                continue
            answer = self._place_one(job, free, moment.usd_per_gpu_hour)
            if isinstance(answer, NoPlacement) and not self._prioritise:
                blocked_by = job.job_id
            answers.append(answer)
        return tuple(answers)

    def _place_one(
        self, job: PipelineJob, free: Free, price: FloatArray
    ) -> Placement | NoPlacement:
        target = job.best_gpus
        if int(free.gpus.sum()) < job.min_gpus:
            return NoPlacement(job_id=job.job_id, reason="too few free GPUs")
        if self._find_paths:
            order = self._order(free, price)
            target, grown = largest_paths(job, free, target, order=order)
        else:
            largest = np.array([int(free.gpus.argmax())])
            order = np.broadcast_to(free.gpus.astype(np.float64), free.width.shape)
            grown = grow_paths(free, target, 1.0, order=order, seeds=largest)
        best = self._best(job, grown, free, price, target)
        gpus = min(int(grown.gpus[best]), target)
        if gpus < job.min_gpus:
            return NoPlacement(
                job_id=job.job_id,
                reason=f"no path of wide enough links has {job.min_gpus} free GPUs",
            )
        path = grown.path(best)
        if self._minimise_cost:
            shares = cost_min.cheapest_split(path, gpus, free.gpus, price)
        else:
            joined = grown.joined(best)
            filled = cost_min.split_in_order(joined, gpus, free.gpus)
            by_region = dict(zip(joined, filled, strict=True))
            shares = [by_region[region] for region in path]
        return take(job, free, path, shares, price)

    def _order(self, free: Free, price: FloatArray) -> FloatArray:
        """Widest link first; of equally wide ones that to the cheaper region."""
        if not self._minimise_cost:
            return free.width
        # Widths are whole numbers: ranks below one half only separate equals.
        ranks = np.argsort(np.argsort(price, kind="stable"), kind="stable")
        order: FloatArray = free.width - ranks / (2 * len(ranks))
        return order

    def _best(
        self, job: PipelineJob, grown: GrownPaths, free: Free, price: FloatArray, target: int
    ) -> int:
        """Which seed's path is taken."""
        if len(grown.seeds) == 1:
            return 0
        gpus = np.minimum(grown.gpus, target)
        length = grown.members.sum(axis=1)
        # All paths are free of stalls and t_iter falls up to K*: more GPUs are faster.
        if self._minimise_cost:
            shares = cost_min.cheapest_splits(grown.members, gpus, free.gpus, price)
            # Money differs by rounding between equal splits; a picodollar is no difference.
            usd_per_hour = np.round(shares @ price, 12)
            keys = (grown.seeds, length, usd_per_hour, -gpus)
        else:
            keys = (grown.seeds, -free.gpus[grown.seeds], length, -gpus)
        return int(np.lexsort(keys)[0])


def take(
    job: PipelineJob, free: Free, path: list[int], shares: list[int], price: FloatArray
) -> Placement:
    """Place a job on a path, hold what it needs, and price its GPUs (the paper's whole cost)."""
    draft = placed(job, free, path, shares, usd_per_iteration=0.0)
    usd_per_hour = sum(
        float(price[region]) * share for region, share in zip(path, shares, strict=True)
    )
    free.take(path, shares, draft.reserved_bytes_per_s)
    return Placement(
        job_id=job.job_id,
        path=draft.path,
        reserved_bytes_per_s=draft.reserved_bytes_per_s,
        iteration_s=draft.iteration_s,
        usd_per_iteration=usd_per_hour * draft.iteration_s / _S_PER_HOUR,
        reason=reason_of(draft, job),
    )


def reason_of(placement: Placement, job: PipelineJob) -> str:
    """One line on what was chosen."""
    where = " - ".join(f"{share.region_id} x{share.gpus}" for share in placement.path)
    stalled = placement.iteration_s > job.iteration_s(placement.gpus) * (1 + 1e-9)
    slow = ", stages wait for the network" if stalled else ""
    return f"{where} ({placement.gpus} of K* = {job.best_gpus} GPUs{slow})"
