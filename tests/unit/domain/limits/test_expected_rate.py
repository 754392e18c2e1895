"""The rate that a job's cost to come is judged by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.configuration.provenance import OriginKind
from spotline.domain.jobs.program import compile_program
from spotline.domain.limits.expected_rate import at_expected_rate, expected_over_planned_ppm
from spotline.domain.units import PPM
from tests.fakes.knowledge import TOKENS_PER_HOUR, predicted_job
from tests.fakes.selector import job_of

JOB = predicted_job()
PROGRAM = compile_program(
    JOB, JOB.throughputs[0], slot_s=1800, first_slot_start_ns=JOB.start_ns, notice_lead_s=120
)


def with_interval(low: float, high: float, kind: OriginKind = OriginKind.PREDICTED):
    (origin,) = JOB.configuration.origins
    told = replace(origin, low=low, high=high, kind=kind)
    return replace(JOB, configuration=replace(JOB.configuration, origins=(told,)))


def test_the_expected_rate_is_the_geometric_mean_of_the_interval():
    planned = JOB.throughputs[0].rate_per_hour(2)
    job = with_interval(planned, 9 * planned)

    assert expected_over_planned_ppm(job, "any", "any") == pytest.approx(3 * PPM, abs=1)


@pytest.mark.parametrize(
    "job",
    [
        job_of(1),
        with_interval(0.0, 0.0),
        with_interval(TOKENS_PER_HOUR, 90 * TOKENS_PER_HOUR, OriginKind.USER),
        with_interval(TOKENS_PER_HOUR / 90, TOKENS_PER_HOUR),
    ],
    ids=["no origin", "no interval", "stated", "planned higher"],
)
def test_other_rates_are_as_planned(job):
    assert expected_over_planned_ppm(job, "any", "any") == PPM


@given(st.integers(PPM, 100 * PPM))
def test_a_higher_rate_needs_no_more_slots(factor):
    faster = at_expected_rate(PROGRAM, factor)

    assert faster.slots_on_demand(PROGRAM.work_quanta, 60) <= PROGRAM.slots_on_demand(
        PROGRAM.work_quanta, 60
    )
    assert replace(faster, rate_quanta_per_s=PROGRAM.rate_quanta_per_s) == PROGRAM
