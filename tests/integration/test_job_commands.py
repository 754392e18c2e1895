"""submit, status, watch, cancel and plan against a real gRPC server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from spotline.adapters.files.job_file import parse_job_file
from spotline.adapters.files.limits_file import read_limits
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.cli import jobs as commands
from spotline.cli import plan
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.limits.spending import DEFAULT_SPENDING, SpendLimit
from tests.fakes.allocator import FakeJobsHost, opened_host
from tests.fakes.configurator import FakeConfigurator

pytestmark = pytest.mark.integration

APP = typer.Typer()
commands.register(APP)
plan.register(APP)

FILE = """
tenant: research
request_id: r1
name: a job
work: {amount: 8, unit: instance_hours}
deadline: {hard: 2026-03-01T06:00:00Z}
value_usd: 400
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 1}}
"""
JOB = parse_job_file(FILE)


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(FILE)
    return str(path)


DRAFT = """
tenant: research
request_id: d1
model: granite-3.1-8b
tokens: 1.0e7
deadline: {hard: 2026-03-01T06:00:00Z}
value_usd: 400
"""


@pytest.fixture
def draft_file(tmp_path):
    path = tmp_path / "draft.yaml"
    path.write_text(DRAFT)
    return str(path)


@asynccontextmanager
async def spotline(
    host: FakeJobsHost, configurator: FakeConfigurator | None = None, columns: int = 200
):
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(
        host,
        feed,
        address="127.0.0.1:0",
        configurator=configurator,
        await_admission=host.admits,
    )
    address = await server.start()

    async def run(*arguments: str, stdin: str | None = None):
        environment = {"SPOTLINE_ALLOCATOR_ADDRESS": address, "COLUMNS": str(columns)}
        return await asyncio.to_thread(
            CliRunner().invoke, APP, list(arguments), input=stdin, env=environment
        )

    try:
        yield run
    finally:
        await server.stop(grace_s=0.2)


def closed(outcome: JobOutcome) -> JobClosed:
    return JobClosed(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=4,
        outcome=outcome,
        policy_id="msu",
        cost_micro_usd=5_000_000,
        value_micro_usd=0,
        progress_ppm=1_000_000,
    )


async def test_submitting_twice_says_so(job_file) -> None:
    async with spotline(opened_host()) as run:
        first = await run("submit", job_file)
        second = await run("submit", job_file, "--json")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout == f"{JOB.job_id}  submitted\n"
    assert json.loads(second.stdout) == {"job_id": JOB.job_id, "already_submitted": True}


async def test_status_of_one_job_of_all_and_of_none(job_file) -> None:
    async with spotline(opened_host()) as run:
        none = await run("status")
        await run("submit", job_file)
        one = await run("status", JOB.job_id[:6], "--json")
        every = await run("status", "--state", "pending")
        pretty = await run("status", JOB.job_id)
        wrong = await run("status", "--state", "lost")
        unknown = await run("status", "nix")

    assert "no jobs" in none.stdout
    assert json.loads(one.stdout)["job"]["job_id"] == JOB.job_id
    assert json.loads(one.stdout)["state"] == "pending"
    assert "a job" in every.stdout
    assert "8 instance_hours" in pretty.stdout
    assert (wrong.exit_code, unknown.exit_code) == (2, 1)
    assert "--phase: expected one of waiting" in wrong.stderr
    assert "there is no job nix" in unknown.stderr


@pytest.mark.parametrize(
    ("outcome", "exit_code"), [(JobOutcome.COMPLETED, 0), (JobOutcome.MISSED_DEADLINE, 1)]
)
async def test_watching_ends_with_how_the_job_ended(job_file, outcome, exit_code) -> None:
    host = opened_host()
    async with spotline(host) as run:
        await run("submit", job_file)
        host.record(closed(outcome))
        watched = await run("watch", JOB.job_id, "--json")

    assert watched.exit_code == exit_code
    assert json.loads(watched.stdout)["status"]["state"] == outcome.value


async def test_cancelling_says_whether_anything_changed(job_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        await run("submit", job_file)
        first = await run("cancel", JOB.job_id)
        host.record(closed(JobOutcome.CANCELLED))
        second = await run("cancel", JOB.job_id, "--json")

    assert first.stdout.startswith(f"{JOB.job_id}  withdrawn; it is closed with the next decision")
    said = json.loads(second.stdout)
    assert said["already_closed"] is True
    assert said["said"].startswith("was over already (cancelled, 5.00 USD spent)")


async def test_a_plan_marks_the_chosen_option(job_file) -> None:
    async with spotline(opened_host()) as run:
        shown = await run(
            "plan", job_file, "--policy", "msu", "--policy", "on_demand_only", "--steps"
        )
        as_json = await run("plan", job_file, "--policy", "msu", "--json")
        wrong = await run("plan", job_file, "--policy", "guess")

    assert shown.exit_code == 0
    assert "> msu" in " ".join(shown.stdout.split())
    assert "highest expected utility" in shown.stdout
    assert json.loads(as_json.stdout)["options"][0]["chosen"] is True
    assert wrong.exit_code == 2
    assert "policy_ids[0]: expected one of on_demand_only" in wrong.stderr


async def test_several_files_are_planned_together_or_the_reason_is_shown(tmp_path) -> None:
    text = FILE.replace("amount: 8", "amount: 1").replace("min: 1, max: 4", "min: 2, max: 2")
    text = text.replace("06:00:00", "01:10:00")
    files = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            text.replace("a job", name).replace("request_id: r1", f"request_id: {name}")
        )
        files.append(str(path))
    async with spotline(opened_host()) as run:
        shown = await run("plan", *files)
        as_json = await run("plan", *files, "--json")
        none = await run("plan", *files, "--budget", "0.01")
        wrong = await run("plan", *files, "--quota", "us-east-1")
        limits = tmp_path / "limits.yaml"
        asked = ("plan", *files, "--write-limits", str(limits))
        neither = await run(*asked)
        unmet = await run(*asked, "--budget", "0.01")
        assert not limits.exists()
        within = ("--budget", "100", "--quota", "us-east-1=4")
        written = await run(*asked, *within)
        again = await run(*asked, *within)

    assert written.exit_code == 0, written.stderr
    assert f"spotline up --limits-file {limits}" in written.stderr
    assert read_limits(limits) == replace(
        DEFAULT_SPENDING,
        total=SpendLimit(micro_usd_per_hour=100_000_000),
        quotas={"us-east-1": 4},
    )
    assert (neither.exit_code, unmet.exit_code, again.exit_code) == (2, 1, 2)
    assert "expected --quota or --budget beside it" in neither.stderr
    assert "File exists" in again.stderr
    assert shown.exit_code == 0, shown.stderr
    assert "first" in shown.stdout
    assert "2 spot on aws/" in shown.stdout
    assert len(json.loads(as_json.stdout)["joint"]["schedules"]) == 2
    assert (none.exit_code, wrong.exit_code) == (1, 2)
    assert "the budget allows 0.01 USD per hour" in none.stderr
    assert "--quota: expected POOL=N, found 'us-east-1'" in wrong.stderr


async def test_an_infeasible_deadline_is_refused_with_the_earliest_one(job_file, tmp_path) -> None:
    path = tmp_path / "hurry.yaml"
    path.write_text(FILE.replace("06:00:00", "01:00:00"))
    async with spotline(opened_host()) as run:
        submitted = await run("submit", str(path))
        as_json = await run("submit", str(path), "--json")
        planned = await run("plan", str(path))

    assert (submitted.exit_code, planned.exit_code) == (1, 1)
    said = f"spotline: {path}: deadline: expected a deadline of 2026-03-01T02:20:00Z or later, found one that "
    assert submitted.stderr.startswith(f"{said}cannot be met: 2026-03-01T01:00:00Z was asked for")
    assert said.removeprefix("spotline: ") in planned.stderr
    assert "ask for 2026-03-01T02:20:00Z or later" in submitted.stderr
    assert "ask for 2026-03-01T02:20:00Z or later" in planned.stderr
    assert json.loads(as_json.stdout)["earliest_feasible_deadline"] == "2026-03-01T02:20:00Z"


def test_a_wrong_file_is_bad_input(tmp_path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(FILE.replace("deadline:", "deadlin:"))

    shown = CliRunner().invoke(APP, ["submit", str(path)])
    as_json = CliRunner().invoke(APP, ["submit", str(path), "--json"])

    assert (shown.exit_code, as_json.exit_code) == (2, 2)
    assert shown.stderr.splitlines() == [
        f"spotline: {path}: deadline: expected this field, found nothing",
        f"spotline: {path}: deadlin: expected a known field (did you mean deadline?), found deadlin",
    ]
    fields = [problem["field"] for problem in json.loads(as_json.stdout)["problems"]]
    assert fields == ["deadline", "deadlin"]


async def test_what_the_server_refuses_is_said_in_the_words_of_the_file(job_file, tmp_path) -> None:
    path = tmp_path / "elsewhere.yaml"
    path.write_text(FILE.replace("request_id: r1", "request_id: r2\nofferings: [moon-1]"))
    again = tmp_path / "again.yaml"
    again.write_text(FILE.replace("value_usd: 400", "value_usd: 401"))
    async with spotline(opened_host()) as run:
        refused = await run("submit", str(path))
        as_json = await run("submit", str(path), "--json")
        planned = await run("plan", job_file, str(path))
        await run("submit", job_file)
        reused = await run("submit", str(again))

    assert (refused.exit_code, planned.exit_code, reused.exit_code) == (2, 2, 1)
    said = f"spotline: {path}: offerings[0]: expected a known offering or instance type, found 'moon-1'; known"
    assert refused.stderr.startswith(said)
    assert planned.stderr.startswith(said)
    assert json.loads(as_json.stdout)["problems"][0]["field"] == "offerings[0]"
    assert reused.stderr.startswith(
        f"spotline: {again}: request_id: expected another value, found one that is refused: 'r1'"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 5000, "line 1: expected at most 32 levels of lists and mappings, found more"),
        ("x" * (60 << 20), "(file): expected at most 1,048,576 bytes, found more"),
        ("a: &a [1, 2]\n" * 2, "line 2: expected each field once, found a again"),
    ],
)
def test_a_hostile_file_is_bad_input(tmp_path, text, said) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(text)

    result = CliRunner().invoke(APP, ["submit", str(path)])

    assert (result.exit_code, result.stderr) == (2, f"spotline: {path}: {said}\n")


def test_nobody_there_says_what_to_do(job_file) -> None:
    result = CliRunner().invoke(APP, ["submit", job_file, "--address", "127.0.0.1:1"])

    assert result.exit_code == 2
    assert "the allocator at 127.0.0.1:1 cannot be reached" in result.stderr
    assert "start one with `spotline up`" in result.stderr


# --- drafts -----------------------------------------------------------------------------------


def row_of(output: str, name: str) -> str:
    """The table's row that begins with a name, its cells parted by single spaces."""
    (found,) = [line for line in output.splitlines() if line.split()[:1] == [name]]
    return " ".join(found.split())


async def test_a_plan_of_a_draft_shows_what_was_considered_and_who_says_what(draft_file) -> None:
    async with spotline(opened_host(), FakeConfigurator()) as run:
        shown = await run("plan", draft_file, "--policy", "msu")
        as_json = await run("plan", draft_file, "--policy", "msu", "--json")

    assert shown.exit_code == 0, shown.stderr
    assert "1 of 3 configurations, by expected cost" in shown.stdout
    # The policy that was chosen is marked alike; the configuration comes first.
    chosen = next(line for line in shown.stdout.splitlines() if line.startswith(">"))
    assert " ".join(chosen.split()) == (
        "> p4d.24xlarge 1..4 32 a100-80gb 32 2,222 1,111 - 4,444 99 % 12.00 100 % "
        "least expected cost"
    )
    assert row_of(shown.stdout, "model_name") == "model_name granite-3.1-8b user"
    assert row_of(shown.stdout, "batch_size") == "batch_size 32 default"
    rate = row_of(shown.stdout, "throughput.p4d.24xlarge")
    assert rate.endswith(
        "8e+06 tokens/h on 4 4e+06 - 1.6e+07 predicted by combined no measured runs"
    )
    assert "> msu" in " ".join(shown.stdout.split())
    answer = json.loads(as_json.stdout)
    assert answer["completion"]["options"][0]["chosen"] is True
    assert answer["completion"]["job"]["configuration"]["origins"][0]["kind"] == "user"
    assert answer["options"][0]["policy_id"] == "msu"


async def test_a_narrow_terminal_has_the_reasons_below_the_tables(draft_file) -> None:
    async with spotline(opened_host(), FakeConfigurator(), columns=80) as run:
        shown = await run("plan", draft_file, "--policy", "msu")

    lines = shown.stdout.splitlines()
    assert "> 1..4 x p4d.24xlarge, batch 32: least expected cost" in lines
    assert "throughput.p4d.24xlarge: no measured runs" in lines


async def test_submit_and_status_show_the_configuration_of_a_draft(draft_file) -> None:
    async with spotline(opened_host(), FakeConfigurator()) as run:
        submitted = await run("submit", draft_file)
        again = await run("submit", draft_file, "--json")
        job_id = json.loads(again.stdout)["job_id"]
        shown = await run("status", job_id)
        as_json = await run("status", job_id, "--json")

    assert submitted.exit_code == 0, submitted.stderr
    assert submitted.stdout.startswith(f"{job_id}  submitted\n")
    assert row_of(submitted.stdout, "gpu_model") == "gpu_model a100-80gb default"
    assert "on the software stack sfttrainer" in submitted.stdout
    assert json.loads(again.stdout)["already_submitted"] is True
    assert json.loads(again.stdout)["configuration"]["stack"] == "sfttrainer"
    assert "8e+06 tokens per hour on 4 x p4d.24xlarge, as believed now" in shown.stdout
    assert row_of(shown.stdout, "model_name") == "model_name granite-3.1-8b user"
    assert json.loads(as_json.stdout)["job"]["configuration"]["success_ppm"] == 990_000


async def test_a_draft_without_a_configurator_says_what_to_do(draft_file) -> None:
    async with spotline(opened_host()) as run:
        refused = await run("submit", draft_file)

    assert refused.exit_code == 1
    assert "this allocator has no configurator; start one" in refused.stderr


async def test_a_draft_is_not_planned_with_others(draft_file, job_file) -> None:
    async with spotline(opened_host(), FakeConfigurator()) as run:
        together = await run("plan", draft_file, job_file)
        limited = await run("plan", draft_file, "--budget", "5")

    assert (together.exit_code, limited.exit_code) == (2, 2)
    assert "is planned alone" in together.stderr


async def test_an_empty_id_means_no_job_however_few_there_are(job_file) -> None:
    async with spotline(opened_host()) as run:
        await run("submit", job_file)
        cancelled = await run("cancel", "")
        stands = await run("status", JOB.job_id, "--json")

    assert cancelled.exit_code == 2
    assert (
        cancelled.stderr == "spotline: JOB: expected an id, or how it begins, found an empty text\n"
    )
    assert json.loads(stands.stdout)["state"] == "pending"
