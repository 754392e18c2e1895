"""What may be changed of a job, and when a new deadline is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.allocator.handler import JobsHandler, check_submission
from spotline.application.allocator.updates import (
    CHANGEABLE,
    JobChange,
    bad_mask,
    changeable,
    changed,
    check_change,
    left_of,
)
from spotline.contracts.reasons import Reason
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import JobSubmitted, JobUpdated
from spotline.domain.jobs.job import Deadline, DeadlineKind, OnLimit, Throughput
from tests.fakes.allocator import SLOT_NS, START_NS, job, opened_host

JOB = job()


def hard(slots: int) -> Deadline:
    at_ns = START_NS + slots * SLOT_NS
    return Deadline(kind=DeadlineKind.HARD, at_ns=at_ns, expires_ns=at_ns)


def change(**values) -> JobChange:
    return JobChange(job_id=JOB.job_id, mask=tuple(values), **values)


def refused(slots: int, progress_ppm: int = 0):
    wanted = change(deadline=hard(slots))
    left = left_of(changed(JOB, wanted), progress_ppm)
    return check_change(opened_host().state.market(), left, wanted)


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ((), "update_mask must name one or more of deadline"),
        (("work",), "update_mask must name .* only, was work"),
    ],
)
def test_a_mask_names_what_may_change(mask, said):
    assert re.match(said, bad_mask(mask))
    assert not bad_mask(CHANGEABLE)


@given(
    value=st.integers(0, 10**12),
    budget=st.integers(0, 10**12),
    named=st.sets(st.sampled_from(CHANGEABLE)),
)
def test_only_what_is_named_changes(value, budget, named):
    asked = JobChange(
        job_id=JOB.job_id,
        mask=tuple(sorted(named)),
        deadline=hard(40),
        value_micro_usd=value,
        budget_micro_usd=budget,
        on_limit=OnLimit.STOP,
    )

    after = changed(JOB, asked)

    for name, now in changeable(after).items():
        assert now == getattr(asked if name in named else JOB, name)
    assert replace(after, **changeable(JOB)) == JOB


def test_an_infeasible_new_deadline_is_answered_with_the_earliest_feasible_one():
    said = refused(3)

    assert said is not None
    assert said.reason is Reason.DEADLINE_INFEASIBLE
    assert said.field == "deadline"
    assert refused(1 + (said.earliest_feasible_deadline_ns - START_NS) // SLOT_NS) is None


def test_work_that_is_done_makes_room_for_an_earlier_deadline():
    assert refused(8) is not None
    assert refused(8, progress_ppm=800_000) is None


def test_a_deadline_in_the_past_is_refused():
    said = refused(0, progress_ppm=999_999)

    assert said is not None
    assert "must lie ahead" in said.message


def test_money_may_change_whatever_the_deadline():
    tight = replace(JOB, deadline=hard(1))

    assert check_change(opened_host().state.market(), tight, change(budget_micro_usd=5)) is None


def test_the_read_model_shows_the_update_and_still_knows_the_submission():
    handler, host = JobsHandler(), opened_host()
    state = host.state
    updated = replace(JOB, deadline=hard(50), budget_micro_usd=7)
    faster = (Throughput(offering="*", alpha=2.0),)

    for event in (
        JobSubmitted(job=JOB, ts_event_ns=START_NS),
        ThroughputReestimated(
            job_id=JOB.job_id,
            tenant=JOB.tenant,
            throughputs=faster,
            reports=3,
            factor_ppm=2_000_000,
            half_width_ppm=1,
        ),
        JobUpdated(job_id=JOB.job_id, tenant=JOB.tenant, job=updated, ts_event_ns=START_NS),
    ):
        handler.evolve(state, event)

    shown = state.statuses[JOB.job_id].job
    assert (shown.deadline, shown.budget_micro_usd) == (updated.deadline, 7)
    assert shown.throughputs == faster
    assert state.owners(JOB.job_id) == updated
    assert state.submitted(JOB.job_id) == JOB
    again = check_submission(state, JOB)
    assert again.already_submitted
