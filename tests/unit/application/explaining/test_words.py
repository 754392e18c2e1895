"""Each reason of a decision is explained in its own words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.explaining.facts import DecidedTurn, JobFacts, MarketFacts
from spotline.application.explaining.messages import AlternativeCut, ConsideredAlternative
from spotline.application.explaining.trail import LogMark, Trail, TrailEvent
from spotline.application.explaining.valuing import Alternatives
from spotline.application.explaining.words import summary_of
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import CapacityLost, LaunchRefused
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.lot import Lot
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, Move, Yielded
from spotline.domain.units import NS_PER_S
from tests.samples.events import JOB

SLOT = 12
START_NS = 1_767_225_600_000_000_000
HOME = (Lot(offering_id="zone-a", spot=2),)
OPENED = SlotOpened(slot=SLOT, slot_s=1800, ts_event_ns=START_NS, quotes=())
DECISION = AllocationDecided(
    job_id=JOB.job_id,
    tenant=JOB.tenant,
    slot=SLOT,
    revision=0,
    offset_s=0,
    policy_id="sdp",
    lots=HOME,
    reason=DecisionReason.POLICY,
    forecast_used=False,
    explanation="",
)
FACTS = JobFacts(
    job=JOB,
    policy_id="sdp",
    offering_id="zone-a",
    first_slot=4,
    deadline_slot=20,
    held_lots=HOME,
    done_ppm=500_000,
    saved_ppm=None,
    reported=False,
    generation=0,
    weights_ppb=(),
    tables=(),
    retry=1,
    not_before_ns=START_NS + 120 * NS_PER_S,
)
CHOSEN = ConsideredAlternative(
    lots=HOME,
    chosen=True,
    immediate_cost_micro_usd=1_000_000,
    cost_to_go_micro_usd=2_000_000,
    utility_micro_usd=40_000_000,
    on_time_probability_ppm=1_000_000,
    worse_by_micro_usd=0,
)
WORSE = replace(
    CHOSEN,
    lots=(),
    chosen=False,
    utility_micro_usd=38_500_000,
    worse_by_micro_usd=1_500_000,
)
FOUND = Alternatives(alternatives=(CHOSEN, WORSE), method="")


def turn(fault="", answered=None, reason=DecisionReason.POLICY) -> DecidedTurn:
    return DecidedTurn(
        market=MarketFacts(
            opened=OPENED,
            offset_s=0,
            revision=0,
            history=(OPENED,),
            caps={},
            forecast_reason=reason,
            fault=fault,
            shares_ppm={},
        ),
        jobs={JOB.job_id: FACTS},
        request=None,
        digest="",
        answered=answered,
        answers=(),
        decisions=(DECISION,),
    )


def said(reason, *events, found=FOUND, now=None, **changes) -> str:
    decision = replace(DECISION, reason=reason, **changes)
    trail = Trail(
        decision=decision,
        mark=LogMark(seq=50, event_id="decision"),
        cause_id="cause",
        events=[
            TrailEvent(
                event=event, kind=KINDS[type(event)], mark=LogMark(seq=10 + n, event_id=f"e{n}")
            )
            for n, event in enumerate(events)
        ],
    )
    return summary_of(trail, now or turn(), found)


def test_a_policy_s_choice_says_its_worth_and_the_next_best():
    text = said(DecisionReason.POLICY)

    assert text == (
        "In slot 12 it holds 2 spot on zone-a: sdp chose it, worth USD 40.00 from here on with "
        "P(on time) 100 %, USD 1.50 more than nothing."
    )


def test_a_choice_that_looks_worse_by_the_estimate_says_so():
    better = replace(WORSE, worse_by_micro_usd=-250_000)

    text = said(DecisionReason.POLICY, found=Alternatives(alternatives=(CHOSEN, better), method=""))

    assert "USD 0.25 less by this estimate than nothing" in text


def test_a_choice_without_another_says_that_nothing_else_could_be_had():
    cut = replace(WORSE, cut=AlternativeCut.AVAILABILITY, cut_detail="none there")

    text = said(DecisionReason.POLICY, found=Alternatives(alternatives=(CHOSEN, cut), method=""))

    assert text.endswith("P(on time) 100 %; nothing else could be had.")


def test_spot_left_to_another_job_is_told_with_what_it_is_worth_there():
    other = replace(FACTS, job=replace(JOB, job_id="other", name="nightly"))
    left = Yielded(offering_id="zone-a", spot=4, to_job_id="other", gain_micro_usd=3_100_000)
    now = replace(turn(), jobs={JOB.job_id: FACTS, "other": other})

    text = said(DecisionReason.POLICY, now=now, yielded=left)

    assert text.endswith("; it yielded 4 spot on zone-a to job nightly: worth USD 3.10 more there.")


@pytest.mark.parametrize("to_job_id", ["", "other"])
def test_a_job_of_another_tenant_is_not_named_where_spot_was_yielded_to_it(to_job_id):
    other = replace(FACTS, job=replace(JOB, job_id="other", tenant="stranger", name="secret"))
    left = Yielded(offering_id="zone-a", spot=4, to_job_id=to_job_id, gain_micro_usd=0)
    now = replace(turn(), jobs={JOB.job_id: FACTS, "other": other})

    text = said(DecisionReason.POLICY, now=now, yielded=left)

    assert text.endswith("4 spot on zone-a to a job of another tenant: worth no less there.")


def test_a_move_says_what_it_takes():
    move = Move(from_offering_id="zone-b", overhead_s=720, cost_micro_usd=280_000)

    text = said(DecisionReason.POLICY, move=move)

    assert "on zone-a and leaves zone-b, which takes 720 s and USD 0.28: " in text


def test_the_safety_net_says_what_was_asked_for_and_when_on_demand_has_to_begin():
    wish = (Lot(offering_id="zone-a", spot=1),)
    cut = replace(
        WORSE,
        lots=wish,
        cut=AlternativeCut.SAFETY_NET,
        cut_detail="on-demand would then need 9 slots and has 8",
    )
    found = Alternatives(alternatives=(CHOSEN, cut), method="", wish=wish, rescue_slots=9)

    text = said(DecisionReason.SAFETY_NET, found=found)

    assert text.endswith(
        "the safety net overruled sdp, which asked for 1 spot on zone-a: on-demand would then "
        "need 9 slots and has 8; slot 20 is the last before the deadline, so on-demand has to "
        "begin in slot 12."
    )


def test_an_overdue_forecast_says_how_long_it_was_waited_for():
    text = said(DecisionReason.FORECAST_OVERDUE, ForecastOverdue(slot=SLOT, waited_ms=10_000))

    assert ": no forecast of the slot came within 10 s, so sdp chose it, worth" in text


def test_an_untrusted_forecast_says_its_fault():
    now = turn(fault="zone-a: prices jump back and forth from step to step")

    text = said(DecisionReason.FORECAST_UNTRUSTED, now=now)

    assert "is not trusted (zone-a: prices jump back and forth from step to step), so sdp" in text


def test_an_allocator_that_did_not_answer_says_how():
    answered = AllocationAnswered(
        slot=SLOT,
        revision=0,
        request_digest="",
        outcome=CallOutcome.TIMED_OUT,
        answers=(),
        detail="no answer within 10 s",
    )

    text = said(DecisionReason.ALLOCATOR_UNAVAILABLE, now=turn(answered=answered))

    assert "did not answer (timed out: no answer within 10 s), so the selector decided by" in text


def test_a_refused_launch_says_what_was_granted():
    refused = LaunchRefused(
        command_id="c",
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        offering_id="zone-a",
        capacity_type=CapacityType.SPOT,
        slot=SLOT,
        requested=4,
        granted=1,
        detail="",
    )

    text = said(DecisionReason.LAUNCH_REFUSED, refused, revision=1, offset_s=60)

    assert text.startswith("60 s into slot 12 it holds 2 spot on zone-a: 1 of 4 spot on zone-a")
    assert "so the rest of the slot was decided again" in text


@pytest.mark.parametrize(
    ("job_id", "whose"), [(JOB.job_id, "2 of its instances"), ("x", "2 of other jobs' instances")]
)
def test_an_interruption_says_how_many_were_taken(job_id, whose):
    lost = CapacityLost(
        job_id=job_id,
        tenant="t",
        offering_id="zone-a",
        instance_ids=("i-1", "i-2"),
        slot=SLOT,
        offset_s=60,
    )

    text = said(DecisionReason.INTERRUPTED, lost, revision=1, offset_s=60)

    assert f"{whose} were taken back, so the rest of the slot was decided again" in text


def test_a_used_up_budget_says_how_much_of_it():
    text = said(DecisionReason.BUDGET, lots=())

    assert "In slot 12 it holds nothing: " in text
    assert "is spent, and what sdp chose costs more than is left" in text


def test_a_done_job_needs_nothing_more():
    assert said(DecisionReason.CLOSED, lots=()).endswith("done, so it needs nothing more.")


BOUGHT = (Lot(offering_id="zone-a", on_demand=2),)


@pytest.mark.parametrize(
    ("lots", "what"),
    [
        (BOUGHT, "from then on only on-demand counts, and is held as long as that pays"),
        ((), "from then on only on-demand counts, which no longer pays"),
        (HOME, "spot that no other job has use for does the rest for less than on-demand"),
    ],
)
def test_after_the_deadline_it_is_said_what_does_the_rest(lots, what):
    text = said(DecisionReason.AFTER_DEADLINE, slot=21, lots=lots)

    assert f"its deadline is 1 slot over; {what}" in text


def test_no_capacity_is_said():
    assert "not enough instances" in said(DecisionReason.NO_CAPACITY, lots=())


def test_who_let_on_demand_go_is_told_to_whom():
    held = Lot(offering_id="zone-a", on_demand=2)
    task = JobTask(
        job=JOB,
        policy_id="sdp",
        offering_id="zone-a",
        instance_type="p4d",
        first_slot_start_ns=START_NS,
        elapsed_slots=2,
        progress_quanta=0,
        holding=held,
        interrupted=False,
        pending_overhead_s=0,
        spent_micro_usd=0,
        memory=(),
        spot_firm=True,
    )
    request = AllocateRequest(
        slot=SLOT,
        revision=1,
        offset_s=0,
        slot_s=1800,
        quotes=(),
        forecast=None,
        reason=DecisionReason.LAUNCH_REFUSED,
        tasks=(task,),
    )
    now = replace(turn(), request=request)

    assert "went to a hard deadline" in said(DecisionReason.NO_CAPACITY, now=now, lots=())
    kept = said(DecisionReason.NO_CAPACITY, now=now, lots=(held,))
    assert "not enough instances" in kept


def test_a_failed_program_says_when_it_is_tried_again():
    text = said(DecisionReason.RETRYING, lots=())

    assert text.endswith(
        "its program failed and is not started again before 2026-01-01T00:02:00Z (retry 1)."
    )


def test_a_finishing_job_keeps_what_it_has():
    assert "until its program has ended" in said(DecisionReason.FINISHING)


def test_a_stop_of_buying_is_named_with_its_beginning_and_the_command_that_continues():
    stop = Freeze(
        freeze_id="crash-loop/j",
        scope=FreezeScope.JOB,
        key=JOB.job_id,
        reason=FreezeReason.CRASH_LOOP,
        detail="instances ended 3 times within 300 s of their start",
        continue_with="spotline resume --freeze crash-loop/j",
        ts_event_ns=START_NS,
    )
    stopped = replace(turn(), jobs={JOB.job_id: replace(FACTS, stopped=stop)})

    text = said(DecisionReason.POLICY, now=stopped)

    assert text.startswith(said(DecisionReason.POLICY))
    assert text.endswith(
        " Nothing is bought for it since 2026-01-01T00:00:00Z: instances ended 3 times within 300 s "
        "of their start; it goes on with `spotline resume --freeze crash-loop/j`."
    )
