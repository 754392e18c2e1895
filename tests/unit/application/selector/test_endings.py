"""How jobs end: cancelled, failed with and without retries, finishing, stopped by their budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.selector.job_run import RunPhase
from spotline.application.selector.lifecycle import LONGEST_FINISH_S
from spotline.application.selector.state import SlotPhase
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import ProvisioningCommanded, SlotDecided
from spotline.domain.events.lifecycle import (
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobExited,
    JobOutcome,
    JobProgressReported,
    JobRetryScheduled,
    JobUpdated,
)
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Deadline, DeadlineKind, OnLimit
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S, PPM
from tests.fakes.selector import SLOT_S, SelectorWorld, job_of, market_of

WHOSE = {"job_id": "job-1", "tenant": "t"}


def cancelled(ts_event_ns: int) -> JobCancelled:
    return JobCancelled(**WHOSE, ts_event_ns=ts_event_ns)


def exited(ts_event_ns: int, exit_code: int, generation: int = 0) -> JobExited:
    return JobExited(
        **WHOSE, generation=generation, exit_code=exit_code, detail="", ts_event_ns=ts_event_ns
    )


def reported(done: float, generation: int = 0, checkpointed: float | None = None):
    return JobProgressReported(**WHOSE, done=done, generation=generation, checkpointed=checkpointed)


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def only(kind, events):
    (event,) = of(kind, events)
    return event


@pytest.fixture
def world():
    """A job that runs in its second slot."""
    made = SelectorWorld(job_of(retries=2))
    made.next_slot()
    made.next_slot()
    assert made.held["job-1"].spot + made.held["job-1"].on_demand > 0
    assert made.state.phase is SlotPhase.SETTLED
    return made


# --- cancelled --------------------------------------------------------------------------------


def test_a_cancellation_releases_a_running_job_in_this_slot(world):
    events = world.then(cancelled(world.at(600)))

    closed = only(JobClosed, events)
    advanced = only(JobAdvanced, events)
    decided = only(SlotDecided, events)
    assert closed.outcome is JobOutcome.CANCELLED
    assert (closed.slot, decided.offset_s) == (world.slot, 600)
    assert only(ProvisioningCommanded, events).target.spot == 0
    assert world.held["job-1"].on_demand == 0
    # A third of the slot was held, and no more is paid.
    assert advanced.slot_cost_micro_usd > 0
    assert closed.cost_micro_usd == advanced.cost_micro_usd
    whole = world_cost_of_a_whole_slot()
    assert advanced.slot_cost_micro_usd == pytest.approx(whole / 3, rel=0.01)
    assert world.state.phase is SlotPhase.SETTLED


def world_cost_of_a_whole_slot():
    other = SelectorWorld(job_of(retries=2))
    other.next_slot()
    other.next_slot()
    return only(JobAdvanced, other.open()).slot_cost_micro_usd


def test_a_cancellation_without_a_moment_waits_for_the_next_slot(world):
    assert world.then(cancelled(0)) == []

    assert only(JobClosed, world.next_slot()).outcome is JobOutcome.CANCELLED
    assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0


def test_a_cancellation_while_the_slot_is_decided_takes_effect_with_it():
    world = SelectorWorld(job_of())
    world.next_slot()
    world.open()

    assert world.feed(cancelled(world.at(1))) == []
    decided = world.decide()
    world.grant(decided)

    assert only(JobClosed, decided).outcome is JobOutcome.CANCELLED
    # What was held is released when the slot opened.
    assert only(JobClosed, decided).slot == world.slot - 1
    assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0


def test_a_cancellation_while_the_cloud_works_takes_effect_after_it():
    world = SelectorWorld(job_of())
    world.open()
    decided = world.decide()

    assert world.feed(cancelled(world.at(5))) == []
    events = world.grant(decided)

    assert only(JobClosed, events).outcome is JobOutcome.CANCELLED
    assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0
    assert world.state.phase is SlotPhase.SETTLED


def test_after_a_markets_end_a_cancellation_still_ends_and_releases():
    world = SelectorWorld(job_of(slots=200), market=market_of(slots=2))
    world.next_slot()
    world.next_slot()
    assert world.state.current.last

    events = world.then(cancelled(world.at(0)))

    closed = only(JobClosed, events)
    assert closed.outcome is JobOutcome.CANCELLED
    # The last slot was billed whole when it was settled.
    assert only(SlotDecided, events).offset_s == SLOT_S
    assert only(JobAdvanced, events).slot_cost_micro_usd > 0
    assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0


def test_after_a_markets_end_a_job_that_holds_nothing_needs_no_cloud():
    world = SelectorWorld(job_of(slots=200, budget_micro_usd=1), market=market_of(slots=2))
    world.next_slot()
    world.next_slot()
    assert not world.run_of().held_lots

    events = world.feed(cancelled(world.at(0)))

    assert only(JobClosed, events).outcome is JobOutcome.CANCELLED
    assert of(SlotDecided, events) == []


def test_other_jobs_go_on_as_if_nothing_had_happened():
    world = SelectorWorld(job_of(), job_of(2))
    alone = SelectorWorld(job_of(), job_of(2))
    for each in (world, alone):
        each.next_slot()
    world.then(cancelled(world.at(700)))

    before, after = alone.open(), world.open()

    def of_second(events):
        return [event for event in of(JobAdvanced, events) if event.job_id == "job-2"]

    assert of_second(before) == of_second(after)


# --- failed -----------------------------------------------------------------------------------


def test_a_failed_job_holds_nothing_until_its_retry_and_runs_again(world):
    events = world.then(exited(world.at(300), 1, generation=1))

    retry = only(JobRetryScheduled, events)
    assert (retry.retry, retry.not_before_ns) == (1, world.at(360))
    decision = only(AllocationDecided, events)
    assert (decision.lots, decision.reason) == ((), DecisionReason.RETRYING)
    assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0

    again = world.next_slot()

    assert only(AllocationDecided, again).lots
    assert world.run_of().phase is RunPhase.RUNNING


def test_the_wait_doubles_with_each_retry_up_to_an_hour():
    world = SelectorWorld(job_of(retries=9, slots=30))
    world.next_slot()
    waits = []
    for generation in range(1, 9):
        while not world.run_of().held_lots:
            world.next_slot()
        moment = world.at(10)
        retry = only(JobRetryScheduled, world.then(exited(moment, 1, generation)))
        waits.append((retry.not_before_ns - moment) // NS_PER_S)

    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_job_without_retries_left_fails_at_once():
    world = SelectorWorld(job_of())
    world.next_slot()

    events = world.then(exited(world.at(60), 137))

    closed = only(JobClosed, events)
    assert (closed.outcome, closed.value_micro_usd) == (JobOutcome.FAILED, 0)
    assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0
    assert not world.run_of().teaches


def test_the_end_of_a_program_that_is_over_already_says_nothing(world):
    world.then(exited(world.at(300), 1, generation=1))
    world.next_slot()

    assert world.then(exited(world.at(5), 1, generation=1)) == []
    assert world.run_of().retry == 1


def test_a_failure_while_the_cloud_works_releases_what_it_granted():
    world = SelectorWorld(job_of(retries=1))
    world.open()
    decided = world.decide()

    heard = world.feed(exited(world.at(3), 1))
    world.grant(decided)

    assert only(JobRetryScheduled, heard).retry == 1
    assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0
    assert world.state.phase is SlotPhase.SETTLED


# --- done, and finishing ----------------------------------------------------------------------


def test_a_program_that_ends_well_completes_its_job_before_its_work_is_reached(world):
    closed = only(JobClosed, world.then(exited(world.at(90), 0)))

    assert closed.outcome is JobOutcome.COMPLETED
    assert (closed.progress_ppm, closed.value_micro_usd) == (PPM, 10**9)


def finishing_world(**changes):
    world = SelectorWorld(job_of(awaits_exit=True, work_slots=1.0, **changes))
    while not world.run_of().is_finishing:
        world.next_slot()
    return world


def test_a_job_that_awaits_its_programs_end_keeps_what_it_holds_until_then():
    world = finishing_world()
    held = dict(world.held)

    decision = only(AllocationDecided, world.next_slot())

    assert decision.reason is DecisionReason.FINISHING
    assert world.held == held
    closed = only(JobClosed, world.then(exited(world.at(5), 0)))
    assert closed.outcome is JobOutcome.COMPLETED
    # Until then it is paid for.
    assert closed.cost_micro_usd > 0


def test_a_program_that_never_ends_is_waited_for_no_longer_than_an_hour():
    world = finishing_world()
    since = world.run_of().finishing_since
    events = []
    while world.run_of().phase is RunPhase.RUNNING:
        events = world.next_slot()

    assert only(JobClosed, events).outcome is JobOutcome.COMPLETED
    assert world.slot - since == LONGEST_FINISH_S // SLOT_S


def test_a_program_that_fails_after_its_work_is_started_again():
    world = finishing_world(retries=1)

    events = world.then(exited(world.at(5), 1))

    assert only(JobRetryScheduled, events).retry == 1


# --- stopped by the budget --------------------------------------------------------------------


@pytest.mark.parametrize("on_limit", [None, OnLimit.WAIT, OnLimit.STOP])
def test_a_used_up_budget_stops_a_job_where_its_owner_wants_that(on_limit):
    world = SelectorWorld(job_of(budget_micro_usd=1_000_000, on_limit=on_limit, work_slots=15.0))
    events = []
    for _ in range(6):
        events += world.next_slot()

    closed = of(JobClosed, events)
    if on_limit is OnLimit.STOP:
        assert closed[0].outcome is JobOutcome.STOPPED_BY_LIMIT
        assert 0 < closed[0].cost_micro_usd <= 1_000_000
        assert 0 < closed[0].progress_ppm < PPM
    else:
        assert closed == []
        assert world.held["job-1"].spot == world.held["job-1"].on_demand == 0


# --- changed by its owner ---------------------------------------------------------------------


def later(job, slots):
    at_ns = job.deadline.at_ns + slots * SLOT_S * NS_PER_S
    return replace(job, deadline=Deadline(kind=DeadlineKind.HARD, at_ns=at_ns, expires_ns=at_ns))


def test_another_deadline_counts_from_the_next_decision_on(world):
    before = world.run_of().compiled
    moved = later(world.run_of().job, 4)

    world.feed(JobUpdated(**WHOSE, job=moved, ts_event_ns=world.at(1)))

    run = world.run_of()
    assert run.compiled.deadline_slots == before.deadline_slots + 4
    assert run.first_slot_start_ns == world.at(0, 0)
    assert run.state.progress_quanta > 0
    assert all(not table.stale for table in run.tables.values())
    # It gives no feedback: what it was offered until now was offered to another job.
    assert run.mixed


def test_an_update_that_changes_nothing_is_learned_from(world):
    world.feed(JobUpdated(**WHOSE, job=world.run_of().job, ts_event_ns=world.at(1)))

    assert not world.run_of().mixed


def test_a_job_that_waits_for_money_goes_on_with_more_of_it():
    world = SelectorWorld(job_of(budget_micro_usd=1))
    world.next_slot()
    assert not world.run_of().held_lots
    richer = replace(world.run_of().job, budget_micro_usd=10**9)

    world.feed(JobUpdated(**WHOSE, job=richer, ts_event_ns=world.at(1)))
    world.next_slot()

    assert world.run_of().held_lots


def test_rates_that_are_believed_stay_with_an_update(world):
    faster = tuple(replace(throughput, alpha=1.5) for throughput in world.run_of().job.throughputs)
    stated = world.run_of().job
    world.run_of().job = replace(stated, throughputs=faster)

    world.feed(JobUpdated(**WHOSE, job=later(stated, 1), ts_event_ns=world.at(1)))

    assert world.run_of().job.throughputs == faster


# --- safe progress ----------------------------------------------------------------------------


def test_reports_of_a_generation_may_fall_and_older_ones_are_ignored(world):
    run = world.run_of()
    for report, done in (
        (reported(3.0, 1), 3.0),
        (reported(2.0, 2, 2.0), 2.0),
        (reported(5.0, 1), 2.0),
        (reported(5.0), 2.0),
        (reported(2.5, 2, 2.0), 2.5),
    ):
        world.feed(report)
        assert run.reported_quanta * 6.0 == pytest.approx(run.compiled.work_quanta * done)


def test_without_a_generation_the_greatest_report_counts(world):
    for done in (2.0, 1.0):
        world.feed(reported(done))

    run = world.run_of()
    assert run.reported_quanta * 6.0 == pytest.approx(run.compiled.work_quanta * 2.0)


def spot_world(notice_lead_s):
    """A job that holds spot, and has said what its newest checkpoint holds."""
    for seed in range(2, 40):
        world = SelectorWorld(job_of(), market=market_of(notice_lead_s=notice_lead_s, seed=seed))
        world.next_slot()
        world.next_slot()
        if world.held["job-1"].spot:
            world.feed(reported(3.0, 1, checkpointed=2.0))
            return world
    raise AssertionError("no market with spot")


@pytest.mark.parametrize(("notice_lead_s", "left"), [(0, 2.0), (120, 3.0)])
def test_a_loss_falls_back_to_the_checkpoint_where_no_notice_is_guaranteed(notice_lead_s, left):
    world = spot_world(notice_lead_s)

    world.lose(1, 600)

    run = world.run_of()
    assert run.reported_quanta * 6.0 == pytest.approx(run.compiled.work_quanta * left)
    world.open()
    assert run.state.progress_quanta == run.reported_quanta


# --- told after the slot was settled ----------------------------------------------------------


def test_what_the_cloud_tells_of_a_settled_slot_is_decided_again():
    world = spot_world(0)
    assert world.state.phase is SlotPhase.SETTLED
    revision = world.state.revision

    events = world.lose(1, 900)

    decided = of(SlotDecided, events)
    assert decided[0].revision == revision + 1
    assert decided[0].offset_s == 900
    assert world.state.phase is SlotPhase.SETTLED
    assert not any(isinstance(event, SlotOpened) for event in events)


def test_what_is_told_at_the_very_end_of_a_slot_is_for_the_next_one():
    world = spot_world(0)

    events = world.lose(1, SLOT_S)

    assert of(SlotDecided, events) == []
    assert world.state.phase is SlotPhase.SETTLED
    assert world.next_slot()
