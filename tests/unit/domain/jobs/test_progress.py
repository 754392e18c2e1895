"""What a job gains by what it holds."""

from __future__ import annotations

from spotline.domain.jobs.program import Holding
from spotline.domain.jobs.progress import JobProgress, advance
from tests.unit.domain.solvers.test_multi_window import SLOT_S, program_of


def test_more_instances_than_a_job_can_use_add_nothing_and_break_nothing() -> None:
    program = program_of(counts=(1, 2))
    most, more = Holding(on_demand=2), Holding(spot=2, on_demand=2)

    gained = [
        advance(program, JobProgress(holding=held), held, held_s=SLOT_S).progress_quanta
        for held in (most, more)
    ]

    assert gained[0] == gained[1] > 0
