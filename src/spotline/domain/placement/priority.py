"""Stage one: who goes first. Short jobs while the network is idle, narrow ones when it is full.

    Priority_j = (1 - alpha) (1 - I_j) + alpha (1 - D_j)

I_j is the job's computing (computing time of a micro-batch times iterations) and D_j the bandwidth
it asks for at K* stages, each divided by the largest of the queue; alpha is the used part of all
bandwidth between regions (arXiv:2605.25375; I_j, D_j and alpha are our reference's fill-ins).

Assumptions: alpha and the queue are those of the scheduling event, not changed while a pass places
jobs; what a job has done already is not counted again (its `iterations` are those left).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spotline.domain.placement.graph import FloatArray
from spotline.domain.placement.interface import Residual
from spotline.domain.placement.pipeline import PipelineJob


def congestion(residual: Residual) -> float:
    """alpha: the used part of all bandwidth between regions, in [0, 1]; 0 without links."""
    total = float(np.floor(residual.graph.bytes_per_s).sum())
    if total <= 0:
        return 0.0
    free = float(np.maximum(residual.bytes_per_s, 0.0).sum())
    return min(max(1.0 - free / total, 0.0), 1.0)


def priorities(queue: Sequence[PipelineJob], alpha: float) -> FloatArray:
    """Priority of every job of a queue, in [0, 1], greater goes first; shape (jobs,).

    Raises
    ------
    ValueError
        `alpha` is not in [0, 1].
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be in [0, 1], was {alpha}")
    intensity = np.array([job.compute_s * job.iterations for job in queue])
    demand = np.array([job.demand_bytes_per_s(job.best_gpus) for job in queue])
    return (1.0 - alpha) * (1.0 - _normalised(intensity)) + alpha * (1.0 - _normalised(demand))


def by_priority(queue: Sequence[PipelineJob], alpha: float) -> list[PipelineJob]:
    """The queue, greatest priority first; ties by arrival, then by id."""
    ranked = sorted(
        zip(priorities(queue, alpha).tolist(), queue, strict=True),
        key=lambda pair: (-pair[0], pair[1].arrival_s, pair[1].job_id),
    )
    return [job for _, job in ranked]


def by_arrival(queue: Sequence[PipelineJob]) -> list[PipelineJob]:
    """The queue, first come first; ties by id."""
    return sorted(queue, key=lambda job: (job.arrival_s, job.job_id))


def _normalised(values: FloatArray) -> FloatArray:
    largest = float(values.max(initial=0.0))
    return values / largest if largest > 0 else np.zeros_like(values)
