"""What an iteration costs: GPUs, egress of activations, and what interruptions waste.

The paper counts electricity only; egress and spot risk are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spotline.domain.placement.graph import FloatArray, RegionGraph
from spotline.domain.placement.interface import CostBasis
from spotline.domain.placement.pipeline import PipelineJob

_BYTES_PER_GB = 1e9
_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationCost:
    """USD of one iteration, by what they are paid for."""

    gpu_usd: float
    egress_usd: float
    risk_usd: float

    @property
    def usd(self) -> float:
        """All of it."""
        return self.gpu_usd + self.egress_usd + self.risk_usd


def usd_per_gpu_hour(
    graph: RegionGraph, basis: CostBasis, energy_usd_per_kwh: Sequence[float] | None = None
) -> FloatArray:
    """Price of a GPU-hour per region, USD, shape (R,).

    Parameters
    ----------
    graph
        Its regions say what a GPU draws and is rented for.
    basis
        ENERGY: power drawn times the price of energy. RENT: the rent (power is the owner's bill).
    energy_usd_per_kwh
        What energy costs now, in the graph's order, where it is not what the regions say.
    """
    if basis is CostBasis.RENT:
        return np.array([region.rent_usd_per_gpu_hour for region in graph.regions])
    if energy_usd_per_kwh is None:
        energy_usd_per_kwh = [region.energy_usd_per_kwh for region in graph.regions]
    kw = np.array([region.gpu_kw for region in graph.regions])
    return kw * np.asarray(energy_usd_per_kwh, dtype=np.float64)


def egress_usd_per_iteration(job: PipelineJob, graph: RegionGraph, path: Sequence[int]) -> float:
    """USD for the activations that leave regions: both ways over every boundary of the path."""
    gigabytes = job.microbatches * job.activation_bytes / _BYTES_PER_GB
    price = graph.egress_usd_per_gb
    return gigabytes * sum(
        float(price[here, there] + price[there, here]) for here, there in pairwise(path)
    )


def interruptions_per_hour(graph: RegionGraph, path: Sequence[int]) -> float:
    """How often one of the path's regions takes its capacity back: any one stops the pipeline."""
    return sum(graph.regions[region].interruptions_per_hour for region in path)


def copy_usd_per_gb(graph: RegionGraph) -> FloatArray:
    """USD per gigabyte of a checkpoint that leaves a region after an interruption, shape (R,).

    Where to is not known yet: the mean over all other regions.
    """
    others = max(1, len(graph.region_ids) - 1)
    mean: FloatArray = graph.egress_usd_per_gb.sum(axis=1) / others
    return mean


def lost_s_per_iteration(
    job: PipelineJob, graph: RegionGraph, path: Sequence[int], iteration_s: float
) -> float:
    """Expected seconds lost to interruptions per iteration done.

    Each costs the restart and, on average, half of what lies between two checkpoints. To first
    order: interruptions during the repair itself are left out.
    """
    rate_per_s = interruptions_per_hour(graph, path) / _S_PER_HOUR
    repair_s = job.restart_s + job.checkpoint_interval_iterations * iteration_s / 2
    return rate_per_s * iteration_s * repair_s


def iteration_cost(
    job: PipelineJob,
    graph: RegionGraph,
    price_usd_per_gpu_hour: FloatArray,
    path: Sequence[int],
    gpus: Sequence[int],
    iteration_s: float,
) -> IterationCost:
    """What an iteration is expected to cost on a path with `gpus` per region.

    Stages that wait are paid for like those that compute. An interruption also copies the
    checkpoint out of the first region (`copy_usd_per_gb`).
    """
    usd_per_s = (
        sum(
            float(price_usd_per_gpu_hour[region]) * count
            for region, count in zip(path, gpus, strict=True)
        )
        / _S_PER_HOUR
    )
    rate_per_s = interruptions_per_hour(graph, path) / _S_PER_HOUR
    copy_usd = job.checkpoint_gb * float(copy_usd_per_gb(graph)[path[0]])
    return IterationCost(
        gpu_usd=usd_per_s * iteration_s,
        egress_usd=egress_usd_per_iteration(job, graph, path),
        risk_usd=usd_per_s * lost_s_per_iteration(job, graph, path, iteration_s)
        + rate_per_s * iteration_s * copy_usd,
    )
