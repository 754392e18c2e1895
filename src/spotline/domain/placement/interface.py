"""What every placement method offers, and what it may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from spotline.domain.placement.graph import FloatArray, IntArray, RegionGraph
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement


class CostBasis(Enum):
    """What a GPU's hour costs its user: the power it draws, or its rent."""

    ENERGY = "energy"
    RENT = "rent"


@dataclass(slots=True)
class Residual:
    """What is free, as arrays over the graph's indices; methods subtract what they place.

    `gpus` has shape (R,), `bytes_per_s` (R, R), directed.
    """

    graph: RegionGraph
    gpus: IntArray
    bytes_per_s: FloatArray

    def copy(self) -> Residual:
        """An independent copy."""
        return Residual(self.graph, self.gpus.copy(), self.bytes_per_s.copy())

    def take(self, placement: Placement) -> None:
        """Subtract what a placement holds.

        Raises
        ------
        ValueError
            There is not enough left; nothing is subtracted then.
        """
        raise NotImplementedError

    def give_back(self, placement: Placement) -> None:
        """Add what a placement held."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementMoment:
    """A scheduling event: `now_s`, the price of a GPU-hour per region (USD, shape (R,)), the rest."""

    now_s: float
    usd_per_gpu_hour: FloatArray
    residual: Residual


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
