"""What is left while a method goes through a queue, in the form its inner loops read."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spotline.domain.placement.graph import FloatArray, IntArray
from spotline.domain.placement.interface import Residual
from spotline.domain.placement.pipeline import PipelineJob, Placement, RegionShare


@dataclass(slots=True)
class Free:
    """Free GPUs per region and what a link carries both ways; negative counts as none.

    Attributes
    ----------
    gpus
        Shape (R,).
    width
        Bytes per second free in both directions, the smaller of the two: shape (R, R), symmetric.
        A pipeline crosses its links forward and backward alike, so the smaller one decides, and
        a reservation lowers both.
    """

    region_ids: tuple[str, ...]
    gpus: IntArray
    width: FloatArray

    @classmethod
    def of(cls, residual: Residual) -> Free:
        """A working copy of a residual."""
        bytes_per_s = np.floor(residual.bytes_per_s)
        return cls(
            residual.graph.region_ids,
            np.maximum(residual.gpus, 0),
            np.maximum(np.minimum(bytes_per_s, bytes_per_s.T), 0.0),
        )

    def copy(self) -> Free:
        """An independent copy."""
        return Free(self.region_ids, self.gpus.copy(), self.width.copy())

    def take(self, path: Sequence[int], gpus: Sequence[int], bytes_per_s: float) -> None:
        """Hold `gpus` in the regions of a path and `bytes_per_s` between its neighbours."""
        self._add(path, gpus, bytes_per_s, -1)

    def take_placement(self, placement: Placement) -> None:
        """Hold what a placement holds."""
        self._add_placement(placement, -1)

    def give_back(self, placement: Placement) -> None:
        """Add what a placement holds, as if it had ended; nothing of regions that are gone."""
        self._add_placement(placement, 1)

    def touched(self, placement: Placement) -> tuple[list[int], list[tuple[int, int]]]:
        """Regions and links, both ways, that a placement holds; none if one of them is gone."""
        # Ids ascend, as in the graph they come from.
        path = [bisect_left(self.region_ids, share.region_id) for share in placement.path]
        known = all(
            region < len(self.region_ids) and self.region_ids[region] == share.region_id
            for region, share in zip(path, placement.path, strict=True)
        )
        if not known:
            return [], []
        pairs = list(pairwise(path))
        return path, [*pairs, *((there, here) for here, there in pairs)]

    def _add_placement(self, placement: Placement, sign: int) -> None:
        path, _ = self.touched(placement)
        if path:
            gpus = [share.gpus for share in placement.path]
            self._add(path, gpus, placement.reserved_bytes_per_s, sign)

    def _add(self, path: Sequence[int], gpus: Sequence[int], bytes_per_s: float, sign: int) -> None:
        for region, count in zip(path, gpus, strict=True):
            self.gpus[region] += sign * count
        for here, there in pairwise(path):
            self.width[here, there] += sign * bytes_per_s
            self.width[there, here] += sign * bytes_per_s

    def bottleneck_bytes_per_s(self, path: Sequence[int]) -> float:
        """Free width of the narrowest link of a path; infinite within one region."""
        return min(
            (float(self.width[here, there]) for here, there in pairwise(path)), default=math.inf
        )


def reservation_bytes_per_s(job: PipelineJob, gpus: int) -> float:
    """Bandwidth that keeps `gpus` stages from waiting, in whole bytes per second, at least one.

    One at least: where there is no link, not even a job without activations can be joined.
    """
    return float(max(1, math.ceil(job.demand_bytes_per_s(gpus))))


def placed(
    job: PipelineJob,
    free: Free,
    path: Sequence[int],
    gpus: Sequence[int],
    *,
    usd_per_iteration: float,
    reason: str = "",
) -> Placement:
    """A placement on a path of regions, holding what its links can give of what it wants."""
    count = sum(gpus)
    if len(path) > 1:
        reserved = min(reservation_bytes_per_s(job, count), free.bottleneck_bytes_per_s(path))
        iteration_s = job.iteration_s(count, reserved)
    else:
        reserved = 0.0
        iteration_s = job.iteration_s(count)
    return Placement(
        job_id=job.job_id,
        path=tuple(
            RegionShare(region_id=free.region_ids[region], gpus=int(share))
            for region, share in zip(path, gpus, strict=True)
        ),
        reserved_bytes_per_s=reserved,
        iteration_s=iteration_s,
        usd_per_iteration=usd_per_iteration,
        reason=reason,
    )
