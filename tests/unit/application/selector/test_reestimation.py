"""The selector and the job board go on with the rates that are believed now."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from spotline.application.admission import Accepted, Refused
from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.allocator.handler import JobsHandler, JobsState, check_submission
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.spec import Call, Context, Outcome, Spec, Timer
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.law import ValueTableReady, ValueTableRequested
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.market.market import Market
from spotline.domain.policies.interface import START
from spotline.replay.host import LocalHost
from spotline.replay.parts import answer_in_process
from tests.fakes.allocator import job as plain_job
from tests.fakes.allocator import market_opened, slot_opened
from tests.fakes.measured_platform import (
    Course,
    believed_job,
    deciders,
    known_forecasts,
    open_slot,
    opened_host,
    run_measured,
    small_market,
)
from tests.fakes.recorded_run import START_NS

FIRST = 24


def reestimated(job: Job, factor: float, *offerings: str) -> ThroughputReestimated:
    """All of a job's rates (or those of `offerings`) times `factor`."""
    return ThroughputReestimated(
        job_id=job.job_id,
        tenant=job.tenant,
        throughputs=tuple(
            replace(one, alpha=one.alpha * factor)
            if not offerings or one.offering in offerings
            else one
            for one in job.throughputs
        ),
        reports=3,
        factor_ppm=round(factor * 1e6),
        half_width_ppm=1,
    )


class Heard:
    """Notes what is said of tables, admissions and weights."""

    spec = Spec(
        service="heard",
        consumes=(ValueTableRequested, ValueTableReady, JobAdmitted, PolicyWeightsUpdated),
        produces=(),
    )

    def __init__(self) -> None:
        self.events: list[Event] = []

    def initial(self) -> None:
        return None

    def evolve(self, state: None, event: Event) -> None:
        self.events.append(event)

    def decide(self, state: None, event: Event, ctx: Context) -> Outcome:
        return Outcome()

    def due(self, state: None) -> tuple[Timer, ...]:
        return ()


@dataclass
class Rig:
    """The deciding handlers on a market, with every request to the allocator noted."""

    job: Job
    market: Market = field(default_factory=small_market)
    asked: list[AllocateRequest] = field(default_factory=list)
    heard: Heard = field(default_factory=Heard)
    next_slot: int = 0

    def __post_init__(self) -> None:
        parts = [known_forecasts(self.market), *deciders(monitored=False), self.heard]
        self.host: LocalHost = opened_host(self.market, [self.job], parts, answer=self._answer)

    def _answer(self, call: Call) -> tuple[Event, ...]:
        assert isinstance(call.request, AllocateRequest)
        self.asked.append(call.request)
        return tuple(answer_in_process(call))

    def play(self, until: int) -> None:
        """Open every slot before `until`."""
        for slot in range(self.next_slot, until):
            open_slot(self.host, self.market, slot)
        self.next_slot = until

    def say(self, event: Event) -> list[Event]:
        """Publish an event; what was heard since."""
        before = len(self.heard.events)
        self.host.publish(event, source="configurator")
        return self.heard.events[before:]

    @property
    def run(self) -> JobRun:
        run = self.host.state_of("selector").runs[self.job.job_id]
        assert isinstance(run, JobRun)
        return run

    @property
    def task(self) -> JobTask:
        """What was last asked of the allocator."""
        return self.asked[-1].tasks[0]


def rig(**changes: object) -> Rig:
    market = small_market()
    return Rig(job=replace(believed_job(market), **changes), market=market)  # type: ignore[arg-type]


# --- the selector -----------------------------------------------------------------------------


def test_a_running_job_goes_on_at_the_new_rates() -> None:
    one = rig()
    one.play(FIRST + 3)
    before, progress = one.run.compiled, one.run.state

    one.say(reestimated(one.job, 0.5))
    after = one.run.compiled
    one.play(FIRST + 4)

    assert [2 * rate for rate in after.rate_quanta_per_s] == list(before.rate_quanta_per_s)
    assert replace(after, rate_quanta_per_s=before.rate_quanta_per_s) == before
    assert one.run.state.progress_quanta > progress.progress_quanta
    assert one.task.job.throughputs == reestimated(one.job, 0.5).throughputs


def test_slower_than_believed_leaves_less_slack_at_once() -> None:
    one = rig()
    one.play(FIRST + 3)
    slack = one.run.slack_slots(FIRST + 2)

    one.say(reestimated(one.job, 0.5))

    assert one.run.slack_slots(FIRST + 2) < slack - 8


def test_tables_of_old_rates_are_asked_for_anew_and_named_from_the_next_slot_on() -> None:
    one = rig()
    one.play(FIRST + 3)
    old = {key: table.spec for key, table in one.run.tables.items()}
    assert one.task.table_use is not None

    heard = one.say(reestimated(one.job, 0.5))
    requested = [event.table for event in heard if isinstance(event, ValueTableRequested)]
    ready = [event.table_id for event in heard if isinstance(event, ValueTableReady)]
    named_now = [one.run.table_in(FIRST + 2, key) for key in one.run.tables]
    one.play(FIRST + 4)

    # As many as before, each the same table at other rates, and the job board agrees.
    assert [spec.offering_id for spec in requested] == list(old)
    assert ready == [spec.table_id for spec in requested]
    for spec in requested:
        assert spec.table_id != old[spec.offering_id].table_id
        assert replace(spec, table_id="") == replace(old[spec.offering_id], table_id="")
    assert named_now == [None] * len(old)
    assert one.task.table_use is not None
    assert one.task.table_use.table.table_id in ready


def test_tables_whose_rates_stay_are_kept() -> None:
    # Another type that the market does not have: nothing that runs here changes.
    market = small_market()
    job = believed_job(market)
    job = replace(job, throughputs=(*job.throughputs, Throughput(offering="h100", alpha=1.0)))
    one = Rig(job=job, market=market)
    one.play(FIRST + 3)
    before, program = dict(one.run.tables), one.run.compiled

    heard = one.say(reestimated(job, 0.5, "h100"))

    assert heard == []
    assert (one.run.tables, one.run.compiled) == (before, program)
    assert not any(table.stale for table in one.run.tables.values())


def test_plans_made_at_the_old_rates_are_forgotten() -> None:
    one = rig()
    one.play(FIRST + 3)
    one.run.memory = (3, 1, 4)

    one.say(reestimated(one.job, 0.5))

    assert one.run.memory == START


def test_a_job_that_waits_is_admitted_at_the_new_rates() -> None:
    one = rig()
    one.play(FIRST - 2)
    assert one.run.phase is RunPhase.PENDING

    heard = one.say(reestimated(one.job, 0.5))
    one.play(FIRST + 2)

    assert heard == []
    assert one.run.compiled.rate_quanta_per_s[1] > 0
    assert one.task.job.throughputs == reestimated(one.job, 0.5).throughputs


def test_feedback_replays_the_pool_at_the_rates_believed_last() -> None:
    one = rig()
    one.play(FIRST + 3)
    one.say(reestimated(one.job, 0.5))

    one.play(one.market.slots)

    (realised,) = [
        event
        for event in one.heard.events
        if isinstance(event, PolicyWeightsUpdated) and event.rehearsed_slot < 0
    ]
    assert realised.job_id == one.job.job_id
    assert one.run.fed_back


@pytest.mark.parametrize(
    "throughputs",
    [
        pytest.param((), id="none"),
        pytest.param((Throughput(offering="h100", alpha=1.0),), id="of other offerings"),
        pytest.param((Throughput(offering="a100-1x", alpha=-1.0),), id="negative"),
    ],
)
def test_rates_that_the_job_cannot_have_change_nothing(throughputs: tuple[Throughput, ...]) -> None:
    one = rig()
    one.play(FIRST + 3)
    program = one.run.compiled
    assert [t.offering for t in one.job.throughputs] == ["a100-1x"]

    heard = one.say(replace(reestimated(one.job, 1.0), throughputs=throughputs))

    assert heard == []
    assert (one.run.job, one.run.compiled) == (one.job, program)


def test_jobs_that_are_over_or_unknown_are_passed_over() -> None:
    one = rig(work=replace(believed_job(small_market()).work, amount=36_000_000.0))
    one.play(FIRST + 20)
    assert one.run.phase is RunPhase.CLOSED
    program = one.run.compiled

    heard = one.say(reestimated(one.job, 0.5))
    heard += one.say(replace(reestimated(one.job, 0.5), job_id="stranger"))

    assert heard == []
    assert one.run.compiled == program


# --- the job board ----------------------------------------------------------------------------


def board(*events: Event) -> JobsState:
    handler = JobsHandler()
    state = handler.initial()
    for event in (market_opened(), slot_opened(0), *events):
        handler.evolve(state, event)
    return state


def submitted(job: Job) -> JobSubmitted:
    return JobSubmitted(job=job, ts_event_ns=START_NS)


def test_the_board_shows_what_is_believed_and_knows_the_job_by_what_was_submitted() -> None:
    job = plain_job()
    state = board(submitted(job), reestimated(job, 0.5), reestimated(job, 0.6))

    assert state.statuses[job.job_id].job.throughputs[0].alpha == 0.6
    assert state.submitted(job.job_id) == job
    assert check_submission(state, job) == Accepted(job_id=job.job_id, already_submitted=True)
    other = check_submission(state, state.statuses[job.job_id].job)
    assert isinstance(other, Refused)
    assert "differs in throughputs" in other.message


def test_a_job_that_is_over_keeps_the_rates_it_ran_at() -> None:
    job = plain_job()
    closed = JobClosed(
        job_id=job.job_id,
        tenant=job.tenant,
        slot=3,
        outcome=JobOutcome.COMPLETED,
        policy_id="msu",
        cost_micro_usd=1,
        value_micro_usd=2,
        progress_ppm=1_000_000,
    )

    state = board(submitted(job), closed, reestimated(job, 0.5))

    assert state.statuses[job.job_id].job == job
    assert state.submitted("nobody") is None


def test_a_table_of_old_rates_is_not_built_for_the_new_ones() -> None:
    one = rig()
    one.play(FIRST + 1)
    requests = [event for event in one.heard.events if isinstance(event, ValueTableRequested)]
    assert requests
    ctx = Context(seq=1, now_ns=0, event_id="e", correlation_id="c")
    handler, state = JobsHandler(), one.host.state_of("allocator")

    # The request was under way when the new rates came.
    handler.evolve(state, reestimated(one.job, 0.5))

    assert all(handler.decide(state, event, ctx) == Outcome() for event in requests)


# --- the loop ---------------------------------------------------------------------------------

# Instance-hours believed, so that the deadline is tight for the true rate.
HOURS = {0.5: 11.0, 2.0: 40.0}


@cache
def course_of(seed: int, factor: float, *, monitored: bool = True, width: float = 0.0) -> Course:
    market = small_market(seed)
    job = believed_job(market, hours_of_one=HOURS[factor], width=width)
    return run_measured(market, [job], factor=factor, monitored=monitored)


def closed(course: Course) -> JobClosed:
    (one,) = course.closed.values()
    return one


@pytest.mark.parametrize("width", [0.0, 0.1], ids=["no interval", "an interval too narrow"])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_twenty_reports_halve_an_error_of_two(factor: float, width: float) -> None:
    course = course_of(9, factor, width=width)

    job = course.job
    within = [event for event in course.reestimated if event.reports <= 20]
    assert course.reports[job.job_id] >= 20
    believed = within[-1].throughputs[0].alpha / job.throughputs[0].alpha
    assert abs(believed - factor) <= abs(1 - factor) / 2
    # And more than that: all that is left is noise.
    assert believed == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("seed", [9, 11])
def test_a_job_half_as_fast_as_believed_meets_a_deadline_it_would_miss(seed: int) -> None:
    blind = course_of(seed, 0.5, monitored=False)
    told = course_of(seed, 0.5)

    assert closed(blind).outcome is JobOutcome.MISSED_DEADLINE
    assert closed(told).outcome is JobOutcome.COMPLETED


@pytest.mark.parametrize("seed", [9, 11])
def test_a_job_twice_as_fast_as_believed_costs_less(seed: int) -> None:
    blind = course_of(seed, 2.0, monitored=False)
    told = course_of(seed, 2.0)

    assert closed(blind).outcome is closed(told).outcome is JobOutcome.COMPLETED
    assert closed(told).cost_micro_usd < 0.9 * closed(blind).cost_micro_usd


def test_a_job_that_ends_teaches_what_it_was_measured_at() -> None:
    course = course_of(9, 0.5)

    rates = {
        event.run.configuration.gpus: event.run.tokens_per_s / event.run.configuration.gpus
        for event in course.measured
    }
    stated = course.job.throughputs[0].alpha / 3600 / 8
    assert rates
    assert all(rate == pytest.approx(stated / 2, rel=0.15) for rate in rates.values())


def test_work_done_alone_is_enough_to_learn_from() -> None:
    market = small_market(9)
    job = believed_job(market, hours_of_one=11)

    course = run_measured(market, [job], factor=0.5, with_rate=False)

    believed = course.reestimated[-1].throughputs[0].alpha / job.throughputs[0].alpha
    assert believed == pytest.approx(0.5, rel=0.05)


def test_a_user_stated_rate_is_left_alone() -> None:
    market = small_market(9)
    job = replace(believed_job(market, hours_of_one=11), configuration=None)

    course = run_measured(market, [job], factor=0.5)

    assert course.host.state_of("configurator").used >= 20
    assert course.reestimated == []
    assert course.measured == []
    # It fares as if nobody watched: its reports move its progress on, and nothing else.
    assert replace(closed(course), policy_id="") == replace(
        closed(course_of(9, 0.5, monitored=False)), policy_id=""
    )
