"""Events of configuration knowledge: `knowledge.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.configuration.configuration import MeasuredRun
from spotline.domain.jobs.job import Throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasured:
    """A run was measured: by a platform, or on `job_id`, a job of ours."""

    run: MeasuredRun
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputReestimated:
    """Reports showed another rate than was believed; `throughputs` replace the job's from now on.

    `factor_ppm` is the measured rate over the one the job was submitted with, its 90 % interval
    `half_width_ppm` parts per million of it to either side.
    """

    job_id: str
    tenant: str
    throughputs: tuple[Throughput, ...]
    reports: int
    factor_ppm: int
    half_width_ppm: int
    explanation: str = ""
