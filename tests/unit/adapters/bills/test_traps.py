"""Traps that need a bill of their own: rows given twice, clocks that change, nodes that are shared."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import chain

import pytest

from spotline.adapters.bills.assessing import read_assessed
from spotline.domain.assessment.facts import Rebuilding
from tests.fakes.bills import focus
from tests.fakes.bills.drawn import AWS_KINDS, Drawn, hours

P4D = AWS_KINDS[0]
TAGS = (("job", "train"), ("owner", "ann"))


def found(bill):
    return {finding.kind: finding for finding in bill.findings}


def seconds(text):
    return int(datetime.fromisoformat(text).timestamp())


def run(resource, begin, end, tags=TAGS):
    return hours(resource, P4D, begin, end, Decimal(1), spot=False, tags=tags)


def test_rows_of_an_export_that_was_delivered_twice_count_once(tmp_path):
    charges = list(Drawn(3, jobs=4, days=10).charges())
    once = read_assessed(focus.written(tmp_path / "a.csv", charges), jobs=None, prices=None)
    again = charges[5:25]
    path = focus.written(tmp_path / "b.csv", chain(charges, again))

    twice = read_assessed(path, jobs=None, prices=None)

    assert (twice.paid_micro, twice.jobs) == (once.paid_micro, once.jobs)
    assert found(twice)["duplicate"].rows == 20
    assert found(twice)["duplicate"].micro == sum(charge.usd for charge in again) * 1_000_000
    assert "duplicate" not in found(once)


def test_the_same_tax_of_two_accounts_is_paid_twice(tmp_path):
    header = "BilledCost,EffectiveCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,SubAccountId"
    tax = "3,3,USD,Tax,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,"
    (tmp_path / "bill.csv").write_text("\n".join((header, f"{tax}1", f"{tax}2", f"{tax}2")))

    bill = read_assessed(tmp_path / "bill.csv", jobs=None, prices=None)

    assert bill.paid_micro == 6_000_000
    assert found(bill)["duplicate"].rows == 1


def test_time_that_is_taken_back_is_a_refund(tmp_path):
    begin = seconds("2026-10-10T10:00:00Z")
    first, second = run("i-1", begin, begin + 7200)
    back = replace(first, usd=-first.usd, used_s=-3600)

    path = focus.written(tmp_path / "bill.csv", [first, second, back])
    bill = read_assessed(path, jobs=None, prices=None)

    assert bill.paid_micro == second.usd * 1_000_000 == bill.jobs[0].paid_micro
    assert found(bill)["refund"].micro == -first.usd * 1_000_000


def test_dollars_of_a_table_price_no_bill_in_euros(tmp_path):
    begin = seconds("2026-10-10T10:00:00Z")
    p3 = AWS_KINDS[2]
    spot = hours("i-1", p3, begin, begin + 7200, Decimal("0.3"), spot=True, tags=TAGS)
    charges = [replace(charge, listed=charge.usd) for charge in spot]
    in_euros = [replace(charge, currency="EUR") for charge in charges]

    dollars = read_assessed(focus.written(tmp_path / "a", charges), jobs=None, prices=None)
    euros = read_assessed(focus.written(tmp_path / "b", in_euros), jobs=None, prices=None)

    # The list price of a spot line is the spot price itself: it is not taken for on-demand's.
    assert dollars.jobs[0].list_price_micro == 24_480_000
    assert (euros.currency, euros.jobs[0].list_price_micro) == ("EUR", 0)
    assert found(euros)["unpriced"].rows == 1


def test_the_files_of_a_folder_are_one_bill(tmp_path):
    charges = list(Drawn(3, jobs=6, days=10).charges())
    whole = read_assessed(focus.written(tmp_path / "all.csv", charges), jobs=None, prices=None)
    (tmp_path / "parts" / "2026-10").mkdir(parents=True)
    focus.written(tmp_path / "parts" / "a.csv", charges[:40])
    focus.written(tmp_path / "parts" / "2026-10" / "b.csv", charges[40:])

    parts = read_assessed(tmp_path / "parts", jobs=None, prices=None)

    assert (parts.paid_micro, parts.jobs) == (whole.paid_micro, whole.jobs)


@pytest.mark.parametrize("whole_hours", [False, True])
@pytest.mark.parametrize(
    ("zone", "begin", "end"),
    [
        ("Europe/Berlin", "2026-10-24T20:10:00Z", "2026-10-25T09:40:00Z"),
        ("America/New_York", "2026-10-31T22:10:00Z", "2026-11-01T20:40:00Z"),
        ("Europe/Berlin", "2027-03-27T20:10:00Z", "2027-03-28T09:40:00Z"),
        ("America/Los_Angeles", "2027-03-13T20:10:00Z", "2027-03-14T20:40:00Z"),
    ],
)
def test_a_run_over_a_change_of_clocks_is_as_long_as_it_was(
    tmp_path, zone, begin, end, whole_hours
):
    charges = list(run("i-1", seconds(begin), seconds(end)))
    path = focus.written(tmp_path / "bill.csv", charges, local=zone, whole_hours=whole_hours)

    bill = read_assessed(path, jobs=None, prices=None)

    (job,) = bill.jobs
    assert job.work_s == seconds(end) - seconds(begin)
    assert job.restarts == 0
    assert bill.paid_micro == sum(charge.usd for charge in charges) * 1_000_000
    assert found(bill)["clock_change"].rows == 1
    assert found(bill)["naive_times"].rows == len(charges)
    assert "duplicate" not in found(bill)


def test_days_of_23_and_25_hours_need_nothing_where_times_are_in_utc(tmp_path):
    begin, end = seconds("2026-10-24T20:10:00Z"), seconds("2026-10-25T09:40:00Z")
    path = focus.written(tmp_path / "bill.csv", run("i-1", begin, end))

    bill = read_assessed(path, jobs=None, prices=None)

    assert bill.jobs[0].work_s == end - begin
    assert not {"clock_change", "naive_times"} & set(found(bill))


def test_a_machine_that_was_really_gone_for_an_hour_that_night_is_seen(tmp_path):
    """Another machine has a row in that hour: no clock was set forward."""
    begin = seconds("2027-03-27T20:10:00Z")
    gone, back = seconds("2027-03-28T02:00:00Z"), seconds("2027-03-28T03:00:00Z")
    end = seconds("2027-03-28T09:40:00Z")
    charges = chain(
        run("i-1", begin, gone),
        run("i-1", back, end),
        run("i-2", begin, end, tags=(("job", "other"),)),
    )

    bill = read_assessed(
        focus.written(tmp_path / "bill.csv", charges, local="UTC"), jobs=None, prices=None
    )

    assert "clock_change" not in found(bill)
    jobs = {job.job_id: job for job in bill.jobs}
    assert jobs["train"].work_s == end - begin - 3600
    assert jobs["train"].restarts == 1


SACCT = """JobID|JobName|User|Start|End|Elapsed|NNodes|AllocTRES|NodeList|State
17|half|ann|2026-10-10T10:00:00|2026-10-10T20:00:00|10:00:00|1|billing=48,cpu=48,gres/gpu=4,node=1|i-1|COMPLETED
17.batch|batch||2026-10-10T10:00:00|2026-10-10T20:00:00|10:00:00|1|cpu=48,gres/gpu=4,node=1|i-1|COMPLETED
18|quarter|bob|2026-10-10T10:00:00|2026-10-10T15:00:00|05:00:00|1|billing=24,cpu=24,gres/gpu=2,node=1|i-1|COMPLETED
19|absent|bob|2026-10-10T12:00:00|2026-10-10T15:00:00|03:00:00|1|gres/gpu=2|i-9|FAILED
21|before|bob|2026-10-01T12:00:00|2026-10-01T15:00:00|03:00:00|1|gres/gpu=2|i-9|COMPLETED
20|waiting|bob|Unknown|Unknown|00:00:00|1|||PENDING
"""


def test_a_shared_node_is_split_by_gpus_and_time_where_the_history_tells(tmp_path):
    begin, end = seconds("2026-10-10T09:50:00Z"), seconds("2026-10-10T20:10:00Z")
    path = focus.written(tmp_path / "bill.csv", run("i-1", begin, end, tags=()))
    (tmp_path / "sacct.txt").write_text(SACCT)

    bill = read_assessed(path, jobs=tmp_path / "sacct.txt", prices=None)

    jobs = {job.job_id: job for job in bill.jobs}
    # Four GPUs for ten hours beside two for five: four fifths and one fifth.
    assert jobs["17"].paid_micro == pytest.approx(bill.paid_micro * 0.8, abs=1)
    assert jobs["18"].paid_micro == pytest.approx(bill.paid_micro * 0.2, abs=1)
    assert jobs["17"].paid_micro + jobs["18"].paid_micro == bill.paid_micro
    assert (jobs["17"].work_s, jobs["18"].work_s) == (36_000, 18_000)
    assert jobs["17"].list_price_micro == pytest.approx(float(P4D.usd_per_hour) * 500_000, rel=1e-6)
    assert (jobs["17"].owner, jobs["17"].machine.gpus) == ("ann", 4)
    assert jobs["17"].rebuilt_by is Rebuilding.HISTORY
    assert found(bill)["shared_node"].micro == bill.paid_micro
    assert found(bill)["unmatched_history"].rows == 1


def test_a_cluster_s_node_without_a_history_is_named(tmp_path):
    begin, end = seconds("2026-10-10T09:50:00Z"), seconds("2026-10-10T20:10:00Z")
    tags = (("karpenter.sh/nodepool", "gpus"),)
    path = focus.written(tmp_path / "bill.csv", run("i-1", begin, end, tags=tags))

    bill = read_assessed(path, jobs=None, prices=None)

    assert found(bill)["shared_node"].rows == 1
    assert bill.apart_micro == bill.paid_micro


def test_a_history_without_nodes_is_matched_by_name_and_by_time(tmp_path):
    begin, end = seconds("2026-10-10T09:50:00Z"), seconds("2026-10-10T20:10:00Z")
    named = (("skypilot-cluster-name", "train-7-a1b2"),)
    charges = chain(
        run("i-1", begin, end, named), run("i-2", begin + 86_400, end + 86_400, tags=())
    )
    path = focus.written(tmp_path / "bill.csv", charges)
    jobs = [
        {"job_id": 7, "job_name": "train", "submitted_at": begin - 90, "start_at": begin + 200.5,
         "end_at": end - 60.25, "recovery_count": 2, "status": "SUCCEEDED", "user_name": "ann",
         "cluster_resources": "1x(gpus=A100:8, p4d.24xlarge)[spot]"},
        {"job_id": 8, "job_name": "later", "submitted_at": begin + 86_400, "start_at": begin + 86_500,
         "end_at": end + 86_400, "recovery_count": 0, "status": "SUCCEEDED", "user_name": "bob",
         "cluster_resources": "1x(gpus=A100:8)"},
        {"job_id": 9, "job_name": "queued", "submitted_at": begin, "start_at": None, "end_at": None,
         "status": "PENDING"},
    ]  # fmt: skip
    (tmp_path / "sky.json").write_text(json.dumps(jobs))

    bill = read_assessed(path, jobs=tmp_path / "sky.json", prices=None)

    assert [(job.job_id, job.owner, job.restarts) for job in bill.jobs] == [
        ("train-7", "ann", 2),
        ("later-8", "bob", 0),
    ]
    assert all(job.work_s == end - begin for job in bill.jobs)
    assert bill.apart_micro == 0
