"""`spotline report` on the log of a rehearsal: a page that stands alone, and a table."""

from __future__ import annotations

import csv
import lzma
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotline.cli.main import app

RUN = Path(__file__).parents[2] / "data" / "page" / "rehearsed-aws"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "log"
    folder.mkdir()
    shutil.copy(RUN / "manifest.json", folder)
    for packed in RUN.glob("*.xz"):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)], prog_name="spotline")


class Fetched(HTMLParser):
    """What a page would fetch, and its text."""

    def __init__(self, page):
        super().__init__()
        self.links, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def test_a_report_of_a_log_stands_alone_and_agrees_with_its_table(log, tmp_path):
    page, table = tmp_path / "run.html", tmp_path / "run.csv"
    result = report(log, "--html", page, "--csv", table)

    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(table.read_text().splitlines()))
    charged = sum(int(row["cost_micro_usd"]) for row in rows)
    assert f"charged {charged / 1e6:,.2f} USD" in result.stdout
    found = Fetched(page.read_text())
    assert f"${charged / 1e6:,.2f}" in found.text
    assert all(row["name"] in found.text for row in rows)
    assert [link[:22] for link in found.links] == ["data:image/png;base64,"]
    kept = sum(row["on_time"] == "true" for row in rows)
    missed = sum(row["on_time"] == "false" for row in rows)
    assert f"deadlines kept: {kept} of {kept + missed}" in result.stdout


def test_one_job_of_a_month_is_named_as_people_name_it(log, tmp_path):
    table = tmp_path / "one.csv"
    result = report("fine-tune 0002", "--log", log, "--month", "2026-01", "--csv", table)

    assert result.exit_code == 0, result.output
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert row["name"] == "fine-tune 0002"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--month", "November"), "--month: expected a month such as 2026-11, found 'November'"),
        (("no such job", "--log", "LOG"), "JOB: expected one job of 'no such job', found none"),
        (("--log", "nowhere"), "nowhere: expected the folder of a recorded log"),
    ],
)
def test_what_cannot_be_meant_is_refused(log, arguments, said):
    given = [log if word == "LOG" else word for word in arguments]
    result = report(*given)

    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
