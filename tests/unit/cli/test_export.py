"""`spotline export focus` on a recorded run: files that add up to what the log's ledger charged."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.cli.main import app
from spotline.domain.events.capacity import CostAccrued
from spotline.replay.recorded import readable_events

RUN = Path(__file__).parents[2] / "data" / "page" / "rehearsed-aws"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The log of a rehearsal on AWS."""
    folder = tmp_path_factory.mktemp("store") / "log"
    folder.mkdir()
    shutil.copy(RUN / "manifest.json", folder)
    for packed in RUN.glob("*.xz"):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


def export(*arguments):
    return CliRunner().invoke(app, ["export", "focus", *map(str, arguments)], prog_name="spotline")


def charged(log):
    events = (recorded.event for recorded in readable_events(EventLogReader(log)))
    return [event.cost_micro_usd for event in events if isinstance(event, CostAccrued)]


def rows_of(text):
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture(scope="module")
def bill(log):
    """What was said of an export, and its rows."""
    result = export(log, "-o", log.parent / "bill.csv", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), rows_of((log.parent / "bill.csv").read_text())


def test_what_is_billed_adds_up_to_the_ledger_to_the_micro_dollar(log, bill):
    said, rows = bill

    billed = sum(Decimal(row["BilledCost"]) for row in rows)
    assert sum(charged(log)) > 0
    assert said["billed_micro_usd"] == sum(charged(log)) == billed * 1_000_000
    assert said["rows"] == len(rows) == len(charged(log))
    assert said["unexplained"] == 0


def test_each_kind_of_file_holds_the_same_rows(log, bill, tmp_path):
    _, rows = bill
    for name in ("bill.csv.gz", "bill.parquet"):
        assert export(log, "-o", tmp_path / name).exit_code == 0

    packed = gzip.decompress((tmp_path / "bill.csv.gz").read_bytes())
    assert rows_of(packed.decode()) == rows
    table = pq.read_table(tmp_path / "bill.parquet")
    assert table.schema.metadata[b"focus_version"] == b"1.2"
    assert table.column_names == list(rows[0])
    for told, row in zip(table.to_pylist(), rows, strict=True):
        assert told["EffectiveCost"] == Decimal(row["EffectiveCost"])
        assert told["x_DecisionId"] == (row["x_DecisionId"] or None)


def test_a_period_has_the_charges_of_its_slots(log, bill, tmp_path):
    _, rows = bill
    at = "2026-01-06T00:00:00Z"

    assert export(log, "-o", tmp_path / "x.csv", "--from", at).exit_code == 0
    later = rows_of((tmp_path / "x.csv").read_text())
    assert later == [row for row in rows if row["ChargePeriodStart"] >= at]
    assert 0 < len(later) < len(rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("-o", "bill.xls"),
            "spotline: --output: expected a name that ends in .csv, .csv.gz or .parquet, found 'bill.xls'",
        ),
        (
            ("-o", "b.csv", "--from", "2026-02-01", "--to", "2026-01-01"),
            "spotline: --to: expected a time after",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(log, options, said, tmp_path):
    result = export(log, *options)

    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())
