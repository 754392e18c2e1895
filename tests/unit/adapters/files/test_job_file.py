"""Job files: what they mean, and what each mistake is answered with."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spotline.adapters.files.job_fields import rows
from spotline.adapters.files.job_file import (
    parse_job_file,
    parse_stated_job,
    read_job_file,
    read_jobs,
)
from spotline.adapters.files.mistake import BadFile
from spotline.application.admission import job_id_for
from spotline.domain.configuration.configuration import Method, MethodOption
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Checkpoint, DeadlineKind, Job, Throughput, Topology
from spotline.domain.units import ns_from_datetime
from tools.document_job_file import DOCUMENT, documented

DOCS = Path(__file__).parents[4] / "docs"

LEAST = """
tenant: research
work: {amount: 1e3, unit: gpu_hours}
deadline: {hard: 2026-03-02T18:00:00+02:00}
value_usd: 400
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 8}}
"""

LEAST_DRAFT = """
tenant: research
model: granite-3.1-8b
tokens: 2.0e8
deadline: {hard: 2026-03-02T18:00:00+02:00}
value_usd: 400
"""


def problems(text: str) -> dict[str, str]:
    """Each mistake: field -> what was expected and found."""
    with pytest.raises(BadFile) as caught:
        parse_job_file(text)
    return {
        mistake.field: f"expected {mistake.expected}, found {mistake.found}"
        for mistake in caught.value.mistakes
    }


def test_the_least_file_is_completed_with_defaults() -> None:
    job = parse_job_file(LEAST)

    assert job.work.amount == 1000.0
    assert job.deadline.kind is DeadlineKind.HARD
    assert job.deadline.at_ns == ns_from_datetime(datetime(2026, 3, 2, 16, tzinfo=UTC))
    assert job.deadline.expires_ns == job.deadline.at_ns
    assert job.value_micro_usd == 400_000_000
    assert job.allowed_counts == (1, 2, 3, 4)
    assert job.throughputs == (Throughput(offering="*", alpha=8.0),)
    assert job.topology is Topology.ONE_ZONE
    assert job.start_ns == 0
    assert job.budget_micro_usd == 0
    assert job.offerings == ()


def test_the_documented_example_is_complete_and_valid() -> None:
    path = DOCS / "examples" / "job.yaml"

    job = read_job_file(path)

    assert job.name == "llama-8b-support-chat"
    assert job.job_id == job_id_for("research", "support-chat-2026-03-01")
    assert job.allowed_counts == (2, 4, 8)
    assert [one.offering for one in job.throughputs] == ["*", "p3.16xlarge", "p4d.24xlarge"]
    assert job.budget_micro_usd == 1_800_000_000


def test_the_documentation_holds_the_table_of_fields_and_valid_examples() -> None:
    text = DOCUMENT.read_text()
    snippets = [part.split("```")[0] for part in text.split("```yaml")[1:]]

    read = [parse_job_file(snippet, now_ns=0) for snippet in snippets]

    assert {type(job) for job in read} == {Job, JobDraft}
    # `python -m tools.document_job_file` writes it.
    assert text == documented(text)


def test_the_table_feeds_every_field_of_jobs_and_drafts_and_no_other() -> None:
    fed = {row.wire.partition(".")[0].removesuffix("[]") for _, row in rows()} - {""}

    known = {field.name for kind in (Job, JobDraft) for field in dataclasses.fields(kind)}

    # The id follows from tenant and request id; configuration and quote are filled in by Spotline,
    # the latter where no value is stated.
    filled_in = {"job_id", "configuration", "value_from_quote", "on_demand_quote_micro_usd"}
    assert fed == known - filled_in


@pytest.mark.parametrize(
    ("text", "request_id"),
    [(LEAST, "file-a220b8a62cd0f16e"), (LEAST_DRAFT, "file-813b5b7368b11d6d")],
)
def test_a_file_is_the_request_that_it_was_in_the_first_release(text, request_id) -> None:
    assert parse_job_file(text).client_request_id == request_id


def test_equal_files_are_the_same_request_and_others_are_not() -> None:
    same = parse_job_file(LEAST + "# a comment\n")
    other = parse_job_file(LEAST.replace("400", "401"))

    assert same == parse_job_file(LEAST)
    assert other.job_id != same.job_id


def test_a_request_id_names_the_job() -> None:
    job = parse_job_file(LEAST + "request_id: r1\n")

    assert (job.client_request_id, job.job_id) == ("r1", job_id_for("research", "r1"))


def test_a_job_that_says_not_whose_it_is_is_that_of_who_submits_it() -> None:
    unowned = LEAST.replace("tenant: research\n", "")
    assert unowned != LEAST
    stated = parse_stated_job(unowned, where="the job file", folder=Path())

    assert stated.needs_tenant
    with pytest.raises(BadFile, match="tenant: expected this field, as no token says"):
        stated.of_tenant("").resolved()
    assert stated.of_tenant("research").resolved() == parse_job_file(LEAST)
    owned = parse_stated_job(LEAST, where="the job file", folder=Path())
    assert owned.of_tenant("other").resolved() == parse_job_file(LEAST)


def test_a_soft_deadline_and_a_table_are_read() -> None:
    text = LEAST.replace(
        "{hard: 2026-03-02T18:00:00+02:00}",
        "{soft: 2026-03-02T18:00:00Z, worthless_after: 2026-03-03T18:00:00Z}",
    ).replace("{alpha_per_hour: 8}", "{table_per_hour: [1, 1.9, 2.7, 3.4]}")

    job = parse_job_file(text)

    assert job.deadline.kind is DeadlineKind.SOFT
    assert job.deadline.expires_ns - job.deadline.at_ns == 86_400 * 10**9
    assert job.throughputs[0].table == (1.0, 1.9, 2.7, 3.4)


@pytest.mark.parametrize(
    ("written", "instead", "field", "said"),
    [
        ("value_usd: 400", "value: 400", "value", "did you mean value_usd?"),
        ("tenant: research", "tenant: t\nbudget: 5", "budget", "did you mean budget_usd?"),
        ("tenant: research", "tenant: t\nzzz: 5", "zzz", "one of name, tenant, request_id"),
        ("alpha_per_hour", "alpha", "throughput.*.alpha", "did you mean alpha_per_hour?"),
        ("gpu_hours", "gpu-hours", "work.unit", "(did you mean gpu_hours?), found 'gpu-hours'"),
        ("gpu_hours", "parsecs", "work.unit", "expected one of gpu_hours, instance_hours"),
        ("18:00:00+02:00", "18:00:00", "deadline.hard", "a time with its UTC offset"),
        ("2026-03-02T18:00:00+02:00", "2026-03-02", "deadline.hard", "found '2026-03-02'"),
        ("2026-03-02T18:00:00+02:00", "17", "deadline.hard", "a time with its UTC offset"),
        ("{hard: 2026-03-02T18:00:00+02:00}", "{}", "deadline", "either hard, or soft"),
        ("hard: ", "soft: ", "deadline", "worthless_after with soft"),
        (
            "hard: 2026-03-02T18:00:00+02:00",
            "soft: 2026-03-02T18:00:00Z, worthless_after: 2026-03-01T18:00:00Z",
            "deadline.worthless_after",
            "a time after deadline.soft",
        ),
        ("min: 1", "min: 5", "instances.min", "a count <= instances.max (4), found 5"),
        ("min: 1", "min: 0", "instances.min", "a number >= 1 (instances), found 0"),
        ("max: 4", "max: 100000000", "instances.max", "a number <= 256"),
        ("max: 4", "max: 4.5", "instances.max", "a whole number, found 4.5"),
        ("{min: 1, max: 4}", "{min: 1}", "instances", "both min and max"),
        ("tenant: research", "tenant: " + "t" * 201, "tenant", "at most 200 characters, found"),
        ("{min: 1, max: 4}", "{min: 1, max: 2, allowed: [1]}", "instances", "either min and max"),
        ("1e3", ".nan", "work.amount", "a finite number, found nan"),
        ("1e3", ".inf", "work.amount", "a finite number, found inf"),
        ("1e3", "-4", "work.amount", "a number > 0, found -4"),
        ("1e3", "12 hours", "work.amount", "a number, such as 64, 1.5e6 or 300M (k, M, B or G, T)"),
        ("{amount: 1e3, unit: gpu_hours}", "12", "work", "a mapping of fields, found 12"),
        ("{amount: 1e3, unit: gpu_hours}", "300M", "work", "an amount and its unit, such as"),
        ("{amount: 1e3, unit: gpu_hours}", "3 parsecs", "work.unit", "one of gpu_hours, inst"),
        ("2026-03-02T18:00:00+02:00", "36 hours", "deadline.hard", "such as 36h or 1d12h"),
        ("2026-03-02T18:00:00+02:00", "12h1d", "deadline.hard", "such as 36h or 1d12h"),
        ("2026-03-02T18:00:00+02:00", "0h", "deadline.hard", "a while > 0 and of ten years"),
        ("2026-03-02T18:00:00+02:00", "99999d", "deadline.hard", "a while > 0 and of ten years"),
        (
            "hard: 2026-03-02T18:00:00+02:00",
            "soft: 2d, worthless_after: 48h",
            "deadline.worthless_after",
            "a time after deadline.soft",
        ),
        (
            "tenant: research",
            "tenant: t\ncheckpoint: {interval_s: 3 min}",
            "checkpoint.interval_s",
            "seconds, or a duration such as 90s, 3m, 1h30m or 2d, found '3 min'",
        ),
        (
            "tenant: research",
            "tenant: t\ncheckpoint: {size_gb: 7M}",
            "checkpoint.size_gb",
            "or a size such as 500MB, 7GB or 1.5TB, found '7M'",
        ),
        ("tenant: research", "tenant: t\ndata: [{uri: s3://x}]", "data", "no data without run"),
        ("1e3", "yes", "work.amount", "a number, found True"),
        ("value_usd: 400", "value_usd: -1", "value_usd", "a number >= 0 (USD), found -1"),
        ("value_usd: 400", "value_usd: much", "value_usd", "expected a number, found 'much'"),
        ("alpha_per_hour: 8", "alpha_per_hour: -8", "throughput.*", "more than 0 work units"),
        (
            "alpha_per_hour: 8",
            "table_per_hour: [1, 2]",
            "throughput.*.table_per_hour",
            "one rate for each of 1..4 instances, found 2 rates",
        ),
        (
            "alpha_per_hour: 8",
            "alpha_per_hour: 8, table_per_hour: [1]",
            "throughput.*",
            "either alpha_per_hour",
        ),
        (
            "tenant: research",
            "tenant: t\noverhead_s: {launch: 1, grow: 2, shrink: 3, migrate: 4, interrupted: 5}",
            "overhead_s.shrink",
            "seconds <= overhead_s.grow (2), found 3",
        ),
        ("tenant: research", "tenant: t\noverhead_s: {launch: 1}", "overhead_s.grow", "nothing"),
        (
            "tenant: research",
            "tenant: t\ntopology: moon",
            "topology",
            "one_zone, one_region or any",
        ),
        (
            "tenant: research",
            "tenant: t\nbudget_usd: 0",
            "budget_usd",
            "a number > 0 (USD), found 0",
        ),
        (
            "tenant: research",
            "tenant: t\nstart_at: 2027-01-01T00:00:00Z",
            "start_at",
            "a time before the deadline",
        ),
        ("tenant: research", "tenant: t\ntenant: u", "line 3", "each field once, found tenant"),
        ("work: {", "work: {{", "line 3", "expected a field's name, found a mapping"),
        ("value_usd: 400", "value_usd: 1e30", "value_usd", "a number <= 1e+12 (USD)"),
        ("18:00:00+02:00", "18:00:00+2", "deadline.hard", "a time with its UTC offset"),
        ("2026-03-02T", "9999-03-02T", "deadline.hard", "a year in 1971..2199"),
        ("tenant: research", 'tenant: "a\\e[31m"', "tenant", "text of one line without control"),
        (
            "tenant: research",
            "tenant: t\noverhead_s: 5",
            "overhead_s",
            "a mapping of fields, found",
        ),
        ('{"*": {alpha_per_hour: 8}}', "{}", "throughput", "at least one entry, found none"),
        (
            '{"*": {alpha_per_hour: 8}}',
            "[1, 2]",
            "throughput",
            "a mapping of fields, found a list of 2",
        ),
        (
            "{min: 1, max: 4}",
            "{allowed: [1, x]}",
            "instances.allowed[1]",
            "a whole number, found 'x'",
        ),
    ],
)
def test_a_mistake_is_answered_with_field_and_expectation(written, instead, field, said) -> None:
    assert written in LEAST

    found = problems(LEAST.replace(written, instead))

    assert field in found
    assert said in found[field]


def test_all_mistakes_are_reported_at_once() -> None:
    text = LEAST.replace("1e3", ".nan").replace("min: 1", "min: 9").replace("value_usd", "value")

    assert set(problems(text)) == {"work.amount", "instances.min", "value"}


@pytest.mark.parametrize("text", ["", "just text", "[1, 2]"])
def test_what_is_no_mapping_is_refused(text) -> None:
    assert "a mapping of fields" in problems(text)["(file)"]


def test_a_missing_file_is_said(tmp_path) -> None:
    with pytest.raises(BadFile, match=r"nowhere\.yaml: \(file\): expected a file, found none"):
        read_job_file(tmp_path / "nowhere.yaml")


def test_every_line_of_the_message_names_file_and_field() -> None:
    with pytest.raises(BadFile) as caught:
        parse_job_file(LEAST.replace("value_usd", "value").replace("1e3", "-1"), where="a.yaml")

    assert str(caught.value).splitlines() == [
        "a.yaml: work.amount: expected a number > 0, found -1",
        "a.yaml: value: expected a known field (did you mean value_usd?), found value",
    ]


# --- drafts -----------------------------------------------------------------------------------


def test_the_least_draft_states_nothing_that_is_not_written() -> None:
    draft = parse_job_file(LEAST_DRAFT)

    assert isinstance(draft, JobDraft)
    assert (draft.model_name, draft.tokens) == ("granite-3.1-8b", 2.0e8)
    assert draft.deadline.at_ns == ns_from_datetime(datetime(2026, 3, 2, 16, tzinfo=UTC))
    assert draft.value_micro_usd == 400_000_000
    assert draft.job_id == job_id_for("research", draft.client_request_id)
    unstated = ("method", "gpu_model", "gpus", "tokens_per_sample", "batch_size", "precision")
    unstated += ("options", "allowed_counts", "throughputs", "topology", "checkpoint", "overheads")
    assert not any(getattr(draft, name) for name in unstated)


def test_what_a_draft_states_is_read() -> None:
    text = LEAST_DRAFT.replace("granite-3.1-8b", "{name: ours, parameters_billion: 8.2}") + (
        "fine_tuning:\n"
        "  {method: gptq-lora, gpu: A100-80GB, gpus: 16, tokens_per_sample: 4096, batch_size: 64,\n"
        "   precision: float16, expert_parallel: 2, options: {fast_moe: 4, fast_kernels: true}}\n"
        "instances: {allowed: [2]}\n"
        "throughput: {p4d.24xlarge: {table_per_hour: [1, 2.0e+7]}}\n"
        "topology: any\n"
        "checkpoint: {interval_s: 60}\n"
        "budget_usd: 9\n"
    )

    draft = parse_job_file(text)

    assert isinstance(draft, JobDraft)
    assert (draft.model_name, draft.model_parameters) == ("ours", 8_200_000_000)
    assert (draft.method, draft.gpu_model, draft.gpus) == (Method.GPTQ_LORA, "A100-80GB", 16)
    assert (draft.tokens_per_sample, draft.batch_size) == (4096, 64)
    assert (draft.precision, draft.expert_parallel) == ("float16", 2)
    assert draft.options == (
        MethodOption(name="fast_kernels", value="true"),
        MethodOption(name="fast_moe", value="4"),
    )
    assert draft.allowed_counts == (2,)
    assert draft.throughputs == (Throughput(offering="p4d.24xlarge", table=(1.0, 2e7)),)
    assert draft.topology is Topology.ANY
    assert draft.checkpoint == Checkpoint(interval_s=60, save_s=120)
    assert draft.overheads is None
    assert draft.budget_micro_usd == 9_000_000


def test_the_documented_draft_is_valid() -> None:
    draft = read_job_file(DOCS / "examples" / "draft.yaml")

    assert isinstance(draft, JobDraft)
    assert draft.name == "granite-8b-support-chat"
    assert draft.tokens == 3e8


def test_equal_drafts_are_the_same_request_and_others_are_not() -> None:
    first = parse_job_file(LEAST_DRAFT)

    assert parse_job_file(LEAST_DRAFT + "# a comment\n") == first
    assert parse_job_file(LEAST_DRAFT + "topology: one_zone\n").job_id != first.job_id


@pytest.mark.parametrize(
    ("written", "instead", "field", "said"),
    [
        ("granite-3.1-8b", "8", "model", "a model's name, or a mapping of name and"),
        ("granite-3.1-8b", "''", "model.name", "text that is not empty"),
        ("granite-3.1-8b", "{parameters_billion: 8}", "model.name", "found nothing"),
        ("granite-3.1-8b", "{name: x, parameters: 8}", "model.parameters", "parameters_billion?"),
        ("2.0e8", "0", "tokens", "a number > 0 (tokens), found 0"),
        ("2.0e8", "many", "tokens", "or 300M (k, M, B or G, T), of tokens, found 'many'"),
        ("2.0e8", "3 samples", "tokens", "of tokens, found '3 samples'"),
        ("tokens: 2.0e8", "name: x", "tokens", "expected this field, found nothing"),
        ("model: granite-3.1-8b", "name: x", "model", "expected this field, found nothing"),
        ("model:", "modle:", "modle", "did you mean model?"),
        ("value_usd: 400", "value_usd: 4\nwork: 3", "work", "tokens in the place of work"),
        (
            "value_usd: 400",
            "value_usd: 4\nfine_tuning: {methd: lora}",
            "fine_tuning.methd",
            "did you mean method?",
        ),
        (
            "value_usd: 400",
            "value_usd: 4\nfine_tuning: {method: prompt}",
            "fine_tuning.method",
            "full, lora, qlora, gptq-lora or adapter",
        ),
        (
            "value_usd: 400",
            "value_usd: 4\nfine_tuning: {batch_size: 0}",
            "fine_tuning.batch_size",
            "a number >= 1 (samples), found 0",
        ),
        (
            "value_usd: 400",
            "value_usd: 4\nfine_tuning: {options: {x: [1]}}",
            "fine_tuning.options.x",
            "text, a number, true or false",
        ),
        (
            "value_usd: 400",
            "value_usd: 4\ninstances: {allowed: [4]}\nthroughput: {x: {table_per_hour: [1]}}",
            "throughput.x.table_per_hour",
            "one rate for each of 1..4 instances",
        ),
        (
            "value_usd: 400",
            "value_usd: 4\nstart_at: 2027-01-01T00:00:00Z",
            "start_at",
            "a time before the deadline",
        ),
    ],
)
def test_a_mistake_in_a_draft_is_answered_with_field_and_expectation(
    written, instead, field, said
) -> None:
    assert written in LEAST_DRAFT

    found = problems(LEAST_DRAFT.replace(written, instead))

    assert field in found
    assert said in found[field]


def test_a_file_with_neither_a_model_nor_a_throughput_says_so_once() -> None:
    text = LEAST_DRAFT.replace("model: granite-3.1-8b\n", "").replace("tokens: 2.0e8\n", "")

    found = problems(text.replace("value_usd: 400", "value_usd: -1"))

    assert set(found) == {"(file)", "value_usd"}
    assert "either model and tokens" in found["(file)"]
    assert "or work, instances and throughput, found neither" in found["(file)"]


def test_a_missing_throughput_says_that_it_can_be_filled_in() -> None:
    text = LEAST.replace('throughput: {"*": {alpha_per_hour: 8}}\n', "")

    found = problems(text)

    assert set(found) == {"throughput"}
    assert "or model and tokens, to have what is missing filled in" in found["throughput"]


def test_tokens_beside_a_stated_job_are_refused() -> None:
    assert "no tokens without a model" in problems(LEAST + "tokens: 5\n")["tokens"]


def test_where_drafts_are_not_completed_one_is_refused(tmp_path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(LEAST_DRAFT)

    with pytest.raises(BadFile, match="no configurator is asked, found a draft"):
        read_jobs(path)


# --- lists ------------------------------------------------------------------------------------


def as_list(*texts: str) -> str:
    return "".join("-" + text.replace("\n", "\n  ").rstrip() + "\n" for text in texts)


def test_a_list_holds_jobs_in_the_format_of_a_file(tmp_path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(as_list(LEAST, LEAST.replace("400", "401")))

    first, second = read_jobs(path)

    assert first == parse_job_file(LEAST)
    assert second.value_micro_usd == 401_000_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", r"jobs\.yaml: \(file\): expected at least one job, found an empty list"),
        (as_list(LEAST, LEAST), r"jobs\.yaml \[1\]: request_id: expected one of its own for each"),
        (
            as_list(LEAST, "\n1"),
            r"jobs\.yaml \[1\]: \(file\): expected a mapping of fields, found 1",
        ),
        (as_list(LEAST.replace("400", "x")), r"jobs\.yaml \[0\]: value_usd: expected a number"),
        (as_list(LEAST + "tenant: u"), r"jobs\.yaml: line 8: expected each field once, found te"),
    ],
)
def test_a_mistake_in_a_list_names_the_entry(tmp_path, text, said) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)

    with pytest.raises(BadFile, match=said):
        read_jobs(path)
