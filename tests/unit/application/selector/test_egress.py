"""Copies of a checkpoint: none of unknown size to another region, and no more than the cap in all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from spotline.application.cloud_actuator.messages import ApplyRevisionRequest
from spotline.application.cloud_actuator.reporting import transfers
from spotline.application.selector.egress import copy_micro_usd, held_back, open_to
from spotline.application.selector.job_table import JobTable
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.build import event_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    LaunchRefused,
    ProvisioningCommanded,
    RefusalClass,
)
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.job import Checkpoint, Job, OnLimit
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.measured import stepped
from spotline.domain.ledger.billing import SlotPrices
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.limits.spending import Spending, SpendLimit
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import Move
from spotline.replay.jobs import generated_jobs
from tests.fakes.actuator import moment
from tests.fakes.allocator import EAST, START_NS, WEST, job, market_opened, offering, slot_opened
from tests.fakes.recorded_run import recorded_run
from tests.fakes.training import RUN, committed
from tests.unit.application.selector.test_moves import (
    LAW,
    UP,
    Driver,
    answer_of,
    report,
    table_use,
)

OPTIONS = SelectorOptions(rehearsals=0)
NEXT_DOOR = EAST.replace("az1", "az2")
UNKNOWN = "the size of its checkpoint is not known"
BUDGET = 1_500_000
NO_PRICES = SlotPrices(slot=0, slot_s=1800, prices=())


def settled(**changes: object) -> tuple[Driver, Job]:
    """A job that held spot in EAST during slot 0, which is over; it may go WEST or next door."""
    one = replace(job(start_ns=START_NS, offerings=()), **{"run": RUN, **changes})  # type: ignore[arg-type]
    driver = Driver()
    places = (EAST, NEXT_DOOR, WEST)
    driver.feed(market_opened(*places))
    driver.feed(JobSubmitted(job=one, ts_event_ns=0))
    driver.feed(slot_opened(0, offering_ids=places))
    asked = driver.feed(ForecastOverdue(slot=0, waited_ms=1))
    driver.answered(0, 0, asked, answer_of(one, Lot(offering_id=EAST, spot=4)))
    driver.feed(report(one, 0, Lot(offering_id=EAST, spot=4)))
    driver.feed(slot_opened(1, offering_ids=places))
    return driver, one


def why(driver: Driver, one: Job, place: str = WEST) -> str:
    return held_back(driver.state, driver.state.runs[one.job_id], place, OPTIONS)


# --- unknown sizes ----------------------------------------------------------------------------


def test_a_checkpoint_of_unknown_size_stays_in_its_region_until_it_is_measured() -> None:
    driver, one = settled()

    assert why(driver, one) == UNKNOWN
    assert why(driver, one, NEXT_DOOR) == ""
    assert set(open_to(driver.state, driver.state.runs[one.job_id], OPTIONS)) == {EAST, NEXT_DOOR}

    driver.feed(committed(one, 1, 1, 1.0, size_bytes=14 * 10**9))

    assert why(driver, one) == ""
    assert copy_micro_usd(
        driver.state, driver.state.runs[one.job_id].job, EAST, WEST, OPTIONS
    ) == pytest.approx(stepped(14_000) / 1000 * 20_000)


def test_a_job_that_has_never_run_has_nothing_to_copy() -> None:
    driver, one = settled()
    driver.state.runs[one.job_id].launched = False

    assert why(driver, one) == ""


def test_a_job_that_somebody_else_runs_moves_as_before() -> None:
    driver, one = settled(run=None)

    assert why(driver, one) == ""
    assert one.egress_cap_micro_usd is None


def test_a_decision_says_why_its_job_was_kept() -> None:
    driver, one = settled()
    run = driver.state.runs[one.job_id]
    spec = table_use(replace(one, run=None), WEST, UP).table
    run.tables[WEST] = JobTable(spec=spec, named=LAW, stale=True)
    asked = driver.feed(ForecastOverdue(slot=1, waited_ms=1))

    (decided,) = [
        event
        for event in driver.answered(
            1, 0, asked, answer_of(one, Lot(offering_id=EAST, spot=4))
        ).events
        if isinstance(event, AllocationDecided)
    ]

    assert decided.explanation.endswith(f", kept from moving: {UNKNOWN}")


# --- the cap ----------------------------------------------------------------------------------


def test_of_a_job_that_spotline_runs_copies_may_cost_a_tenth_of_the_value() -> None:
    one = replace(job(value_usd=200), run=RUN)

    assert one.egress_cap_micro_usd == 20_000_000
    assert replace(one, egress_budget_micro_usd=5).egress_cap_micro_usd == 5
    assert replace(one, egress_budget_micro_usd=5, run=None).egress_cap_micro_usd == 5


def test_a_move_that_would_exceed_the_cap_is_not_considered() -> None:
    # A copy to the west costs USD 0.28.
    driver, one = settled(
        checkpoint=Checkpoint(interval_s=600, save_s=60, size_gb=14.0),
        egress_budget_micro_usd=560_000,
    )
    run = driver.state.runs[one.job_id]

    assert why(driver, one) == ""
    run.move(WEST, run.compiled, Move(from_offering_id=EAST, overhead_s=1, cost_micro_usd=280_000))
    assert why(driver, one, EAST) == ""
    run.move(EAST, run.compiled, Move(from_offering_id=WEST, overhead_s=1, cost_micro_usd=280_000))

    assert why(driver, one) == "copying its checkpoint would exceed USD 0.56 in all"
    assert run.egress_micro_usd == 560_000


# --- limits on money --------------------------------------------------------------------------

# A copy to the west costs USD 0.28, half an hour of one spot instance there USD 0.50 or less.
COPIED = Checkpoint(interval_s=600, save_s=60, size_gb=14.0)
COPY = 280_000


def limited(spending: Spending) -> SelectorOptions:
    return replace(OPTIONS, spending=spending.to_json())


def why_under(driver: Driver, one: Job, spending: Spending) -> str:
    return held_back(driver.state, driver.state.runs[one.job_id], WEST, limited(spending))


def day(micro_usd: int) -> SpendLimit:
    return SpendLimit(micro_usd_per_day=micro_usd)


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (lambda most: Spending(micro_usd_per_job=most), "USD per job"),
        (lambda most: Spending(total=day(most)), "total USD per day"),
        (lambda most: Spending(on_demand=day(most)), "on-demand USD per day"),
        (lambda most: Spending(every_tenant=day(most)), "tenant USD per day"),
    ],
)
def test_no_move_is_considered_whose_copy_a_limit_would_refuse(
    limit: Callable[[int], Spending], says: str
) -> None:
    driver, one = settled(checkpoint=COPIED)
    spent = driver.state.runs[one.job_id].spent_micro_usd

    assert why_under(driver, one, limit(spent + 10**9)) == ""
    found = why_under(driver, one, limit(COPY - 1))
    assert found == f"copying its checkpoint would exceed {says}"


def test_what_is_left_to_a_job_must_pay_for_a_slot_where_it_goes_as_well() -> None:
    driver, one = settled(checkpoint=COPIED)
    run = driver.state.runs[one.job_id]

    assert why_under(driver, one, Spending(micro_usd_per_job=run.spent_micro_usd + COPY)) != ""


def test_an_owner_s_budget_counts_the_copy() -> None:
    driver, one = settled(checkpoint=COPIED, on_limit=OnLimit.STOP, budget_micro_usd=10**12)
    run = driver.state.runs[one.job_id]
    run.is_limited = True
    assert why(driver, one) == ""

    run.job = replace(run.job, budget_micro_usd=run.spent_micro_usd + COPY)

    assert why(driver, one) == "copying its checkpoint would exceed job budget"


def refused_in_the_west(driver: Driver, one: Job, scope: FreezeScope | None) -> None:
    """The job goes west in the open slot, and nothing is launched for it there."""
    run = driver.state.runs[one.job_id]
    run.move(WEST, run.compiled, Move(from_offering_id=EAST, overhead_s=1, cost_micro_usd=COPY))
    driver.feed(
        LaunchRefused(
            command_id="c",
            job_id=one.job_id,
            tenant=one.tenant,
            offering_id=WEST,
            capacity_type=CapacityType.SPOT,
            slot=1,
            requested=4,
            granted=0,
            detail="cap USD per job",
            refusal_class=RefusalClass.LIMIT if scope else RefusalClass.NO_CAPACITY,
            limit_scope=scope,
        )
    )


@pytest.mark.parametrize("scope", [FreezeScope.JOB, FreezeScope.TENANT, FreezeScope.SYSTEM])
def test_no_second_copy_is_paid_where_a_limit_refused_all_that_the_first_was_for(
    scope: FreezeScope,
) -> None:
    driver, one = settled(checkpoint=COPIED)

    refused_in_the_west(driver, one, scope)

    held = "a limit refused all where its checkpoint was copied last"
    assert why(driver, one, EAST) == held
    asked = driver.feed(ForecastOverdue(slot=1, waited_ms=1))
    driver.answered(1, 0, asked, answer_of(one, Lot(offering_id=WEST, spot=4)))
    driver.feed(report(one, 1, Lot(offering_id=WEST, spot=4)))
    assert why(driver, one, EAST) == ""


def test_a_cloud_that_refuses_keeps_nobody_from_going_on() -> None:
    driver, one = settled(checkpoint=COPIED)

    refused_in_the_west(driver, one, None)

    assert why(driver, one, EAST) == ""


# --- whole runs: what the ledger is charged ---------------------------------------------------


def zones() -> Market:
    market = generate(
        "cloud-gang", seed=1, slots=120, slot_s=1800, start_ns=1_767_571_200_000_000_000
    )
    return market


@lru_cache(maxsize=4)
def charged(budget_micro_usd: int) -> dict[str, int]:
    """What the ledger is charged for copies, by job, over a run in which jobs move a lot."""
    market = zones()
    jobs = [
        replace(
            one,
            egress_budget_micro_usd=budget_micro_usd,
            checkpoint=replace(one.checkpoint, size_gb=100.0),
        )
        for one in generated_jobs(market, 6, 1)
    ]
    sums = {one.job_id: 0 for one in jobs}
    for entry in recorded_run(market, jobs):
        event = event_of(entry)
        if not isinstance(event, ProvisioningCommanded):
            continue
        request = ApplyRevisionRequest(
            revision=event.revision, at=moment(event.slot), commands=(event,), prices=NO_PRICES
        )
        for charge in transfers(request):
            sums[charge.cost.job_id] += charge.cost.cost_micro_usd
    return sums


def test_the_ledger_is_never_charged_more_than_the_cap() -> None:
    free = charged(0)
    dearest = max(free.values())
    assert dearest > BUDGET

    capped = charged(BUDGET)

    assert 0 < max(capped.values()) <= BUDGET


def test_offerings_here_are_where_they_are_said_to_be() -> None:
    assert offering(EAST).region == offering(NEXT_DOOR).region != offering(WEST).region
