"""The front page's numbers: plain recovery by hand, sums by hand, and a crowd that ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spotline.application.focus.rows import FocusTotals
from spotline.application.selector.options import SelectorOptions
from spotline.bench.fleet.instance import Crowd
from spotline.bench.headline.bills import REAL, REHEARSED, SIMULATED, ReadBill, label_of
from spotline.bench.headline.command import told
from spotline.bench.headline.counting import most_missed, numbers
from spotline.bench.headline.plain import plain_recovery
from spotline.bench.headline.run import JobSeen, run_crowd
from spotline.domain.market.market import Market
from tests.fakes.allocator import EAST, SLOT_S, START_NS, WEST, job, offering

USD = 1_000_000
# Four instances at a dollar an hour for a slot, rounded up as bills are.
FREE = SelectorOptions(egress_usd_per_gb=0.0, zone_egress_usd_per_gb=0.0)
SLOT_MICRO_USD = -(-4 * 1_000_000 * SLOT_S // 3600)


def market(*counts: tuple[int, int], prices: tuple[int, int] = (1_000_000, 2_000_000)) -> Market:
    """Two zones; so much spot in each slot, at these prices by the instance-hour."""
    spot = np.array(counts, dtype=np.int64)
    zeros = np.zeros_like(spot)
    return Market(
        offerings=(offering(EAST), offering(WEST)),
        slot_s=SLOT_S,
        start_ns=START_NS,
        spot_price_micro_usd=zeros + np.array(prices),
        on_demand_price_micro_usd=zeros + 9_000_000,
        spot_available=spot,
        spot_provenance=zeros,
        on_demand_available=zeros + 8,
        on_demand_provenance=zeros,
        quoted_ns=START_NS + np.arange(len(counts))[:, None] * SLOT_S * 10**9 + zeros,
        source="by hand",
    )


def gang(name: str, *, slots: int, of: int = 4, deadline: int = 9, from_slot: int = 0):
    """A gang of `of` that needs so many slots without an overhead, and a minute for a launch."""
    one = job(
        name,
        instance_hours=of * (slots * SLOT_S - 60) / 3600,
        counts=(of,),
        deadline_slots=deadline,
        start_ns=START_NS + from_slot * SLOT_S * 10**9,
    )
    return replace(one, checkpoint=replace(one.checkpoint, interval_s=60))


def test_the_cheapest_zone_with_the_whole_count_is_taken_and_paid_slot_by_slot():
    (life,) = plain_recovery(market(*[(4, 4)] * 10), [gang("a", slots=3)], FREE)

    assert (life.done_slot, life.losses) == (2, 0)
    assert life.cost_micro_usd == 3 * SLOT_MICRO_USD


def test_what_is_lost_is_launched_again_elsewhere_and_waits_where_there_is_none():
    there = market((4, 4), (3, 4), (0, 3), (0, 3), *[(4, 4)] * 6)

    (life,) = plain_recovery(there, [gang("a", slots=4)], FREE)

    # East, west, nothing for two slots, east again for what launches and moves had taken.
    assert (life.losses, life.done_slot) == (2, 6)
    assert life.is_on_time()


def test_who_came_first_keeps_what_there_is_and_the_other_waits():
    first, second = gang("a", slots=3), gang("b", slots=3, from_slot=1)

    early, late = plain_recovery(market(*[(4, 0)] * 10), [first, second], FREE)

    assert (early.done_slot, late.done_slot) == (2, 5)


def test_it_knows_no_deadline_and_ends_when_it_is_worth_nothing():
    hurried = gang("a", slots=3, deadline=5)

    (life,) = plain_recovery(market(*[(0, 0)] * 3, *[(4, 4)] * 7), [hurried], FREE)

    assert (life.is_done, life.is_on_time()) == (False, False)
    # It ran in the two slots that were left.
    assert life.cost_micro_usd == 2 * SLOT_MICRO_USD


def test_a_checkpoint_that_is_copied_is_paid_for_as_ours_is():
    there = market((4, 4), (0, 4), *[(0, 4)] * 8)
    moved = gang("a", slots=3)
    moved = replace(moved, checkpoint=replace(moved.checkpoint, size_gb=100.0))

    (free,), (paid,) = (plain_recovery(there, [moved], each) for each in (FREE, SelectorOptions()))

    # Another region: two cents a gigabyte.
    assert paid.cost_micro_usd - free.cost_micro_usd == 2 * USD


def seen(number: int, **changed) -> JobSeen:
    said = {
        "job_id": f"j{number}",
        "timeline": 0,
        "slot": 4 * number,
        "is_hard": True,
        "told_ppm": 1_000_000,
        "is_finished": True,
        "is_on_time": True,
        "cost_micro_usd": 30 * USD,
        "plain_is_finished": True,
        "plain_is_on_time": number < 20,
        "plain_cost_micro_usd": 20 * USD,
    }
    return JobSeen(**{**said, **changed})


def test_all_that_was_spent_is_divided_by_what_was_done_in_time():
    found = numbers([seen(number) for number in range(40)], {})["money"]

    assert (found["usd_per_job_on_time"], found["plain_usd_per_job_on_time"]) == (30.0, 40.0)
    low, mean, high = found["saved_usd_per_job_on_time"]
    assert low < mean < high
    assert mean == pytest.approx(10.0)
    assert found["saved_usd_per_finished_job"] == [-10.0, -10.0, -10.0]


def test_jobs_of_one_time_are_drawn_together_whatever_their_crowd():
    """A second crowd of the same fates on the same market makes no interval narrower."""
    once = [seen(number) for number in range(40)]
    again = [replace(job, job_id=f"{job.job_id}b") for job in once]

    alone, both = (numbers(jobs, {})["money"] for jobs in (once, [*once, *again]))

    assert both["saved_usd_per_job_on_time"] == pytest.approx(alone["saved_usd_per_job_on_time"])


def test_nothing_done_has_no_ratio():
    none = [seen(number, is_finished=False, is_on_time=False) for number in range(4)]

    found = numbers(none, {})["money"]

    assert found["usd_per_finished_job"] is None
    assert found["saved_usd_per_finished_job"] is None


def test_promises_count_what_was_told_and_refused():
    jobs = [
        *(seen(number) for number in range(10)),
        seen(10, is_on_time=False),
        seen(11, told_ppm=989_999),
        seen(12, told_ppm=0, is_on_time=False, is_hard=False),
        seen(13, told_ppm=None),
    ]

    found = numbers(jobs, {})["promises"]

    assert (found["promised"], found["kept"], found["kept_hard"]) == (11, 10, 10)
    assert (found["refused_at_submit"], found["refused_and_kept"], found["not_told"]) == (1, 1, 1)
    # `submit` takes a soft deadline whatever it is told.
    assert (found["without_promise"], found["without_promise_and_kept"]) == (1, 0)


@pytest.mark.parametrize(
    ("missed", "promised", "most"), [(0, 100, 0.0295), (1, 100, 0.0466), (5, 5, 1.0)]
)
def test_the_upper_bound_is_that_of_clopper_and_pearson(missed, promised, most):
    assert most_missed(missed, promised) == pytest.approx(most, abs=1e-4)
    assert most_missed(0, 0) is None


def test_the_lines_say_what_the_figures_are():
    totals = FocusTotals(rows=7, billed_micro_usd=5 * USD, unexplained=1, unexplained_micro_usd=USD)

    bill = ReadBill(label=REHEARSED, totals=totals)
    lines = told(numbers([seen(number) for number in range(9)], {"a log": bill}))

    assert "30.00 USD (9 of 9)" in lines[0]
    assert lines[-1] == (
        "1.00 USD of 5.00 USD on the bill of a log that no decision explains (rehearsed, 7 charges)"
    )


@pytest.mark.parametrize(
    ("stated", "label"),
    [
        ({}, SIMULATED),
        ({"cloud": "local"}, SIMULATED),
        ({"cloud": "aws", "endpoint_url": "http://127.0.0.1:9"}, REHEARSED),
        ({"cloud": "aws", "endpoint_url": ""}, REAL),
    ],
)
def test_a_bill_is_labelled_by_the_cloud_of_its_log(stated, label):
    assert label_of({"cloud_actuator": stated}) == label


@pytest.mark.slow
def test_a_crowd_runs_under_both_and_is_told_before_it_runs():
    found = run_crowd(Path("nowhere"), Crowd(market="generated", jobs=4, load=0.8, seed=5))

    assert len(found) == 4
    assert any(job.told_ppm is not None for job in found)
    assert all(job.cost_micro_usd > 0 for job in found if job.is_on_time)
