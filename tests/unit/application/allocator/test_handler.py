"""The allocator's read model, and what it takes for a job to be recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.admission import Accepted, Refused, job_id_for
from spotline.application.allocation.tasks import program_of
from spotline.application.allocation.value_tables import table_spec
from spotline.application.allocator.handler import JobsHandler, JobsState, check_submission
from spotline.application.allocator.messages import JobState
from spotline.application.market_view import HISTORY_SLOTS
from spotline.application.spec import NOTHING, Context
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.law import ValueTableRequested
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.jobs.job import Throughput, Work
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.law import choose_space, law_id_of, learn_law
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.registry import policy_named
from spotline.domain.policies.replay import SlotRecord, replay_policy
from spotline.domain.units import NS_PER_S
from tests.depth import examples
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    SLOT_S,
    START_NS,
    WEST,
    forecast_issued,
    job,
    market_opened,
    slot_opened,
)


def folded(*events) -> JobsState:
    handler = JobsHandler()
    state = handler.initial()
    for event in events:
        handler.evolve(state, event)
    return state


def submitted(one) -> JobSubmitted:
    return JobSubmitted(job=one, ts_event_ns=START_NS)


def opened(*events) -> JobsState:
    return folded(market_opened(), slot_opened(0), *events)


CTX = Context(seq=1, now_ns=0, event_id="e", correlation_id="c")


def test_it_follows_no_event_of_a_job() -> None:
    handler = JobsHandler()

    assert handler.decide(opened(), submitted(job()), CTX) == NOTHING
    assert handler.due(opened()) == ()


def requested(one) -> ValueTableRequested:
    counts = [0, 4] * 12
    prices = [300_000] * len(counts)
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=4))
    named = NamedLaw(law_id=law_id_of(law), law=law)
    market = market_opened()
    offering = next(o for o in market.offerings if o.offering_id == EAST)
    program = program_of(
        one, EAST, offering.instance_type, market.slot_s, START_NS, offering.notice_lead_s
    )
    spec = table_spec(
        program,
        named,
        offering,
        first_slot_start_ns=START_NS,
        on_demand_price_micro_usd=3_000_000,
        on_demand_available=8,
        taken=0,
    )
    return ValueTableRequested(
        job_id=one.job_id, tenant=one.tenant, slot=0, table=spec, named=named
    )


def test_it_builds_the_value_table_that_is_asked_for() -> None:
    one = job()
    wanted = requested(one)

    (ready,) = JobsHandler().decide(opened(submitted(one)), wanted, CTX).events

    assert (ready.job_id, ready.table_id) == (one.job_id, wanted.table.table_id)
    assert ready.size_bytes > 0


def test_a_table_whose_name_is_anothers_is_not_built() -> None:
    one = job()
    wanted = requested(one)
    misnamed = replace(wanted, table=replace(wanted.table, table_id="0" * 64))

    assert JobsHandler().decide(opened(submitted(one)), misnamed, CTX) == NOTHING


def test_no_table_is_built_for_a_job_nobody_knows() -> None:
    assert JobsHandler().decide(opened(), requested(job()), CTX) == NOTHING


def test_a_job_goes_through_its_life() -> None:
    one = job()
    who = {"job_id": one.job_id, "tenant": one.tenant}
    lot = Lot(offering_id=EAST, spot=3)
    state = opened(submitted(one))
    pending = state.statuses[one.job_id]
    handler = JobsHandler()

    handler.evolve(
        state,
        JobAdmitted(
            **who, slot=1, policy_id="msu", offering_id=EAST, deadline_slot=30, weight_ppb=9
        ),
    )
    handler.evolve(
        state,
        AllocationDecided(
            **who,
            slot=2,
            revision=0,
            offset_s=0,
            policy_id="msu",
            lots=(lot,),
            reason=DecisionReason.SAFETY_NET,
            forecast_used=False,
            explanation="because",
        ),
    )
    handler.evolve(
        state,
        JobAdvanced(
            **who, slot=2, lots=(lot,), progress_ppm=1_000, slot_cost_micro_usd=5, cost_micro_usd=7
        ),
    )
    running = state.statuses[one.job_id]
    handler.evolve(
        state,
        JobClosed(
            **who,
            slot=8,
            outcome=JobOutcome.COMPLETED_LATE,
            policy_id="msu",
            cost_micro_usd=70,
            value_micro_usd=100,
            progress_ppm=1_000_000,
        ),
    )
    over = state.statuses[one.job_id]

    assert (pending.state, pending.submitted_ns) == (JobState.PENDING, START_NS)
    assert (running.state, running.policy_id, running.deadline_slot) == (
        JobState.RUNNING,
        "msu",
        30,
    )
    assert (running.lots, running.last_slot, running.last_explanation) == ((lot,), 2, "because")
    assert (running.progress_ppm, running.cost_micro_usd) == (1_000, 7)
    assert running.last_reason is DecisionReason.SAFETY_NET
    assert (over.state, over.lots, over.value_micro_usd) == (JobState.COMPLETED_LATE, (), 100)
    assert state.applied == 7


def test_the_first_submission_of_an_id_stays() -> None:
    state = opened(submitted(job()), submitted(job(value_usd=1)))

    assert state.statuses[job().job_id].job == job()


def test_the_greatest_report_counts_and_never_more_than_the_work() -> None:
    one = job()

    def report(done: float) -> JobProgressReported:
        return JobProgressReported(job_id=one.job_id, tenant=one.tenant, done=done)

    assert opened(submitted(one), report(4.0), report(2.0)).statuses[one.job_id].progress_ppm == (
        500_000
    )
    assert opened(submitted(one), report(99.0)).statuses[one.job_id].progress_ppm == 1_000_000


def test_events_of_unknown_jobs_change_nothing() -> None:
    state = opened(JobCancelled(job_id="nix", tenant="t"))

    assert state.statuses == {}
    assert state.cancelled == set()


def test_a_cancellation_is_remembered_until_the_selector_closes_the_job() -> None:
    one = job()

    state = opened(submitted(one), JobCancelled(job_id=one.job_id, tenant=one.tenant))

    assert state.cancelled == {one.job_id}
    assert state.statuses[one.job_id].state is JobState.PENDING


def test_the_past_is_bounded() -> None:
    state = folded(market_opened(), *(slot_opened(k) for k in range(HISTORY_SLOTS + 10)))

    market = state.market()
    assert market is not None
    assert len(market.history) == HISTORY_SLOTS
    assert market.history[-1].slot == HISTORY_SLOTS + 9


def test_the_market_shows_the_next_slot() -> None:
    before, after = folded(market_opened()).market(), opened().market()

    assert folded().market() is None
    assert before is not None
    assert after is not None
    assert (before.next_slot, before.next_slot_start_ns) == (0, START_NS)
    assert (after.next_slot, after.next_slot_start_ns) == (1, START_NS + SLOT_NS)
    assert after.first_slot(job(start_ns=START_NS + 3 * SLOT_NS - 1)) == (3, START_NS + 3 * SLOT_NS)


@pytest.mark.parametrize(("lag", "steps"), [(0, 6), (1, 5), (2, 4)])
def test_a_forecast_ages_with_the_slots(lag, steps) -> None:
    market = opened(forecast_issued(0), *(slot_opened(k + 1) for k in range(lag))).market()

    assert market is not None
    assert market.forecast is not None
    assert len(market.forecast.forecasts[0].steps) == steps


def test_a_stale_forecast_is_none() -> None:
    market = opened(forecast_issued(0), *(slot_opened(k) for k in (1, 2, 3))).market()

    assert market is not None
    assert market.forecast is None


# --- admission --------------------------------------------------------------------------------


def refusal(state: JobsState, one) -> Refused:
    answer = check_submission(state, one)
    assert isinstance(answer, Refused)
    return answer


def test_a_feasible_job_is_accepted_and_the_same_one_again() -> None:
    state = opened()
    one = job()

    first = check_submission(state, one)
    JobsHandler().evolve(state, submitted(one))
    again = check_submission(state, one)

    assert first == Accepted(job_id=one.job_id, already_submitted=False)
    assert again == Accepted(job_id=one.job_id, already_submitted=True)


def test_another_job_under_the_same_request_id_is_refused() -> None:
    answer = refusal(opened(submitted(job())), job(value_usd=1, deadline_slots=40))

    assert answer.field == "job.client_request_id"
    assert "differs in deadline, value_micro_usd" in answer.message
    assert answer.permanent


def test_the_same_request_id_of_another_tenant_is_another_job() -> None:
    assert job_id_for("a", "r1") != job_id_for("b", "r1")
    assert isinstance(check_submission(opened(submitted(job())), job(tenant="b")), Accepted)


def test_a_wrong_job_id_is_refused() -> None:
    answer = refusal(opened(), replace(job(), job_id="mine"))

    assert answer.field == "job.job_id"
    assert job().job_id in answer.message


def test_without_a_market_nothing_can_be_checked() -> None:
    with pytest.raises(ValueError, match="no market is open yet"):
        check_submission(folded(), job())


def test_after_the_last_slot_nothing_is_taken() -> None:
    answer = refusal(folded(market_opened(), slot_opened(0, last=True)), job())

    assert answer.permanent
    assert "no slot opens any more" in answer.message


def test_an_unknown_offering_is_answered_with_the_known_ones() -> None:
    answer = refusal(opened(), job(offerings=("p5.48xlarge",)))

    assert answer.field == "job.offerings[0]"
    for known in (EAST, WEST, "p4d.24xlarge", "p3.16xlarge", "'p5.48xlarge'"):
        assert known in answer.message


@pytest.mark.parametrize("name", [EAST, "p4d.24xlarge"])
def test_an_offering_is_known_by_its_id_and_by_its_instance_type(name) -> None:
    assert isinstance(check_submission(opened(), job(offerings=(name,))), Accepted)


def test_a_job_without_a_throughput_for_any_offering_is_refused() -> None:
    answer = refusal(opened(), job(throughput_on="p5.48xlarge"))

    assert answer.field == "job.throughputs"
    assert "was for p5.48xlarge" in answer.message


def test_absurd_jobs_are_refused_before_anything_is_compiled() -> None:
    far = refusal(opened(), job(deadline_slots=10**6))
    many = refusal(opened(), job(counts=tuple(range(1, 300))))
    slow = replace(
        job(),
        throughputs=(Throughput(offering="*", alpha=1e-9),),
        work=Work(amount=1e9, unit="steps"),
    )

    assert far.field == "job.deadline"
    assert many.field == "job.allowed_counts"
    assert refusal(opened(), slow).field == "job.throughputs"


def test_an_infeasible_deadline_names_the_earliest_feasible_one() -> None:
    answer = refusal(opened(), job(deadline_slots=3))

    # Two hours on four instances and a minute of launch, from slot 1 on: thirteen slots.
    assert answer.field == "job.deadline"
    assert answer.earliest_feasible_deadline_ns == START_NS + 14 * SLOT_NS
    assert "2026-03-01T02:20:00Z at the earliest" in answer.message


def test_a_later_start_moves_the_earliest_deadline() -> None:
    late = job(deadline_slots=15, start_ns=START_NS + 5 * SLOT_NS)

    assert refusal(opened(), late).earliest_feasible_deadline_ns == START_NS + 18 * SLOT_NS


def test_a_soft_deadline_is_infeasible_only_when_nothing_is_left_of_the_value() -> None:
    some_value = check_submission(opened(), job(deadline_slots=10, late_slots=5))
    none = check_submission(opened(), job(deadline_slots=10, late_slots=4))

    assert isinstance(some_value, Accepted)
    assert isinstance(none, Refused)


@settings(max_examples=examples(60), deadline=None)
@given(
    hours=st.floats(0.1, 40),
    slots=st.integers(1, 12),
    counts=st.sampled_from([(1,), (2, 4), (1, 2, 3)]),
    slot=st.integers(0, 5),
)
def test_the_earliest_deadline_is_feasible_and_one_slot_less_is_not(
    hours, slots, counts, slot
) -> None:
    state = folded(market_opened(), slot_opened(slot))
    asked = job(instance_hours=hours, deadline_slots=slots, counts=counts, from_slot=slot)
    answer = check_submission(state, asked)
    if isinstance(answer, Accepted):
        return
    earliest_ns = answer.earliest_feasible_deadline_ns

    granted = replace(
        asked, deadline=replace(asked.deadline, at_ns=earliest_ns, expires_ns=earliest_ns)
    )
    sooner_ns = earliest_ns - SLOT_NS
    sooner = replace(asked, deadline=replace(asked.deadline, at_ns=sooner_ns, expires_ns=sooner_ns))

    assert isinstance(check_submission(state, granted), Accepted)
    assert isinstance(check_submission(state, sooner), Refused)
    assert _finishes(state, granted)


def _finishes(state: JobsState, one) -> bool:
    """Whether on-demand alone, decided as live, is done in time."""
    from spotline.application.allocation.tasks import program_of

    market = state.market()
    assert market is not None
    _, first_ns = market.first_slot(one)
    program = program_of(one, EAST, "p4d.24xlarge", SLOT_S, first_ns, None)
    record = SlotRecord(
        spot_price=1_000,
        on_demand_price=9_000,
        spot_available=0,
        on_demand_available=99,
        forecast=None,
    )
    msu = policy_named("msu")
    return replay_policy(program, [record] * program.end_slots, msu, msu).on_time


def test_the_answer_is_in_whole_seconds_rounded_up() -> None:
    odd = replace(market_opened(), first_slot_start_ns=START_NS + 1)

    answer = refusal(folded(odd), job(deadline_slots=3))

    assert answer.earliest_feasible_deadline_ns % NS_PER_S == 0
    assert answer.earliest_feasible_deadline_ns > START_NS + 13 * SLOT_NS
