"""Each thing that keeps a holding from being chosen is named, with its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.allocation.tasks import task_view
from spotline.application.explaining.cuts import Bounds, cut_of
from spotline.application.explaining.facts import DecidedTurn, JobFacts, MarketFacts
from spotline.application.explaining.messages import AlternativeCut
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.program import Holding
from spotline.domain.market.offering import CapacityType, Count, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.registry import policy_named
from tests.fakes.selector import job_of

ZONE = "zone"
START_NS = 1_767_225_600_000_000_000
OTHER = "other-job"


def quote(spot: int, on_demand: int = 50) -> SlotQuote:
    return SlotQuote(
        quote=Quote(
            offering_id=ZONE,
            ts_event_ns=START_NS,
            spot_price_micro_usd=1_000_000,
            on_demand_price_micro_usd=3_000_000,
            spot_available=Count(instances=spot, provenance=Provenance.OBSERVED),
            on_demand_available=Count(instances=on_demand, provenance=Provenance.OBSERVED),
        ),
        age_s=0,
    )


def facts_of(job: Job, lots: tuple[Lot, ...] = ()) -> JobFacts:
    return JobFacts(
        job=job,
        policy_id="msu",
        offering_id=ZONE,
        first_slot=0,
        deadline_slot=19,
        held_lots=lots,
        done_ppm=0,
        saved_ppm=None,
        reported=False,
        generation=0,
        weights_ppb=(),
        tables=(),
        retry=0,
        not_before_ns=0,
    )


@dataclass(frozen=True, kw_only=True)
class Given:
    """A job on a zone of so much spot, so much of it asked for, taken earlier, or held by others."""

    job: Job | None = None
    quoted: int = 8
    asked: int | None = None
    earlier: int = 0
    held: int = 0
    elapsed: int = 0
    spent: int = 0
    reason: DecisionReason = DecisionReason.POLICY
    refusals: tuple[LaunchRefused, ...] = ()


def bounds(**changes: object) -> Bounds:
    given = Given(**changes)  # type: ignore[arg-type]
    asked, elapsed = given.asked, given.elapsed
    job = given.job or job_of(slots=20, work_slots=6.0)
    opened = SlotOpened(
        slot=elapsed, slot_s=1800, ts_event_ns=START_NS, quotes=(quote(given.quoted),)
    )
    offering = job.throughputs[0].offering if job.throughputs[0].offering != "*" else ZONE
    task = JobTask(
        job=job,
        policy_id="msu",
        offering_id=ZONE,
        instance_type=offering,
        first_slot_start_ns=job.start_ns,
        elapsed_slots=elapsed,
        progress_quanta=0,
        holding=Lot(offering_id=ZONE),
        interrupted=False,
        pending_overhead_s=0,
        spent_micro_usd=given.spent,
        memory=(),
        spot_firm=True,
    )
    request = AllocateRequest(
        slot=elapsed,
        revision=0,
        offset_s=0,
        slot_s=1800,
        quotes=(quote(given.quoted if asked is None else asked),),
        forecast=None,
        reason=given.reason,
        tasks=(task,),
    )
    taken = JobAnswer(
        job_id=OTHER,
        policy_id="msu",
        lots=(Lot(offering_id=ZONE, spot=given.earlier),) if given.earlier else (),
        memory=(),
        reason=DecisionReason.POLICY,
    )
    residual = ResidualCapacity(request.quotes)
    residual.take_what_is_left(taken.lots)
    other = replace(job, job_id=OTHER, name="the other")
    caps = {(ZONE, CapacityType.SPOT): asked or 0} if given.refusals else {}
    turn = DecidedTurn(
        market=MarketFacts(
            opened=opened,
            offset_s=0,
            revision=0,
            history=(opened,),
            caps=caps,
            forecast_reason=DecisionReason.POLICY,
            fault="",
            shares_ppm={},
        ),
        jobs={
            job.job_id: facts_of(job),
            OTHER: facts_of(other, (Lot(offering_id=ZONE, spot=given.held),) if given.held else ()),
        },
        request=request,
        digest="",
        answered=None,
        answers=(),
        decisions=(),
    )
    return Bounds(
        turn=turn,
        request=request,
        job_id=job.job_id,
        offering_id=ZONE,
        view=task_view(request, task, request.quotes[0].quote, residual),
        policy=policy_named("msu"),
        reason=given.reason,
        earlier=(taken,),
        refusals=given.refusals,
    )


def refused(refusal: RefusalClass | None, retry_after_s: int = 0) -> LaunchRefused:
    return LaunchRefused(
        command_id="c",
        job_id="j",
        tenant="t",
        offering_id=ZONE,
        capacity_type=CapacityType.SPOT,
        slot=0,
        requested=4,
        granted=1,
        detail="",
        refusal_class=refusal,
        retry_after_s=retry_after_s,
    )


def most(of: Bounds) -> int:
    return of.view.program.max_instances


def test_what_could_be_had_is_not_cut():
    of = bounds()

    assert cut_of(of, Holding(spot=most(of))) == (None, "")


def test_a_count_that_the_job_does_not_run_on_names_those_it_does():
    job = job_of()
    few = replace(job, allowed_counts=(2, 4))

    cut, detail = cut_of(bounds(job=few), Holding(spot=3))

    assert cut is AlternativeCut.TOPOLOGY
    assert detail == "the job runs on 2, 4, not on 3"


def test_too_few_instances_says_how_many_are_there():
    of = bounds(quoted=1)

    assert cut_of(of, Holding(spot=2)) == (
        AlternativeCut.AVAILABILITY,
        "2 spot are wanted, 1 are there",
    )


def test_what_an_earlier_job_took_is_yielded_to_it():
    of = bounds(quoted=4, earlier=3)

    assert cut_of(of, Holding(spot=2)) == (
        AlternativeCut.YIELDED,
        "1 of 4 spot are left: the other (3) chose first",
    )


def test_what_a_job_holds_that_is_not_decided_again_is_yielded_to_it():
    of = bounds(quoted=4, asked=1, held=3)

    assert cut_of(of, Holding(spot=2)) == (
        AlternativeCut.YIELDED,
        "1 of 4 spot are left: the other (3) holds the rest",
    )


@pytest.mark.parametrize(
    ("refusal", "cut"),
    [
        (refused(RefusalClass.QUOTA), AlternativeCut.QUOTA),
        (refused(RefusalClass.LIMIT), AlternativeCut.LIMIT),
        (refused(RefusalClass.NO_CAPACITY), AlternativeCut.AVAILABILITY),
        (refused(None), AlternativeCut.AVAILABILITY),
        (refused(RefusalClass.NO_CAPACITY, 600), AlternativeCut.COOL_DOWN),
        (refused(RefusalClass.THROTTLED, 30), AlternativeCut.COOL_DOWN),
    ],
)
def test_a_refusal_cuts_by_its_class(refusal, cut):
    of = bounds(quoted=8, asked=1, refusals=(refusal,))

    found, detail = cut_of(of, Holding(spot=2))

    assert found is cut
    assert detail.startswith("1 of 4 spot were granted in this slot")
    assert ("not asked for again for" in detail) == bool(refusal.retry_after_s)


def test_the_safety_net_says_what_on_demand_would_need():
    # On its largest count it needs all the slots that are left.
    of = bounds(elapsed=14)

    cut, detail = cut_of(of, Holding())

    assert cut is AlternativeCut.SAFETY_NET
    assert detail.startswith("on-demand would then need ")
    assert detail.endswith(" slots and has 5")


def test_where_the_safety_net_decided_other_safe_ways_are_dearer():
    of = bounds(reason=DecisionReason.SAFETY_NET)

    cut, detail = cut_of(of, Holding(on_demand=most(of)))

    assert cut is AlternativeCut.SAFETY_NET
    assert "dearer" in detail


def test_a_budget_says_what_is_left_of_it():
    job = replace(job_of(), budget_micro_usd=10_000_000)
    of = bounds(job=job, spent=9_000_000)

    cut, detail = cut_of(of, Holding(on_demand=most(of)))

    assert cut is AlternativeCut.LIMIT
    assert detail.endswith(", USD 1.00 of the budget is left")


def test_after_the_deadline_only_the_largest_count_on_demand_counts():
    of = bounds(elapsed=20)

    cut, detail = cut_of(of, Holding(spot=1))

    assert cut is AlternativeCut.RULE
    assert "after its deadline" in detail
