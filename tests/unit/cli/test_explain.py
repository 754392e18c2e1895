"""`spotline explain` on a recorded log: what it prints, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from spotline.cli.main import app
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobSubmitted
from tests.fakes.recorded_run import altered, small_run, write_log


@pytest.fixture(scope="module")
def entries():
    return small_run()


@pytest.fixture(scope="module")
def log(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("explain") / "log"
    write_log(folder, entries)
    return folder


@pytest.fixture(scope="module")
def said(log):
    """The latest decision of the job `fine-tune 0000`, as JSON."""
    done = run(log, "fine-tune 0000", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def run(log, *arguments, columns=120):
    return CliRunner().invoke(
        app, ["explain", *arguments, "--log", str(log)], env={"COLUMNS": str(columns)}
    )


@pytest.mark.parametrize("columns", [80, 100, 120, 160])
def test_it_is_a_sentence_the_alternatives_the_inputs_and_the_chain(log, said, columns):
    done = run(log, said["decision"]["job_id"][:6], columns=columns)

    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert " ".join(done.stdout.split()).startswith(said["summary"])
    assert all(len(line) <= columns for line in lines)
    for heading in ("alternatives, on ", "made from", "from quote to bill"):
        assert any(line.startswith(heading) for line in lines), heading
    (chosen,) = (line for line in lines if line.endswith("chosen"))
    assert f"{said['alternatives'][0]['cost_to_go_micro_usd'] / 1e6:,.2f}" in chosen


def test_all_lists_every_alternative(log, said):
    job_id = said["decision"]["job_id"]

    few, every = run(log, job_id), run(log, job_id, "--all")

    assert "more with --all" in few.stdout
    assert "more with --all" not in every.stdout
    assert len(every.stdout) > len(few.stdout)


def test_json_has_the_fields_of_the_message(said):
    assert set(said) >= {"decision", "seq", "summary", "alternatives", "method", "inputs", "chain"}
    assert said["alternatives"][0]["chosen"] is True
    assert {link["kind"] for link in said["chain"]} >= {"market.slot", "decision"}
    assert {each["kind"] for each in said["inputs"]} >= {"quote", "weights", "progress"}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("nobody",), "JOB: expected a job of"),
        (("fine-tune 0000", "--slot", "7000"), "slot: expected one in which something was decided"),
        (("fine-tune 0000", "--revision", "9"), "revision: expected one of slot"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(log, arguments, wrong):
    done, as_json = run(log, *arguments), run(log, *arguments, "--json")

    assert done.exit_code == as_json.exit_code == 2
    assert done.stderr.startswith("spotline: ")
    assert wrong in done.stderr
    assert wrong in json.loads(as_json.stdout)["error"]


def test_a_log_that_is_none_is_refused(tmp_path):
    done = run(tmp_path, "job")

    assert done.exit_code == 2
    assert done.stderr.startswith("spotline: ")


def test_a_decision_that_is_not_reproduced_exits_1(tmp_path, entries):
    def other(event):
        return replace(event, explanation="altered")

    changed, _ = altered(entries, AllocationDecided, other, nth=-1)
    write_log(tmp_path / "log", changed)
    last = [entry for entry in changed if ".decision." in entry.subject][-1]

    done = run(tmp_path / "log", last.subject.rpartition(".")[2])

    assert done.exit_code == 1
    assert done.stdout.startswith("This decision is not reproduced: explanation: ")


def test_nothing_of_a_log_reaches_the_terminal_unescaped(tmp_path, entries):
    def evil(event):
        return replace(event, explanation="\x1b[31mred\x07")

    def named(event):
        return replace(event, job=replace(event.job, name="\x1b]0;title\x07"))

    changed, _ = altered(entries, AllocationDecided, evil, nth=-1)
    changed, _ = altered(changed, JobSubmitted, named, nth=0)
    write_log(tmp_path / "log", changed)
    last = [entry for entry in changed if ".decision." in entry.subject][-1]

    shown = run(tmp_path / "log", last.subject.rpartition(".")[2])
    refused = run(tmp_path / "log", "nobody")

    assert shown.exit_code == 1
    for text in (shown.stdout, shown.stderr, refused.stderr):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert r"\x1b[31mred" in shown.stdout
