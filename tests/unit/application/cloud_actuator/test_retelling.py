"""What a log lost of jobs and spend is said again once, and what has ended is not begun again."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spotline.application.cloud_actuator.retelling import (
    LogOfJobs,
    lost_jobs,
    retold,
    unknown_jobs,
)
from spotline.domain.events.lifecycle import JobCancelled, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.ledger.job_records import JobRecord
from tests.fakes.allocator import job
from tests.fakes.ledgers import cost

JOBS = tuple(job(f"r{number}") for number in range(4))


def record(event, event_id):
    job_id = event.job.job_id if isinstance(event, JobSubmitted) else event.job_id
    return JobRecord(event_id=event_id, correlation_id=job_id, job_id=job_id, event=event)


def closed(each):
    return JobClosed(
        job_id=each.job_id,
        tenant=each.tenant,
        slot=3,
        outcome=JobOutcome.COMPLETED,
        policy_id="",
        value_micro_usd=0,
        progress_ppm=0,
        cost_micro_usd=0,
    )


@st.composite
def stories(draw):
    """What a ledger holds of jobs and costs, and which part of that the log still has."""
    told = []
    for number, each in enumerate(JOBS):
        if not draw(st.booleans()):
            continue
        told.append(record(JobSubmitted(job=each, ts_event_ns=1), f"submitted-{number}"))
        if draw(st.booleans()):
            told.append(record(closed(each), f"closed-{number}"))
    numbers = st.integers(0, len(JOBS) - 1)
    costs = [
        cost(usd, slot=slot, job_id=JOBS[number].job_id)
        for number, slot, usd in draw(
            st.lists(st.tuples(numbers, st.integers(0, 3), st.integers(1, 3)), max_size=12)
        )
    ]
    kept = draw(st.integers(0, len(told)))
    costs_kept = draw(st.integers(0, len(costs)))
    log = LogOfJobs()
    for each in told[:kept]:
        log.fold(each.event, each.event_id)
    for place, each in enumerate(costs[:costs_kept]):
        log.fold(each, f"cost-{place}")
    return told, costs, log


def alive(records):
    ended = {each.job_id for each in records if isinstance(each.event, JobClosed)}
    return {each.job_id for each in records} - ended


@given(stories())
def test_afterwards_the_log_has_every_open_job_and_all_that_the_jobs_it_knows_cost(story):
    records, costs, log = story
    for each in retold(records, costs, log):
        log.fold(each.event, each.event_id)

    assert alive(records) <= log.submitted
    # What a job that has ended lost of its charges counts as well, where the log knows the job.
    known = alive(records) | log.submitted
    charged = Counter(each for each in costs if each.job_id in known)
    assert all(log.costs[each] == count for each, count in charged.items())
    assert list(retold(records, costs, log)) == []
    assert lost_jobs(records, log) == []


@given(stories())
def test_no_job_that_has_ended_is_begun_again(story):
    records, costs, log = story
    open_before = log.submitted - log.closed
    said = [each.event for each in retold(records, costs, log)]

    submitted = {event.job.job_id for event in said if isinstance(event, JobSubmitted)}
    withdrawn = {event.job_id for event in said if isinstance(event, JobCancelled)}
    assert submitted <= alive(records)
    assert withdrawn == open_before & ({each.job_id for each in records} - alive(records))


def test_a_job_that_was_admitted_before_submissions_were_held_is_named():
    log = LogOfJobs()
    submitted = record(JobSubmitted(job=JOBS[0], ts_event_ns=1), "e")

    assert unknown_jobs([JOBS[0].job_id, "older"], [submitted], log) == ["older"]
