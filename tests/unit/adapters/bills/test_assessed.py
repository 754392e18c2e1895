"""Bills drawn with a known truth, written as three kinds of export and read back."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import chain

import pytest

from spotline.adapters.bills.assessing import read_assessed
from tests.fakes.bills import cur, focus, gcp
from tests.fakes.bills.drawn import AWS_KINDS, GCP_KINDS, Drawn

FORMATS = {
    "focus": (focus.written, "bill.csv", AWS_KINDS),
    "cur 2.0": (cur.written_parquet, "bill.parquet", AWS_KINDS),
    "cur": (cur.written_legacy, "bill.csv.gz", AWS_KINDS),
    "gcp": (gcp.written, "bill.csv", GCP_KINDS),
}
# Google's commitments come as fees and credits, without lines of their own for what they cover.
OF_EVERY_BILL = (
    "unused_commitment",
    "refund",
    "credit",
    "tax",
    "support",
    "marketplace",
    "other_service",
    "no_gpu",
    "disk_apart",
    "untagged",
    "open_run",
    "zero_duration",
    "failed_launch",
    "other_currency",
)


@pytest.fixture(scope="module", params=sorted(FORMATS))
def read(request, tmp_path_factory):
    """What was drawn, and what was read of it."""
    write, name, kinds = FORMATS[request.param]
    drawn = Drawn(7, jobs=12, days=20, kinds=kinds)
    path = tmp_path_factory.mktemp("bill") / name
    write(path, chain(drawn.charges(), drawn.planted()))
    return drawn.truth, read_assessed(path, jobs=None, prices=None), request.param


def micro(usd: Decimal) -> int:
    return round(usd * 1_000_000)


def test_what_was_paid_is_the_truth_and_its_parts_add_up(read):
    truth, bill, _ = read

    assert bill.currency == "USD"
    assert abs(bill.paid_micro - micro(truth.paid)) <= 1
    assert abs(bill.unused_micro - micro(truth.unused)) <= 1
    assert (
        bill.paid_micro
        == sum(job.paid_micro for job in bill.jobs) + bill.unused_micro + bill.apart_micro
    )


def test_jobs_are_those_that_ran(read):
    truth, bill, _ = read
    rebuilt = {job.job_id: job for job in bill.jobs}

    assert len(bill.jobs) == len(truth.jobs)
    for true in truth.jobs:
        name = true.job_id or f"gang-{true.resources[0]}"
        job = rebuilt[name]
        assert (job.instances, job.work_s, job.restarts) == (
            true.instances,
            true.work_s,
            true.restarts,
        ), name
        assert (job.begin_s, job.end_s) == (true.begin_s, true.end_s), name
        assert abs(job.paid_micro - micro(true.paid)) <= 100, name
        assert abs(job.egress_micro - micro(true.beside)) <= 1, name
        assert (job.machine.instance_type, job.machine.gpus) == (true.kind.name, true.kind.gpus)
        assert job.owner == true.owner


def test_on_demand_hours_are_within_three_percent(read):
    truth, bill, _ = read

    true_s = sum(job.work_s * job.instances for job in truth.jobs)
    assert sum(job.work_s * job.instances for job in bill.jobs) == pytest.approx(true_s, rel=0.03)


def test_every_trap_is_named_with_its_rows_and_money(read):
    truth, bill, _ = read
    found = {finding.kind: finding for finding in bill.findings}

    for kind in OF_EVERY_BILL:
        assert kind in found, kind
        assert abs(found[kind].micro - micro(truth.usd[kind])) <= 100, kind
    counted = Counter({kind: found[kind].rows for kind in found})
    for kind in (
        "refund",
        "credit",
        "tax",
        "untagged",
        "open_run",
        "failed_launch",
        "other_currency",
    ):
        assert counted[kind] == truth.rows[kind], kind
    assert all(finding.what.endswith(".") for finding in bill.findings)


def test_machine_time_that_a_plan_covers_costs_what_the_plan_costs(read):
    truth, bill, form = read
    found = {finding.kind: finding for finding in bill.findings}

    if form == "gcp":
        assert found["reserved"].rows
        assert found["commitment_purchase"].rows == 1
        return
    assert found["savings_plan"].rows == truth.rows["covered"]
    assert abs(found["savings_plan"].micro - micro(truth.usd["covered"])) <= 100


def test_list_prices_are_those_of_on_demand(read):
    truth, bill, form = read
    rebuilt = {job.job_id: job for job in bill.jobs}

    for true in truth.jobs:
        job = rebuilt.get(true.job_id)
        if job is None or (form == "gcp" and not job.list_price_micro):
            continue  # Google names no on-demand price beside a spot one.
        assert job.list_price_micro == pytest.approx(micro(true.kind.usd_per_hour), rel=1e-4)
