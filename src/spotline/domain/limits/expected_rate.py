"""The rate that a job is expected to run at: what its cost to come is judged by.

A hard deadline is planned on a rate that is likely reached, which is a caution and no expectation: a
job that is stopped by what it costs at that rate was stopped without evidence. Its progress is the
evidence, and a job that runs gives it within a few reports.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spotline.domain.configuration.provenance import OriginKind
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.units import PPM

ENOUGH_REPORTS = 8
"""After as many reports of progress a rate that was not corrected is taken for the true one."""


def expected_over_planned_ppm(job: Job, offering_id: str, instance_type: str) -> int:
    """The rate that is expected of a job over the one it is planned on, parts per million.

    Intervals of predicted rates are even on the log scale, so the geometric mean of their ends is
    what was expected. It is 1 for rates that the owner stated, and for those without an interval;
    never below that.
    """
    throughput = job.throughput_on(offering_id, instance_type)
    if job.configuration is None or throughput is None:
        return PPM
    origin = job.configuration.origin_of(f"throughput.{throughput.offering}")
    if origin is None or origin.kind is OriginKind.USER or origin.low <= 0:
        return PPM
    expected = math.sqrt(origin.low) * math.sqrt(origin.high)
    return max(PPM, round(expected / throughput.rate_per_hour(job.max_instances) * PPM))


def at_expected_rate(program: JobProgram, expected_over_planned: int) -> JobProgram:
    """The program with its rates raised by so many parts per million."""
    if expected_over_planned == PPM:
        return program
    rates = tuple(rate * expected_over_planned // PPM for rate in program.rate_quanta_per_s)
    return replace(program, rate_quanta_per_s=rates)
