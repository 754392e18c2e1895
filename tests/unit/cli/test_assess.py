"""`spotline assess`: files in, an honest answer out; the commands of its page in the docs."""

from __future__ import annotations

import json
import lzma
import os
import re
import shlex
import shutil
import socket
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotline.application.page.summary import period_summary
from spotline.cli.main import app
from spotline.replay.written import page_state_of
from tests.fakes.bills import cur, focus, gcp
from tests.fakes.bills.drawn import AWS_KINDS, GCP_KINDS, Drawn
from tests.fakes.example_bill import FOLDER, write_example

ROOT = Path(__file__).parents[3]
RUN = ROOT / "tests" / "data" / "page" / "rehearsed-aws"
DOCS = ROOT / "docs" / "assess.md"
FEW = ("--slack", "1.5", "--futures", "8")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refused(*_, **__):
        raise AssertionError("an assessment opens no socket")

    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)


def assess(*arguments):
    return CliRunner().invoke(app, ["assess", *map(str, arguments)], prog_name="spotline")


class Fetched(HTMLParser):
    """What a page would fetch, and its text."""

    def __init__(self, page):
        super().__init__()
        self.links, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        self.links += [tag] if tag in ("script", "link", "iframe") else []

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """What Spotline exports of a recorded log, and the log."""
    folder = tmp_path_factory.mktemp("own")
    log = folder / "log"
    log.mkdir()
    shutil.copy(RUN / "manifest.json", log)
    for packed in RUN.glob("*.xz"):
        (log / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    bill = folder / "own.csv"
    exported = CliRunner().invoke(app, ["export", "focus", str(log), "-o", str(bill), "--json"])
    assert exported.exit_code == 0, exported.output
    return log, bill, json.loads(exported.stdout)


def test_of_spotlines_own_export_paid_and_on_demand_are_the_ledgers(own):
    log, bill, exported = own
    result = assess("--bill", bill, "--json", *FEW)

    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["paid_micro"] == exported["billed_micro_usd"]
    assert told["on_demand_micro"] == pytest.approx(exported["list_micro_usd"], rel=1e-4)
    state = page_state_of(log)
    ran = {job.job_id for job in period_summary(state, None, "").jobs if job.cost_micro_usd}
    assert {job["job_id"] for job in told["jobs"]} == ran
    (slack,) = told["slacks"]
    assert slack["spotline"]["missed"] == 0
    assert told["verdict"].startswith("You would save nothing") == (
        not slack["saving"]["told_from_0"]
    )


@pytest.mark.parametrize(
    ("write", "name", "kinds"),
    [
        (focus.written, "bill.csv", AWS_KINDS),
        pytest.param(cur.written_parquet, "bill.parquet", AWS_KINDS, marks=pytest.mark.slow),
        pytest.param(gcp.written, "bill.csv", GCP_KINDS, marks=pytest.mark.slow),
    ],
)
def test_of_drawn_bills_paid_and_on_demand_are_the_truth(write, name, kinds, tmp_path):
    drawn = Drawn(5, jobs=5, days=10, kinds=kinds)
    bill = write(tmp_path / name, chain(drawn.charges(), drawn.planted()))
    result = assess("--bill", bill, "--json", *FEW)

    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    truth = drawn.truth
    parts = ("paid_micro", "unused_commitments_micro", "apart_micro")
    assert sum(told[part] for part in parts) == told["bill_micro"]
    assert told["bill_micro"] == pytest.approx(float(truth.paid) * 1e6, abs=2)
    listed = {
        job.job_id: float(job.kind.usd_per_hour) * job.instances * job.work_s / 3600
        for job in truth.jobs
    }
    found = {job["job_id"]: job for job in told["jobs"]}
    for job in truth.jobs:
        if job.job_id.startswith("train-") and not job.failed:
            on_demand = listed[job.job_id] + float(job.beside)
            assert found[job.job_id]["on_demand_micro"] / 1e6 == pytest.approx(on_demand, rel=0.03)


def test_the_first_line_is_the_verdict_and_the_page_stands_alone(tmp_path):
    page = tmp_path / "answer.html"
    bill, prices = FOLDER / "bill.csv", FOLDER / "spot-history.json"
    result = assess("--bill", bill, "--prices", prices, "--html", page, *FEW)

    assert result.exit_code == 0, result.output
    first = result.stdout.splitlines()[0]
    assert first.startswith(("You would have saved", "You would save nothing"))
    found = Fetched(page.read_text())
    assert found.links == []
    assert first in " ".join(found.text.split())
    assert "tune-mistral" in found.text
    assert "spotline assess --bill" in found.text
    assert f"--prices {prices}" in found.text
    assert "Support: counted apart" in found.text


def test_names_on_a_bill_are_text_on_the_page(tmp_path):
    bill, page = tmp_path / "bill.csv", tmp_path / "answer.html"
    text = (FOLDER / "bill.csv").read_text()
    bill.write_text(text.replace("sweep-1", "<script>alert(1)</script>"))
    result = assess("--bill", bill, "--html", page, *FEW)

    assert result.exit_code == 0, result.output
    found = Fetched(page.read_text())
    assert found.links == []
    assert "<script>alert(1)</script>" in found.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--slack", "0.5"), "--slack: expected numbers from 1 to 10, found 0.5"),
        (("--slack", "2,1"), "--slack: expected numbers that ascend, found 2,1"),
        (("--slack", "1;5"), "--slack: expected a number such as 1.5, found '1;5'"),
        (("--spot-price-share", "nan"), "--spot-price-share: expected a number such as 1.5"),
        (("--bill", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_what_cannot_be_meant_is_said_with_where(words, said):
    result = assess("--bill", FOLDER / "bill.csv", *words)

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_a_folder_of_files_is_one_bill_and_each_file_is_named(tmp_path):
    rows = (FOLDER / "bill.csv").read_text().splitlines(keepends=True)
    for name, part in (("a", rows[1:40]), ("b", rows[40:])):
        (tmp_path / f"{name}.csv").write_text("".join((rows[0], *part)))
    whole, parts = (
        json.loads(assess("--bill", bill, "--json", *FEW).stdout)
        for bill in (FOLDER / "bill.csv", tmp_path)
    )

    assert parts["slacks"] == whole["slacks"]
    read = [Path(file["path"]).name for file in parts["sources"]["files"]]
    assert read == ["a.csv", "b.csv"]
    assert f"--bill {tmp_path} --slack" in parts["sources"]["command"]


def test_a_pipe_is_refused_as_it_can_be_read_once_only(tmp_path):
    pipe = tmp_path / "bill"
    os.mkfifo(pipe)
    result = assess("--bill", pipe)

    assert result.exit_code == 2
    assert "expected a file, which is read twice, found a pipe" in " ".join(result.stderr.split())


def test_a_page_without_a_folder_is_said_before_the_work(tmp_path):
    page = tmp_path / "nowhere" / "answer.html"
    result = assess("--bill", tmp_path / "neither.csv", "--html", page)

    assert result.exit_code == 2
    assert "found no such folder" in " ".join(result.stderr.split())


# --- docs/assess.md ---------------------------------------------------------------------------


def test_the_example_in_the_docs_is_what_its_generator_writes(tmp_path):
    write_example(tmp_path)

    assert {path.name for path in FOLDER.iterdir()} == {path.name for path in tmp_path.iterdir()}
    for path in sorted(tmp_path.iterdir()):
        assert (FOLDER / path.name).read_bytes() == path.read_bytes(), path.name


def test_every_command_in_the_docs_runs_and_the_output_is_the_real_one(tmp_path, monkeypatch):
    text = DOCS.read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert [line for line in commands if not line.startswith("spotline ")] == [
        "pip install spotline"
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    said = {}
    for command in commands[1:]:
        result = CliRunner().invoke(app, shlex.split(command)[1:], prog_name="spotline")
        assert result.exit_code == 0, (command, result.output)
        said[command] = result.stdout
    assert said[commands[2]] == shown
    assert (tmp_path / "answer.html").exists()
    told = json.loads(said[commands[-1]])
    assert told["verdict"] in said[commands[1]]
    assert {job["rebuilt_by"] for job in told["jobs"]} == {"history"}
    assert [file["option"] for file in told["sources"]["files"]] == ["--bill", "--jobs"]
