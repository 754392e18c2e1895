"""Four lines for every slack, on bills whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.application.assessment import assess as assessing
from spotline.application.assessment.assess import LADDER, assess, break_even
from spotline.application.assessment.assumptions import Assumptions
from spotline.application.assessment.availability import assumed_spot, chains_of, spot_paths
from spotline.application.assessment.living import planned_lives, tables_for
from spotline.application.assessment.prices import PriceFrom
from spotline.application.assessment.standing_in import assessable
from spotline.application.assessment.words import rests_on, verdict
from spotline.domain.units import PPM, cost_micro_usd
from tests.fakes.rebuilt_bills import (
    BEGIN_S,
    DAY_S,
    LIST_MICRO,
    P4D,
    price_history,
    rebuilt_bill,
    rebuilt_job,
)

FEW = Assumptions(futures=10, slacks_ppm=(1_000_000, 1_500_000))
ONE = replace(FEW, slacks_ppm=(1_500_000,))


def mixed_jobs():
    return [
        rebuilt_job("single", hours=4.37, egress_micro=1_234_567, failed_micro=7),
        rebuilt_job("gang", instances=4, hours=11, begin_s=BEGIN_S + 3 * DAY_S + 17),
        rebuilt_job("again", hours=4.37, begin_s=BEGIN_S + DAY_S),
    ]


@pytest.fixture(scope="module")
def mixed():
    return assess(rebuilt_bill(mixed_jobs()), FEW)


def test_all_on_demand_is_exact_to_the_micro_unit_with_what_is_carried(mixed):
    lists = sum(cost_micro_usd(LIST_MICRO, job.instances, job.work_s) for job in mixed_jobs())

    assert mixed.on_demand_micro == lists + 1_234_567 + 7
    assert mixed.paid_micro == sum(job.paid_micro for job in mixed_jobs())


def test_without_slack_spotline_is_on_demand_in_every_future(mixed):
    line = mixed.answers[0].spotline

    assert line.p10_micro == line.p50_micro == line.p90_micro == mixed.on_demand_micro
    assert mixed.answers[0].as_on_demand.ahead == "never"


def test_nothing_is_late_and_all_lives_are_counted(mixed):
    assert [answer.missed for answer in mixed.answers] == [0, 0]
    assert mixed.answers[0].lives > 3 * FEW.futures
    assert mixed.answers[0].late_ppm > mixed.answers[1].late_ppm > 0


def test_more_time_saves_and_the_verdict_says_of_how_much(mixed):
    tight, loose = mixed.answers

    assert loose.spotline.p50_micro < tight.spotline.p50_micro
    # What it costs to have tried in vain stays small.
    assert loose.spotline.p90_micro <= mixed.on_demand_micro * 1.05
    assert loose.saving.p50_micro == mixed.paid_micro - loose.spotline.p50_micro
    assert loose.saving.p10_micro == mixed.paid_micro - loose.spotline.p90_micro
    assert mixed.headline in (loose, None)
    first = verdict(mixed)
    assert first.startswith(
        "You would save nothing" if mixed.headline is None else "You would have"
    )


def test_jobs_that_waited_were_late_as_they_ran():
    job = rebuilt_job("waited")
    told = assess(rebuilt_bill([replace(job, end_s=job.begin_s + job.work_s * 13 // 10)]), FEW)

    assert [answer.ran_late_ppm for answer in told.answers] == [PPM, 0]


def test_equal_bills_and_seeds_give_equal_answers(mixed):
    assert assess(rebuilt_bill(mixed_jobs()), FEW).answers == mixed.answers
    assert assess(rebuilt_bill(mixed_jobs()), replace(FEW, seed=1)).answers != mixed.answers


def test_spot_that_is_never_there_saves_nothing(monkeypatch):
    def none(matrices, cells, seed, groups=1):
        return np.zeros((len(matrices), cells), dtype=np.bool_)

    monkeypatch.setattr(assessing, "spot_paths", none)
    told = assess(rebuilt_bill(mixed_jobs()), ONE)

    assert verdict(told).startswith("You would save nothing")
    # It waited for spot, and paid for a start or two more than on-demand alone.
    dearer = told.answers[0].spotline.p50_micro / told.on_demand_micro
    assert 1.0 <= dearer < 1.05
    assert told.answers[0].late_ppm == PPM


def test_spot_that_costs_more_than_on_demand_saves_nothing():
    dear = price_history(LIST_MICRO * 5 // 4)
    told = assess(rebuilt_bill([rebuilt_job()], prices=(dear,)), ONE)

    assert verdict(told).startswith("You would save nothing")
    assert told.answers[0].spotline.p90_micro == told.on_demand_micro == told.paid_micro
    assert told.answers[0].spot_plain.p50_micro > told.paid_micro
    assert told.answers[0].as_paid.ahead == "never"


def test_what_ran_on_commitments_is_carried_and_saves_nothing():
    paid = LIST_MICRO // 2
    job = rebuilt_job(paid_micro=paid, committed_ppm=PPM, committed_micro=paid)
    told = assess(rebuilt_bill([job], unused_micro=5_000_000), FEW)

    assert "commitments, which are paid for in any case" in verdict(told)
    assert told.on_demand_micro == told.paid_micro == paid
    for answer in told.answers:
        spreads = (answer.spotline, answer.spot_plain)
        assert {s.p10_micro for s in spreads} | {s.p90_micro for s in spreads} == {paid}


def test_of_a_job_half_on_commitments_only_the_other_half_is_bought_otherwise():
    whole = cost_micro_usd(LIST_MICRO, 1, 14_400)
    job = rebuilt_job(paid_micro=whole, committed_ppm=PPM // 2, committed_micro=whole // 4)
    told = assess(rebuilt_bill([job]), ONE)

    assert told.on_demand_micro == whole // 2 + whole // 4
    assert told.answers[0].spotline.p10_micro >= whole // 4


def test_jobs_without_work_or_list_price_are_in_no_line_and_said():
    jobs = [
        rebuilt_job("fine"),
        rebuilt_job("idle", work_s=0, paid_micro=5),
        rebuilt_job(
            "dark", machine=replace(P4D, instance_type="odd"), list_price_micro=0, paid_micro=7
        ),
        rebuilt_job("borrows", list_price_micro=0, paid_micro=9),
    ]
    told = assess(rebuilt_bill(jobs), ONE)

    assert [(left.jobs, left.micro) for left in told.left_out] == [(1, 5), (1, 7)]
    assert [line.assessed.list_price_micro for line in told.jobs] == [LIST_MICRO, LIST_MICRO]
    assert told.paid_micro == jobs[0].paid_micro + 9


def test_a_bill_without_jobs_says_so():
    told = assess(rebuilt_bill([], apart_micro=3), FEW)

    assert verdict(told) == "Nothing can be said: no job on this bill could be assessed."
    assert told.paid_micro == told.on_demand_micro == 0


def test_many_jobs_are_stood_in_for_and_cost_much_the_same():
    rng = np.random.default_rng(11)
    jobs = [
        rebuilt_job(
            f"job-{index}",
            hours=float(rng.choice([2.0, 2.1, 6.0])),
            begin_s=BEGIN_S + int(rng.integers(6 * DAY_S)),
        )
        for index in range(40)
    ]
    all_lived = assess(rebuilt_bill(jobs), ONE)
    some = assess(rebuilt_bill(jobs), replace(ONE, most_lived=15))

    assert all_lived.lived == 40
    assert some.lived <= 18
    assert sum(line.own_life for line in some.jobs) == some.lived
    assert some.on_demand_micro == all_lived.on_demand_micro
    middle = all_lived.answers[0].spotline.p50_micro
    assert some.answers[0].spotline.p50_micro == pytest.approx(middle, rel=0.05)
    assert "stand for others" in dict(rests_on(some))["futures"]


def test_prices_come_from_the_history_then_the_bill_then_a_named_share():
    history = price_history(10_000_000, 12_000_000)
    other = replace(P4D, instance_type="g5.48xlarge", zone="us-east-1b")
    # An hour of its four on spot, at a quarter of the list price.
    spot = {
        "spot_share_ppm": PPM // 4,
        "spot_micro": LIST_MICRO // 4,
        "spot_listed_micro": LIST_MICRO,
    }
    on_spot = rebuilt_job("spot", machine=other, hours=4, **spot)
    jobs = [
        rebuilt_job("dated"),
        on_spot,
        rebuilt_job("assumed", machine=replace(P4D, instance_type="p3.2xlarge")),
    ]
    told = assess(rebuilt_bill(jobs, prices=(history,)), ONE)

    assert {use.source: (use.jobs, use.held) for use in told.prices} == {
        PriceFrom.HISTORY: (1, 0),
        PriceFrom.BILL: (1, 0),
        PriceFrom.ASSUMED: (1, 0),
    }
    of_job = {line.assessed.job.job_id: line.assessed.prices for line in told.jobs}
    assert of_job["spot"].ratio_ppm[0] == PPM // 4
    assert of_job["assumed"].ratio_ppm[0] == ONE.spot_share_ppm
    dated = of_job["dated"].ratio_ppm
    assert (dated[0], dated[-1]) == (
        10_000_000 * PPM // LIST_MICRO,
        12_000_000 * PPM // LIST_MICRO,
    )


def test_a_history_in_another_currency_than_the_bill_is_not_used_and_said():
    bill = replace(
        rebuilt_bill([rebuilt_job()], prices=(price_history(1_000_000),)), currency="EUR"
    )
    told = assess(bill, ONE)

    assert [use.source for use in told.prices] == [PriceFrom.ASSUMED]
    assert dict(rests_on(told))["price history"] == "not used: it is in USD, the bill in EUR"


@pytest.mark.parametrize(
    ("provider", "instance_type", "instances", "kind"),
    [
        ("aws", "p4d.24xlarge", 1, "cloud single"),
        ("aws", "p4d.24xlarge", 3, "cloud gang"),
        ("aws", "p5.48xlarge", 1, "H100 counts"),
        ("gcp", "a3-highgpu-8g", 2, "H100 counts"),
        ("azure", "Standard_ND96isr_H100_v5", 1, "H100 counts"),
        ("lambda", "gpu_8x_h100", 1, "neocloud"),
    ],
)
def test_the_kind_of_prior_is_that_of_the_machine(provider, instance_type, instances, kind):
    machine = replace(P4D, provider=provider, instance_type=instance_type)
    found = assumed_spot(machine, instances)

    assert (found.kind, found.gang) == (kind, instances)
    assert len(chains_of(found).names) >= 4


def test_of_several_zones_the_one_that_is_cheapest_at_the_begin_is_taken():
    near = price_history(12_000_000, 1_000_000)
    far = price_history(11_000_000, machine=replace(P4D, zone="us-east-1c"))
    elsewhere = price_history(1, machine=replace(P4D, zone="us-west-2a", region="us-west-2"))
    told = assess(rebuilt_bill([rebuilt_job()], prices=(near, far, elsewhere)), ONE)

    assert told.jobs[0].assessed.prices.zone == "us-east-1c"


def test_at_break_even_jobs_cost_what_was_paid():
    paid = cost_micro_usd(LIST_MICRO, 1, 14_400) * 7 // 10
    jobs = [
        rebuilt_job(f"job-{n}", paid_micro=paid, begin_s=BEGIN_S + n * DAY_S // 4)
        for n in range(24)
    ]
    bill = rebuilt_bill(jobs)
    told = assess(bill, ONE)
    found = told.answers[0].as_paid

    assert found.ahead == "from"
    assert 0 < found.share_ppm < PPM
    costs = []
    for seed in range(4):
        calendar = assessing.calendar_of(bill, ONE)
        known = assessable(bill, calendar, ONE)
        chains = chains_of(known.lived[0].assumed).scaled(found.share_ppm / PPM)
        paths = spot_paths(np.repeat(chains, 6, axis=0), calendar.cells, f"other-{seed}")
        for index, table in tables_for(known.lived, 1_500_000, ONE):
            job = known.lived[index]
            lives = planned_lives(job, table, paths, calendar)
            costs.append(lives.ratio.mean() * job.on_demand_micro)
    assert np.mean(costs) == pytest.approx(paid, rel=0.05)


@pytest.mark.parametrize(
    ("curve", "line", "ahead", "share"),
    [
        ([10.0] * 11, 10, "never", None),
        ([9.0] * 11, 10, "always", None),
        ([10.0, *[9.0] * 10], 10, "always", None),
        ([12.0] * 10 + [8.0], 10, "from", 950_000),
        ([12.0, 8.0, *[7.0] * 9], 10, "from", 25_000),
        ([12.0] * 11, 10, "never", None),
        # Rare spot costs more than none: what counts is from where on it is cheaper.
        ([10.0, 11.0, 9.0, *[8.0] * 8], 10, "from", 75_000),
    ],
)
def test_break_even_is_where_the_curve_comes_down_to_a_line(curve, line, ahead, share):
    found = break_even(np.array(curve), line)

    assert found.ahead == ahead
    if share is not None:
        assert found.share_ppm == pytest.approx(share)
    assert len(curve) == len(LADDER) + 2
