"""What Spotline exports of its own log, read as any bill: the log's jobs, and its ledger's money."""

from __future__ import annotations

import lzma
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from spotline.adapters.bills.assessing import read_assessed
from spotline.adapters.files.focus_file import write_focus
from spotline.application.focus.rows import FocusLedger
from spotline.replay.focus import focus_rows

RUN = Path(__file__).parents[3] / "data" / "page" / "rehearsed-aws"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "log"
    folder.mkdir()
    shutil.copy(RUN / "manifest.json", folder)
    for packed in RUN.glob("*.xz"):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="module")
def rows(log):
    """The export, whose sum a test of its own holds to the settled ledger."""
    ledger = FocusLedger()
    rows = list(focus_rows(log, ledger))
    assert (
        sum(Decimal(row["BilledCost"]) for row in rows) * 1_000_000
        == ledger.totals.billed_micro_usd
    )
    return rows


@pytest.mark.parametrize("name", ["bill.csv", "bill.parquet"])
def test_jobs_and_money_are_the_settled_ledger_s(rows, tmp_path, name):
    charged: dict[str, int] = {}
    for row in rows:
        micro = int(Decimal(row["BilledCost"]) * 1_000_000)
        charged[row["x_JobId"]] = charged.get(row["x_JobId"], 0) + micro
    write_focus(tmp_path / name, rows)

    bill = read_assessed(tmp_path / name, jobs=None, prices=None)

    assert bill.paid_micro == sum(charged.values()) > 0
    assert (bill.unused_micro, bill.apart_micro) == (0, 0)
    assert {job.job_id: job.paid_micro for job in bill.jobs} == charged
    assert {finding.kind for finding in bill.findings} <= {"uneven_gang", "zero_duration"}


def test_instance_hours_are_those_that_were_held(rows, tmp_path):
    held_s = sum(int(row["x_Instances"]) * int(row["x_HeldSeconds"]) for row in rows)
    write_focus(tmp_path / "bill.csv", rows)

    bill = read_assessed(tmp_path / "bill.csv", jobs=None, prices=None)

    rebuilt_s = sum(job.work_s * job.instances for job in bill.jobs)
    assert rebuilt_s == pytest.approx(held_s, rel=0.001)


def test_what_of_a_plan_nobody_used_is_no_job_s(rows, tmp_path):
    """A lot that a savings plan covered: it costs its share of the plan, the rest stands apart."""
    held = next(row for row in rows if row["x_Instances"] == "4")
    covered = held | {
        "BilledCost": "0.000000",
        "EffectiveCost": "3.000001",
        "PricingCategory": "Committed",
        "CommitmentDiscountId": "plan-1",
        "CommitmentDiscountStatus": "Used",
        "CommitmentDiscountType": "Savings plan",
    }
    unused = covered | {
        "EffectiveCost": "1.500000",
        "CommitmentDiscountStatus": "Unused",
        "x_JobId": "",
    }
    write_focus(tmp_path / "bill.csv", [covered, unused])

    bill = read_assessed(tmp_path / "bill.csv", jobs=None, prices=None)

    (job,) = bill.jobs
    assert (bill.paid_micro, bill.unused_micro, bill.apart_micro) == (4_500_001, 1_500_000, 0)
    assert (job.instances, job.paid_micro, job.spot_share_ppm) == (4, 3_000_001, 0)
    assert {(each.kind, each.micro) for each in bill.findings} == {
        ("savings_plan", 3_000_001),
        ("unused_commitment", 1_500_000),
    }
