"""What a server refuses, said in the words of the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotline.adapters.files.job_file import read_job_file
from spotline.adapters.files.pipeline_file import read_pipeline
from spotline.adapters.files.refusal import RefusedField, field_in_file, in_the_files_words
from spotline.domain.configuration.configuration import MethodOption
from spotline.domain.jobs.job import Deadline, DeadlineKind

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
JOB = read_job_file(EXAMPLES / "job.yaml")
TRAIN = read_job_file(EXAMPLES / "train.yaml", now_ns=0)
DRAFT = replace(
    read_job_file(EXAMPLES / "draft.yaml"), options=(MethodOption(name="fast_moe", value="4"),)
)
PIPELINE = read_pipeline(EXAMPLES / "pipeline.yaml")


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ("tenant", "tenant"),
        ("client_request_id", "request_id"),
        ("work.amount", "work.amount"),
        ("deadline", "deadline"),
        ("deadline.at_ns", "deadline.hard"),
        ("value_micro_usd", "value_usd"),
        ("budget_micro_usd", "budget_usd"),
        ("start_ns", "start_at"),
        ("allowed_counts", "instances"),
        ("allowed_counts[1]", "instances[1]"),
        ("throughputs", "throughput"),
        ("throughputs[0]", "throughput.*"),
        ("throughputs[1].offering", "throughput.p3.16xlarge"),
        ("throughputs[1].table", "throughput.p3.16xlarge.table_per_hour"),
        ("throughputs[2].alpha", "throughput.p4d.24xlarge.alpha_per_hour"),
        ("offerings[3]", "offerings[3]"),
        ("checkpoint.save_s", "checkpoint.save_s"),
        ("overheads.grow_s", "overhead_s.grow"),
        ("overheads", "overhead_s"),
        ("job_id", ""),
    ],
)
def test_a_field_of_the_message_is_a_field_of_the_file(wire: str, field: str) -> None:
    assert field_in_file(wire, JOB) == field


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ("run", "run"),
        ("run.command[3]", "run.command[3]"),
        ("run.environment", "run.env"),
        ("run.environment[0].value", "run.env.TOKENIZERS_PARALLELISM"),
        ("run.secrets[0]", "run.secrets[0]"),
        ("run.package.uri", "run.workdir"),
        ("run.progress.pattern", "run.progress.output"),
        ("run.progress.source", "run.progress"),
        ("run.data", "data"),
        ("run.data[0].uri", "data[0].uri"),
        ("run.data[0].size_gb", "data[0].gb"),
        ("run.grace_s", "run.grace_s"),
        ("egress_budget_micro_usd", "egress_usd"),
        ("checkpoint.location", "checkpoint.location"),
        ("awaits_exit", "awaits_exit"),
    ],
)
def test_so_is_one_of_how_it_is_run(wire: str, field: str) -> None:
    assert field_in_file(wire, TRAIN) == field


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ("model_name", "model"),
        ("model_parameters", "model.parameters_billion"),
        ("gpu_model", "fine_tuning.gpu"),
        ("gpus", "fine_tuning.gpus"),
        ("options", "fine_tuning.options"),
        ("options[0].value", "fine_tuning.options.fast_moe"),
        ("tokens", "tokens"),
    ],
)
def test_a_field_of_a_draft_is_a_field_of_the_file(wire: str, field: str) -> None:
    assert field_in_file(wire, DRAFT) == field


def test_a_soft_deadline_is_named_as_one() -> None:
    deadline = Deadline(
        kind=DeadlineKind.SOFT, at_ns=JOB.deadline.at_ns, expires_ns=JOB.deadline.at_ns + 10**9
    )
    job = replace(JOB, deadline=deadline)

    assert field_in_file("deadline.at_ns", job) == "deadline.soft"
    assert field_in_file("deadline.expires_ns", job) == "deadline.worthless_after"


@pytest.mark.parametrize(
    ("field", "message", "said"),
    [
        (
            "job.offerings[0]",
            "job.offerings[0] must be a known offering, was 'x'; known are y",
            "offerings[0]: expected a known offering, found 'x'; known are y",
        ),
        (
            "job.work",
            "job.work: work.amount must be finite and > 0, was nan",
            "work.amount: expected finite and > 0, found nan",
        ),
        (
            "job.throughputs[1].alpha",
            "job.throughputs[1].alpha: must be finite, was inf",
            "throughput.p3.16xlarge.alpha_per_hour: expected finite, found inf",
        ),
        (
            "job.deadline",
            "job.deadline must lie after start_ns",
            "deadline: expected it to lie after start_at, found something else",
        ),
        (
            "job.client_request_id",
            "job.client_request_id 'r' was used by t for another job; use a new request id",
            "request_id: expected another value, found one that is refused: 'r' was used by t for "
            "another job; use a new request id",
        ),
    ],
)
def test_a_refusal_is_a_mistake_in_the_file(field: str, message: str, said: str) -> None:
    error = in_the_files_words(RefusedField(field=field, message=message), [("job.yaml", JOB)])

    assert str(error) == f"job.yaml: {said}"


def test_a_deadline_that_cannot_be_met_names_the_earliest_that_can() -> None:
    refusal = RefusedField(
        field="draft.deadline",
        message="draft.deadline cannot be met: too few",
        earliest_deadline="2026-03-01T02:20:00Z",
    )

    assert str(in_the_files_words(refusal, [("draft.yaml", DRAFT)])) == (
        "draft.yaml: deadline: expected a deadline of 2026-03-01T02:20:00Z or later, "
        "found one that cannot be met: too few"
    )


def test_of_several_files_the_one_at_fault_is_named() -> None:
    refusal = RefusedField(
        field="jobs[1].offerings[0]", message="jobs[1].offerings[0] must be y, was x"
    )

    error = in_the_files_words(refusal, [("a.yaml", JOB), ("b.yaml", JOB)])

    assert str(error) == "b.yaml: offerings[0]: expected y, found x"


def test_a_pipeline_is_named_in_its_words() -> None:
    refusal = RefusedField(
        field="pipeline.client_request_id", message="pipeline.client_request_id must be y, was x"
    )

    error = in_the_files_words(refusal, [("p.yaml", PIPELINE)])

    assert str(error) == "p.yaml: request_id: expected y, found x"


@pytest.mark.parametrize("field", ["", "draft", "policy_ids[0]", "job.job_id", "jobs[7].deadline"])
def test_what_no_file_says_is_not_translated(field: str) -> None:
    assert in_the_files_words(RefusedField(field=field, message="no"), [("job.yaml", JOB)]) is None
