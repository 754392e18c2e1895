"""A pipeline-parallel training job, and how long its iterations take when it is spread out.

The formulas are those of "Bandwidth-Aware and Cost-Efficient Pipeline Parallel Scheduling in
Geo-Distributed LLM Training" (arXiv:2605.25375) with the fill-ins of our reference where the paper
gives none (reconstructed).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineJob:
    """What has to be trained, as its profile says; one pipeline stage per GPU.

    An iteration passes `microbatches` through the pipeline. `compute_s` is what one micro-batch
    takes, forward and backward, on one GPU that held the whole model; every boundary between
    stages is crossed by `activation_bytes` per micro-batch in each direction. `stage_overhead_s` is
    lost per stage and iteration. Memory needs at least `min_gpus`, the model has at most `max_gpus`
    stages. `arrival_s` is when it was submitted, `deadline_s` (inf: none) when it must be done,
    both on the clock of the run. Re-placing copies `checkpoint_gb` (10^9 bytes) to the first region
    and takes `restart_s`; `checkpoint_interval_iterations` are lost at most when a region fails.
    `promised` says that its deadline was accepted before: it is not refused any more, and those who
    ask only now do not get what it needs.
    """

    job_id: str
    arrival_s: float
    iterations: int
    microbatches: int
    compute_s: float
    activation_bytes: float
    stage_overhead_s: float = 0.0
    min_gpus: int = 1
    max_gpus: int = 1024
    deadline_s: float = math.inf
    promised: bool = False
    checkpoint_gb: float = 0.0
    checkpoint_interval_iterations: int = 1
    restart_s: float = 0.0
    model_name: str = ""
    tenant: str = ""

    def __post_init__(self) -> None:
        if not self.job_id:
            raise ValueError("job_id of a pipeline job must not be empty")
        for name in ("iterations", "microbatches", "min_gpus", "checkpoint_interval_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of {self.job_id} must be >= 1, was {getattr(self, name)}")
        if self.max_gpus < self.min_gpus:
            raise ValueError(
                f"max_gpus of {self.job_id} must be >= min_gpus ({self.min_gpus}), "
                f"was {self.max_gpus}"
            )
        if not (math.isfinite(self.compute_s) and self.compute_s > 0):
            raise ValueError(f"compute_s of {self.job_id} must be finite and > 0")
        for name in ("activation_bytes", "stage_overhead_s", "checkpoint_gb", "restart_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} of {self.job_id} must be finite and >= 0, was {value}")

    def stage_s(self, gpus: int) -> float:
        """Computing time of one micro-batch in one of `gpus` stages, seconds."""
        return self.compute_s / gpus

    def iteration_s(self, gpus: int, bottleneck_bytes_per_s: float = math.inf) -> float:
        """Seconds of an iteration on `gpus` stages whose slowest link has this bandwidth.

        Infinite bandwidth: all in one region. Reconstructed: a micro-batch that takes longer to
        send than to compute stalls every stage by the difference.
        """
        stage_s = self.stage_s(gpus)
        stall_s = 0.0
        if self.activation_bytes and math.isfinite(bottleneck_bytes_per_s):
            if bottleneck_bytes_per_s <= 0:
                return math.inf
            stall_s = max(0.0, self.activation_bytes / bottleneck_bytes_per_s - stage_s)
        filled = self.microbatches + gpus - 1
        return filled * (stage_s + stall_s) + gpus * self.stage_overhead_s

    @property
    def best_gpus(self) -> int:
        """K*: the stages at which an iteration is shortest with an unlimited network."""
        return _best_gpus(
            self.microbatches, self.compute_s, self.stage_overhead_s, self.min_gpus, self.max_gpus
        )

    def demand_bytes_per_s(self, gpus: int) -> float:
        """Bandwidth that keeps `gpus` stages from waiting, in each direction of a link."""
        return self.activation_bytes / self.stage_s(gpus)


@lru_cache(maxsize=4096)
def _best_gpus(
    microbatches: int, compute_s: float, stage_overhead_s: float, least: int, most: int
) -> int:
    # t(k) = (M - 1) c / k + c + k o is convex in k: its minimum lies next to the real one.
    if stage_overhead_s == 0:
        return most if microbatches > 1 else least
    ideal = math.sqrt((microbatches - 1) * compute_s / stage_overhead_s)
    low = min(max(math.floor(ideal), least), most)
    high = min(max(math.ceil(ideal), least), most)

    def iteration_s(gpus: int) -> float:
        return (microbatches + gpus - 1) * compute_s / gpus + gpus * stage_overhead_s

    return low if iteration_s(low) <= iteration_s(high) else high


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionShare:
    """Consecutive stages of a pipeline in one region."""

    region_id: str
    gpus: int

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"gpus in {self.region_id} must be >= 1, was {self.gpus}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the stages of a job run, in pipeline order, and what that takes.

    On every link between neighbours of the path `reserved_bytes_per_s` are held in each direction.
    `usd_per_iteration` is what the method expects an iteration to cost when it places.
    """

    job_id: str
    path: tuple[RegionShare, ...]
    reserved_bytes_per_s: float
    iteration_s: float
    usd_per_iteration: float
    reason: str = ""

    @property
    def gpus(self) -> int:
        """Pipeline stages, over all regions."""
        return sum(share.gpus for share in self.path)

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """The directed links between neighbours of the path, both directions."""
        ids = [share.region_id for share in self.path]
        pairs = list(pairwise(ids))
        return tuple(pairs + [(there, here) for here, there in pairs])


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlacement:
    """A job cannot be placed now, and why. A value, not an error.

    `earliest_finish_s` is set when its deadline cannot be met: the soonest it could be done.
    """

    job_id: str
    reason: str
    earliest_finish_s: float | None = None
