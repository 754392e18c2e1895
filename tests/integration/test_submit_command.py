"""submit and plan of jobs that Spotline runs, against a real gRPC server: packed, quoted, in time."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from spotline.adapters.files.job_file import parse_job_file
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.job import Job
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import START_NS, FakeJobsHost, market_opened, opened_host, slot_opened
from tests.fakes.configurator import FakeConfigurator
from tests.integration.test_job_commands import FILE, spotline

pytestmark = pytest.mark.integration

TRAIN = """
tenant: research
name: trained
work: 8 instance_hours
deadline: {hard: 5h}
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 1}}
checkpoint: {location: checkpoints}
run:
  command: python train.py
  workdir: src
  env: {MODE: fast}
  secrets: [HF_TOKEN]
"""
# 25 slots of two instances at 10 USD per hour.
QUOTE = 25 * 3_333_333


@pytest.fixture
def train_file(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('step 1')\n")
    path = tmp_path / "train.yaml"
    path.write_text(TRAIN)
    return path


def submitted(host: FakeJobsHost) -> list[Job]:
    return [event.job for _, event in host.stored.values() if isinstance(event, JobSubmitted)]


def stored_at(uri: str) -> bytes:
    return Path(uri).read_bytes()


async def test_a_working_directory_is_packed_stored_and_named_in_the_job(train_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        answer = await run("submit", str(train_file))

    assert answer.exit_code == 0, answer.stderr
    (job,) = submitted(host)
    assert job.run is not None
    package = job.run.package
    assert package is not None
    assert package.uri == f"{train_file.parent}/checkpoints/packages/{package.sha256}.tar.gz"
    content = stored_at(package.uri)
    assert hashlib.sha256(content).hexdigest() == package.sha256
    assert len(content) == package.size_bytes
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["train.py"]
    assert job.awaits_exit
    assert job.checkpoint.location == str(train_file.parent / "checkpoints")
    assert job.deadline.at_ns == START_NS + 5 * 3600 * NS_PER_S


async def test_a_job_without_a_value_is_quoted_and_recorded_with_its_quote(train_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        shown = await run("submit", str(train_file))
        as_json = await run("submit", str(train_file), "--json")
        status = await run("status", submitted(host)[0].job_id)

    job_id = submitted(host)[0].job_id
    assert shown.stdout.splitlines() == [
        f"{job_id}  submitted",
        "on demand it would cost 83.33 USD; it will cost at most 125.00 USD",
    ]
    assert json.loads(as_json.stdout) == {
        "job_id": job_id,
        "already_submitted": True,
        "on_demand_quote_micro_usd": QUOTE,
        "most_cost_micro_usd": 124_999_988,
    }
    (job,) = submitted(host)
    assert job.value_from_quote
    assert job.on_demand_quote_micro_usd == QUOTE
    assert job.value_micro_usd == job.budget_micro_usd == 124_999_988
    assert "125.00 USD, from the on-demand quote of 83.33 USD" in status.stdout


async def test_submitted_again_later_it_is_the_same_job_at_its_first_deadline(train_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        first = await run("submit", str(train_file), "--json")
        for slot in range(1, 7):
            host.record(slot_opened(slot, on_demand_price=20_000_000))
        again = await run("submit", str(train_file), "--json")

    assert json.loads(first.stdout)["job_id"] == json.loads(again.stdout)["job_id"]
    assert json.loads(again.stdout)["already_submitted"] is True
    assert json.loads(again.stdout)["on_demand_quote_micro_usd"] == QUOTE
    assert len(submitted(host)) == 1


async def test_another_program_in_the_same_file_is_another_job(train_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        await run("submit", str(train_file))
        (train_file.parent / "src" / "train.py").write_text("print('step 2')\n")
        again = await run("submit", str(train_file), "--json")

    assert json.loads(again.stdout)["already_submitted"] is False
    assert len({job.job_id for job in submitted(host)}) == 2


async def test_a_plan_packs_and_stores_nothing_and_shows_quote_and_program(train_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        shown = await run("plan", str(train_file), "--policy", "msu")
        as_json = await run("plan", str(train_file), "--policy", "msu", "--json")

    assert shown.exit_code == 0, shown.stderr
    assert "on demand it would cost 83.33 USD; it will cost at most 125.00 USD" in shown.stdout
    rows = dict(
        line.strip().split(maxsplit=1) for line in shown.stdout.splitlines() if " " in line.strip()
    )
    assert rows["runs"] == "python train.py"
    assert rows["secrets"] == "HF_TOKEN"
    assert rows["variables"] == "MODE"
    assert rows["progress"] == "by spotline.trainer"
    assert not (train_file.parent / "checkpoints").exists()
    assert submitted(host) == []
    answer = json.loads(as_json.stdout)
    assert answer["on_demand_quote_micro_usd"] == QUOTE
    assert answer["most_cost_micro_usd"] == 124_999_988
    # It is planned at that value.
    assert answer["options"][0]["expected_utility_micro_usd"] > 0


async def test_status_shows_how_it_is_run_and_secrets_by_name(train_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        await run("submit", str(train_file))
        shown = await run("status", submitted(host)[0].job_id)

    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "runs python train.py" in lines
    assert "secrets HF_TOKEN" in lines
    # A long place goes over several lines of the table.
    assert any(line.startswith("package ") for line in lines)
    assert "packages/" in "".join(shown.stdout.split())


async def test_a_deadline_no_market_can_resolve_yet_is_refused(train_file) -> None:
    async with spotline(FakeJobsHost()) as run:
        answer = await run("submit", str(train_file))

    assert answer.exit_code == 1
    assert "no market is open yet that says from when a deadline counts" in answer.stderr


async def test_before_the_first_slot_there_is_no_price_to_quote(train_file) -> None:
    host = FakeJobsHost(market_opened())
    async with spotline(host) as run:
        answer = await run("submit", str(train_file))

    assert answer.exit_code == 1
    assert "no slot has opened yet, so there is no price to quote" in answer.stderr
    assert submitted(host) == []


async def test_a_deadline_that_cannot_be_met_is_refused_as_ever(train_file) -> None:
    train_file.write_text(TRAIN.replace("5h", "1h"))
    host = opened_host()
    async with spotline(host) as run:
        answer = await run("submit", str(train_file))

    assert answer.exit_code == 1
    assert "deadline: expected a deadline of 2026-03-01T02:20:00Z or later" in answer.stderr
    assert submitted(host) == []


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("workdir: src", "workdir: none", "run.workdir: expected a folder, found none at "),
        ("location: checkpoints", "location: nosuch://x", "checkpoint.location: expected a place"),
    ],
)
async def test_what_cannot_be_packed_or_stored_submits_nothing(
    train_file, written, instead, said
) -> None:
    train_file.write_text(TRAIN.replace(written, instead))
    host = opened_host()
    async with spotline(host) as run:
        answer = await run("submit", str(train_file))

    assert answer.exit_code == 2
    assert said in answer.stderr
    assert submitted(host) == []


async def test_a_package_larger_than_asked_for_is_refused(train_file) -> None:
    (train_file.parent / "src" / "weights.bin").write_bytes(os.urandom(5_000))
    async with spotline(opened_host()) as run:
        small = await run("submit", str(train_file), "--package-mb", "0.004")
        large = await run("submit", str(train_file), "--package-mb", "0.01")

    assert small.exit_code == 2
    assert "run.workdir: expected at most 0.004 MB when packed" in small.stderr
    assert "the largest files are weights.bin (0.0 MB), train.py" in small.stderr
    assert large.exit_code == 0, large.stderr


# --- several files, and standard input --------------------------------------------------------


def several(tmp_path: Path, *texts: str) -> list[str]:
    files = []
    for index, text in enumerate(texts):
        path = tmp_path / f"{index}.yaml"
        path.write_text(text.replace("request_id: r1", f"request_id: r{index}"))
        files.append(str(path))
    return files


async def test_several_files_are_a_line_each(tmp_path) -> None:
    host = opened_host()
    files = several(tmp_path, FILE, FILE)
    async with spotline(host) as run:
        shown = await run("submit", *files)
        as_json = await run("submit", *files, "--json")

    ids = [job.job_id for job in submitted(host)]
    assert shown.stdout.splitlines() == [
        f"{job_id}  submitted  {file}" for job_id, file in zip(ids, files, strict=True)
    ]
    assert json.loads(as_json.stdout) == [
        {"file": file, "job_id": job_id, "already_submitted": True}
        for job_id, file in zip(ids, files, strict=True)
    ]


async def test_a_mistake_in_one_file_submits_none(tmp_path) -> None:
    host = opened_host()
    files = several(tmp_path, FILE, FILE.replace("amount: 8", "amount: -8"), "tenant: x")
    async with spotline(host) as run:
        answer = await run("submit", *files)

    assert answer.exit_code == 2
    assert f"{files[1]}: work.amount: expected a number > 0, found -8" in answer.stderr
    assert f"{files[2]}: deadline: expected this field" in answer.stderr
    assert submitted(host) == []


async def test_a_job_that_is_refused_keeps_no_other_from_being_submitted(tmp_path) -> None:
    host = opened_host()
    files = several(tmp_path, FILE.replace("06:00:00", "01:00:00"), FILE)
    async with spotline(host) as run:
        answer = await run("submit", *files)
        as_json = await run("submit", *files, "--json")

    assert answer.exit_code == as_json.exit_code == 1
    assert f"{files[0]}: deadline" in answer.stderr
    assert len(submitted(host)) == 1
    refused, taken = json.loads(as_json.stdout)
    assert (refused["file"], refused["reason"]) == (files[0], "DEADLINE_INFEASIBLE")
    assert taken["already_submitted"] is True


async def test_a_job_is_read_from_standard_input() -> None:
    host = opened_host()
    async with spotline(host) as run:
        twice = await run("submit", "-", "-")
        answer = await run("submit", "-", stdin=FILE)
        wrong = await run("submit", "-", stdin="tenant: x")

    assert twice.exit_code == 2
    assert "-: expected standard input once, found it twice" in twice.stderr
    assert answer.exit_code == 0, answer.stderr
    assert [job.job_id for job in submitted(host)] == [parse_job_file(FILE).job_id]
    assert wrong.stderr.startswith("spotline: stdin: deadline: expected this field, found nothing")


async def test_an_allocator_that_is_not_there_is_said_once(tmp_path) -> None:
    files = several(tmp_path, FILE, FILE)
    async with spotline(opened_host()) as run:
        pass

    answer = await run("submit", *files)

    assert answer.exit_code == 2
    assert answer.stderr.count("start one with `spotline up`") == 1


# --- drafts -----------------------------------------------------------------------------------

DRAFT = """
tenant: research
model: granite-3.1-8b
tokens: 10M tokens
deadline: {hard: 5h}
checkpoint: {location: checkpoints}
run: {command: python train.py, workdir: src}
"""


async def test_a_draft_without_a_value_is_quoted_once_it_is_complete(train_file) -> None:
    train_file.write_text(DRAFT)
    host = opened_host()
    async with spotline(host, FakeConfigurator()) as run:
        first = await run("submit", str(train_file), "--json")
        host.record(slot_opened(1, on_demand_price=20_000_000))
        again = await run("submit", str(train_file), "--json")
        planned = await run("plan", str(train_file), "--policy", "msu")

    assert first.exit_code == 0, first.stderr
    (job,) = submitted(host)
    assert job.run is not None
    assert job.run.package is not None
    quote = json.loads(first.stdout)["on_demand_quote_micro_usd"]
    assert job.value_micro_usd == job.budget_micro_usd == -(-quote * 3 // 2)
    assert json.loads(again.stdout)["already_submitted"] is True
    assert json.loads(again.stdout)["on_demand_quote_micro_usd"] == quote
    assert "it will cost at most" in planned.stdout
