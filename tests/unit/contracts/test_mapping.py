"""A message that breaks the contract in several fields is told all of them."""

from __future__ import annotations

import pytest

from spotline.application.allocator.messages import JobQuery, ProgressReport, Submission
from spotline.application.board.messages import JobFlag, JobPhase, JobView
from spotline.application.configurator.messages import Lesson
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import from_message, to_message
from tests.samples.events import JOB


def violations(value_type, message) -> dict[str, str]:
    with pytest.raises(ContractError) as caught:
        from_message(value_type, message)
    return {said.field: said.description for said in caught.value.violations}


def test_fields_on_all_levels_are_told_at_once():
    message = to_message(Submission(job=JOB))
    message.job.tenant = ""
    message.job.work.amount = float("inf")
    message.job.topology = 77
    message.job.deadline.expires_ns = 1
    message.job.throughputs.add(offering="x", alpha=float("nan"))
    message.job.throughputs.add(offering="y", beta=float("inf"))

    found = violations(Submission, message)

    first = len(JOB.throughputs)
    assert set(found) == {
        "job.tenant",
        "job.work.amount",
        "job.topology",
        "job.deadline.expires_ns",
        f"job.throughputs[{first}].alpha",
        f"job.throughputs[{first + 1}].beta",
    }
    assert found["job.tenant"] == "must not be empty"
    assert found["job.deadline.expires_ns"].startswith("must lie after deadline.at_ns")


def test_what_a_constructor_refuses_is_told_by_field_too():
    message = to_message(Submission(job=JOB))
    message.job.value_micro_usd = -1
    message.job.retries = -2
    message.job.allowed_counts[:] = [3, 2]

    found = violations(Submission, message)

    assert set(found) == {"job.value_micro_usd", "job.retries", "job.allowed_counts"}
    assert found["job.retries"] == "must be >= 0, was -2"


def test_the_first_of_several_is_the_error_itself():
    message = to_message(Submission(job=JOB))
    message.job.tenant = ""
    message.job.work.unit = "parsecs"

    with pytest.raises(ContractError) as caught:
        from_message(Submission, message)

    assert caught.value.where == "SubmitRequest job.tenant"
    assert len(caught.value.violations) == 2


def test_a_report_that_contradicts_itself_is_told_all_of_it():
    report = to_message(ProgressReport(job_id="j", tenant="t", done=2.0))
    report.checkpointed, report.generation, report.instances = 3.0, -1, 4

    assert set(violations(ProgressReport, report)) == {
        "checkpointed",
        "generation",
        "rate_per_hour",
    }


def test_a_query_is_told_its_field():
    assert set(violations(JobQuery, _query(page_size=-1))) == {"page_size"}
    assert set(violations(JobQuery, _query(page_token="mine"))) == {"page_token"}


def _query(**fields):
    message = to_message(JobQuery())
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def test_thousands_of_mistakes_are_told_in_part():
    message = to_message(Lesson(runs=()))
    for _ in range(1000):
        message.runs.add()

    assert 0 < len(violations(Lesson, message)) <= 50


def test_repeated_enums_are_mapped_and_an_unknown_one_is_told_by_its_place():
    view = JobView(phase=JobPhase.RUNNING, flags=(JobFlag.AT_RISK, JobFlag.STALLED))
    message = to_message(view)

    assert from_message(JobView, message) == view
    message.flags.append(77)
    assert set(violations(JobView, message)) == {"flags[2]"}


def test_progress_of_less_than_nothing_is_told_its_field():
    report = to_message(ProgressReport(job_id="j", tenant="t", done=2.0))
    report.done = -1.0

    assert violations(ProgressReport, report) == {"done": "must be >= 0, was -1.0"}
