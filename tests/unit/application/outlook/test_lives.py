"""A job's life in one future, where it begins at the end of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from spotline.application.allocation.tasks import program_of
from spotline.application.outlook.lives import Beginning, FutureCourse, live_alone
from spotline.domain.jobs.progress import JobProgress
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job


def test_a_job_done_in_the_last_slot_of_its_life_has_a_life_that_is_over():
    stated = job(deadline_slots=12)
    program = program_of(stated, EAST, "p4d.24xlarge", SLOT_S, START_NS, None)
    place = SimpleNamespace(program=program, spot=np.zeros((1, 4), dtype=np.int64))
    course = FutureCourse(
        state=None,
        job=stated,
        places={EAST: place},
        options=None,
        next_slot_start_ns=START_NS,
    )
    begins = Beginning(
        home=EAST,
        policy_id="sdp",
        first_slot_start_ns=START_NS,
        # The slot after the deadline's is the first of the futures.
        elapsed_slots=program.end_slots + 1,
        state=JobProgress(progress_quanta=program.work_quanta),
        spent_micro_usd=7,
    )

    life = live_alone(course, begins, 0)

    assert (life.cost_micro_usd, life.value_micro_usd, life.on_time) == (7, 0, False)
