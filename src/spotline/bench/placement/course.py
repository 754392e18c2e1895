"""What became of the jobs of a simulated run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from spotline.domain.placement.interface import (
    CostBasis,
)
from spotline.domain.placement.pipeline import PipelineJob, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStay:
    """What a job held, and from when to when."""

    start_s: float
    end_s: float
    placement: Placement


@dataclass(slots=True, kw_only=True)
class JobCourse:
    """What became of a job. `finish_s` is infinite while it is not done."""

    job: PipelineJob
    first_start_s: float = math.inf
    finish_s: float = math.inf
    refused: bool = False
    after_waiting: bool = False
    earliest_finish_s: float = math.inf
    gpu_usd: float = 0.0
    egress_usd: float = 0.0
    moves: int = 0
    strikes: int = 0
    lost_iterations: int = 0
    done_iterations: int = 0
    placements: list[PlacedStay] = field(default_factory=list)

    @property
    def jct_s(self) -> float:
        """From arrival to completion."""
        return self.finish_s - self.job.arrival_s

    @property
    def late(self) -> bool:
        """Whether it was taken, and its deadline missed."""
        return not self.refused and self.finish_s > self.job.deadline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRun:
    """A run: what became of every job, by id; `struck` are those hit by each disruption."""

    setting: str
    method_id: str
    jobs: Mapping[str, JobCourse]
    struck: tuple[tuple[str, ...], ...]
    untouched: tuple[tuple[str, ...], ...]
    passes: int
    events: int

    def figures(self, basis: CostBasis) -> dict[str, float | int]:
        """Mean and tail of completion times, makespan, costs by kind, deadlines, moves."""
        done = [one for one in self.jobs.values() if not one.refused]
        jcts = np.array([one.jct_s for one in done]) if done else np.zeros(1)
        gpu = math.fsum(one.gpu_usd for one in self.jobs.values())
        egress = math.fsum(one.egress_usd for one in self.jobs.values())
        urgent = [one for one in self.jobs.values() if math.isfinite(one.job.deadline_s)]
        return {
            "mean_jct_s": float(jcts.mean()),
            "p99_jct_s": float(np.quantile(jcts, 0.99)),
            "makespan_s": max((one.finish_s for one in done), default=0.0),
            "mean_wait_s": float(
                np.mean([one.first_start_s - one.job.arrival_s for one in done] or [0.0])
            ),
            "total_cost_usd": gpu + egress,
            "energy_usd": gpu if basis is CostBasis.ENERGY else 0.0,
            "rent_usd": gpu if basis is CostBasis.RENT else 0.0,
            "egress_usd": egress,
            "jobs": len(self.jobs),
            "deadlines": len(urgent),
            "deadlines_met": sum(
                not one.refused and one.finish_s <= one.job.deadline_s for one in urgent
            ),
            "refused": sum(one.refused for one in self.jobs.values()),
            "refused_after_waiting": sum(one.after_waiting for one in self.jobs.values()),
            "late": sum(one.late for one in urgent),
            "late_struck": sum(one.late and one.strikes > 0 for one in urgent),
            "moves": sum(one.moves for one in self.jobs.values()),
            "strikes": sum(one.strikes for one in self.jobs.values()),
            "lost_iterations": sum(one.lost_iterations for one in self.jobs.values()),
            "spanning": sum(
                any(len(stay.placement.path) > 1 for stay in one.placements)
                for one in self.jobs.values()
            ),
        }
