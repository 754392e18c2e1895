"""Stage two: a path of regions with enough GPUs whose links never make a stage wait.

A link may join a path if it carries a micro-batch no slower than a stage computes one,
A / B_free <= t_stage(K) in both directions; growth is Prim-like, one region at a time, until there
are K GPUs (arXiv:2605.25375). Reconstructed, as the paper does not say:

- the path may grow at both ends: a pipeline has no preferred end, and a tree's inner nodes are no
  place for a further neighbour;
- among the regions that may join, the one behind the widest free link does (Prim's rule), the
  lower id among equals; other orders can be asked for;
- every region with a free GPU is tried as the seed, all at once in arrays, and a caller that asked
  chooses among the paths found;
- a region without a free GPU is not on a path, as each must hold a stage.

Assumption: only the slower direction of a link counts, and what others have reserved is not lent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.placement.free import Free, reservation_bytes_per_s
from spotline.domain.placement.graph import FloatArray, IntArray
from spotline.domain.placement.pipeline import PipelineJob

BoolArray = npt.NDArray[np.bool_]

# Longer pipelines of regions are not looked for: it bounds the work of one growth, and each
# further boundary is one more link whose loss stops the job.
MAX_REGIONS = 16


@dataclass(slots=True)
class GrownPaths:
    """Paths grown from several seeds.

    Attributes
    ----------
    members
        Whether a region is on the path, shape (seeds, R).
    gpus
        Free GPUs on the path, shape (seeds,); fewer than needed where growth got stuck.
    along
        Sum over the path's links of what was asked to be summed, shape (seeds,).
    shorter
        The same paths before their last joins, one entry per step of the growth, seeds first.
    """

    seeds: IntArray
    members: BoolArray
    gpus: IntArray
    along: FloatArray
    joins: list[tuple[IntArray, BoolArray]]
    shorter: list[GrownPaths]

    def path(self, seed: int) -> list[int]:
        """Regions of the path from the `seed`-th seed, in pipeline order."""
        found = [int(self.seeds[seed])]
        for regions, at_front in self.joins:
            if regions[seed] >= 0:
                found.insert(0 if at_front[seed] else len(found), int(regions[seed]))
        return found

    def joined(self, seed: int) -> list[int]:
        """Regions of that path in the order in which they joined."""
        return [int(self.seeds[seed])] + [
            int(regions[seed]) for regions, _ in self.joins if regions[seed] >= 0
        ]


def grow_paths(
    free: Free,
    needed_gpus: int,
    least_bytes_per_s: float,
    *,
    order: FloatArray | None = None,
    along: FloatArray | None = None,
    seeds: IntArray | None = None,
    max_regions: int = MAX_REGIONS,
) -> GrownPaths:
    """Grow one path from every seed until it has enough GPUs or no link is wide enough.

    Parameters
    ----------
    free
        What is left now.
    needed_gpus
        K: growth stops as soon as the path's regions have that many.
    least_bytes_per_s
        What a link must have free in both directions to be crossed.
    order
        Which region joins next: the greatest entry [end of the path, region], shape (R, R); the
        width of the links if not given.
    along
        Summed over the links of each path, shape (R, R): say the price of egress.
    seeds
        Where to start; all regions with a free GPU if not given.
    max_regions
        No path gets longer.
    """
    regions = len(free.gpus)
    if seeds is None:
        seeds = np.flatnonzero(free.gpus > 0)
    count = len(seeds)
    rows = np.arange(count)
    members = np.zeros((count, regions), dtype=bool)
    members[rows, seeds] = True
    gpus = free.gpus[seeds].copy()
    total = np.zeros(count)
    ends = np.stack([seeds, seeds])
    crossable = (free.width >= least_bytes_per_s) & (free.gpus > 0)
    score = np.where(crossable, free.width if order is None else order, -np.inf)
    joins: list[tuple[IntArray, BoolArray]] = []
    shorter: list[GrownPaths] = []

    rows = rows[gpus < needed_gpus]
    for _ in range(max_regions - 1):
        if not len(rows):
            break
        front = np.where(members[rows], -np.inf, score[ends[0, rows]])
        back = np.where(members[rows], -np.inf, score[ends[1, rows]])
        both = np.maximum(front, back)
        choice = both.argmax(axis=1)
        line = np.arange(len(rows))
        grows = both[line, choice] > -np.inf
        rows, choice, line = rows[grows], choice[grows], line[grows]
        if not len(rows):
            break
        shorter.append(
            GrownPaths(seeds, members.copy(), gpus.copy(), total.copy(), joins.copy(), [])
        )
        at_front = front[line, choice] > back[line, choice]
        side = np.where(at_front, 0, 1)
        if along is not None:
            total[rows] += along[ends[side, rows], choice]
        ends[side, rows] = choice
        members[rows, choice] = True
        gpus[rows] += free.gpus[choice]
        chosen = np.full(count, -1, dtype=np.int64)
        chosen[rows] = choice
        fronts = np.zeros(count, dtype=bool)
        fronts[rows] = at_front
        joins.append((chosen, fronts))
        rows = rows[gpus[rows] < needed_gpus]
    return GrownPaths(seeds, members, gpus, total, joins, shorter)


def largest_paths(
    job: PipelineJob,
    free: Free,
    most_gpus: int,
    *,
    order: FloatArray | None = None,
    along: FloatArray | None = None,
) -> tuple[int, GrownPaths]:
    """Grow paths to the most stages, up to `most_gpus`, that some path has without a stall.

    Fewer stages compute longer and ask less of each link, so the count is found by bisection; that
    what fits once fits for all fewer is true of paths and nearly so of greedy growth.

    Returns
    -------
    tuple[int, GrownPaths]
        The count K and the paths grown for it. None of them has K GPUs where even `min_gpus` of
        the job are out of reach.
    """

    def grown(gpus: int) -> GrownPaths:
        least = reservation_bytes_per_s(job, gpus)
        return grow_paths(free, gpus, least, order=order, along=along)

    high = max(min(most_gpus, int(free.gpus.sum())), job.min_gpus)
    paths = grown(high)
    found = int(paths.gpus.max(initial=0))
    if found >= high or high == job.min_gpus:
        return high, paths
    low = max(found, job.min_gpus)
    best = grown(low)
    if int(best.gpus.max(initial=0)) < low:
        return low, best
    while high - low > 1:
        middle = (low + high) // 2
        paths = grown(middle)
        if int(paths.gpus.max()) >= middle:
            low, best = middle, paths
        else:
            high = middle
    return low, best
