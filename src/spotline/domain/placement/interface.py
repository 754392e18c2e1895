"""What every placement method offers, and what it may look at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from spotline.domain.placement.graph import FloatArray, IntArray, RegionGraph
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement


class CostBasis(Enum):
    """What a GPU's hour costs its user: the power it draws, or its rent."""

    ENERGY = "energy"
    RENT = "rent"


@dataclass(slots=True)
class Residual:
    """What is free, as arrays over the graph's indices; methods subtract what they place.

    `gpus` has shape (R,), `bytes_per_s` (R, R), directed. Bandwidth is counted in whole bytes per
    second: such floats add and subtract without error, so giving back restores what was there.
    Both may be negative where a failure took more than was free, until its victims let go.
    """

    graph: RegionGraph
    gpus: IntArray
    bytes_per_s: FloatArray

    @classmethod
    def of(cls, graph: RegionGraph, held: Iterable[Placement] = ()) -> Residual:
        """What `held` leave of the graph; negative where it has become smaller than they are."""
        residual = cls(graph, graph.gpus.copy(), np.floor(graph.bytes_per_s))
        for placement in held:
            residual._add(placement, -1)
        return residual

    def copy(self) -> Residual:
        """An independent copy."""
        return Residual(self.graph, self.gpus.copy(), self.bytes_per_s.copy())

    def fits(self, placement: Placement) -> bool:
        """Whether all that a placement holds is free."""
        index = self.graph.index
        if not all(share.region_id in index for share in placement.path):
            return False
        return all(
            self.gpus[index[share.region_id]] >= share.gpus for share in placement.path
        ) and all(
            self.bytes_per_s[index[source], index[destination]] >= placement.reserved_bytes_per_s
            for source, destination in placement.links
        )

    def take(self, placement: Placement) -> None:
        """Subtract what a placement holds.

        Raises
        ------
        ValueError
            There is not enough left; nothing is subtracted then.
        """
        if not self.fits(placement):
            raise ValueError(
                f"placement of {placement.job_id} must fit into what is free: "
                f"{[(share.region_id, share.gpus) for share in placement.path]} with "
                f"{placement.reserved_bytes_per_s:g} bytes/s between neighbours does not"
            )
        self._add(placement, -1)

    def give_back(self, placement: Placement) -> None:
        """Add what a placement held; of regions that are no longer there nothing comes back."""
        self._add(placement, 1)

    def _add(self, placement: Placement, sign: int) -> None:
        index = self.graph.index
        for share in placement.path:
            if share.region_id in index:
                self.gpus[index[share.region_id]] += sign * share.gpus
        for source, destination in placement.links:
            if source in index and destination in index:
                pair = index[source], index[destination]
                self.bytes_per_s[pair] += sign * placement.reserved_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What a running placement will give back, and when that is expected."""

    at_s: float
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementMoment:
    """A scheduling event: `now_s`, the price of a GPU-hour per region (USD, shape (R,)), the rest.

    `releases` says when running placements are expected to end; methods do without, but then none
    waits for a better place. What they give back may be placed as much as `notice_s` later: a
    deadline that rests on it must leave that time.
    """

    now_s: float
    usd_per_gpu_hour: FloatArray
    residual: Residual
    releases: tuple[Release, ...] = ()
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.notice_s) and self.notice_s >= 0):
            raise ValueError(f"notice_s must be finite and >= 0, was {self.notice_s}")
        regions = len(self.residual.graph.region_ids)
        if self.usd_per_gpu_hour.shape != (regions,):
            raise ValueError(
                f"usd_per_gpu_hour must have one price per region ({regions}), "
                f"had shape {self.usd_per_gpu_hour.shape}"
            )
        if not np.isfinite(self.usd_per_gpu_hour).all():
            raise ValueError("usd_per_gpu_hour must be finite")


class PlacementMethod(Protocol):
    """Decides who of a queue runs where. Deterministic; ties break by ids.

    Attributes
    ----------
    method_id
        Its name in the registry.
    """

    method_id: str

    def place(
        self, queue: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Go through the queue once; `moment.residual` is left as it was.

        Returns one answer per job, in the order in which they were decided: placements fit
        together into the residual.
        """
        ...
