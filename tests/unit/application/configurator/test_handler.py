"""The configurator's handler: what it folds, what it decides, and that verification tells it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spotline.application.configurator import handler as configure
from spotline.application.configurator.handler import SPEC, ConfigureHandler
from spotline.application.spec import Context
from spotline.contracts.build import event_of
from spotline.contracts.codec import encode
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.publishers import CAUSED, PUBLISHERS
from spotline.contracts.subjects import KINDS
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.lifecycle import (
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.units import NS_PER_S
from spotline.replay.divergence import VerifyReport
from spotline.replay.host import LocalHost
from spotline.replay.verify import verify
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    START_NS,
    WEST,
    forecast_issued,
    market_opened,
    slot_opened,
)
from tests.fakes.knowledge import (
    configuration,
    market_with_gpus,
    measured,
    measured_runs,
    predicted_job,
)
from tests.fakes.recorded_run import environment, manifest_of

BELIEVED = 3.6e7
CTX = Context(seq=1, now_ns=0, event_id="e" * 32, correlation_id="c")


def report(one: Job, number: int, rate_per_hour: float) -> JobProgressReported:
    return JobProgressReported(
        job_id=one.job_id,
        tenant=one.tenant,
        done=one.work.amount * number / 100,
        ts_event_ns=START_NS + SLOT_NS + number * 60 * NS_PER_S,
        rate_per_hour=rate_per_hour,
        instances=1,
    )


def closed(one: Job) -> JobClosed:
    return JobClosed(
        job_id=one.job_id,
        tenant=one.tenant,
        slot=2,
        outcome=JobOutcome.COMPLETED,
        policy_id="msu",
        cost_micro_usd=1,
        value_micro_usd=2,
        progress_ppm=1_000_000,
    )


def story(one: Job, *, rate_per_hour: float) -> list[Event]:
    """A job runs on one instance, half as fast as it was believed, and says so five times."""
    held = CapacityReported(
        slot=1,
        revision=0,
        offset_s=0,
        settled=True,
        holdings=(JobHolding(job_id=one.job_id, lots=(Lot(offering_id=EAST, spot=1),)),),
    )
    return [
        market_with_gpus(),
        slot_opened(0),
        JobSubmitted(job=one, ts_event_ns=START_NS),
        slot_opened(1),
        held,
        *(report(one, number, rate_per_hour) for number in range(1, 6)),
        closed(one),
    ]


def played(events: Sequence[Event]) -> list[StoredEntry]:
    """The log of a configurator that is told `events`; what it learns comes from its own shell."""
    log: list[StoredEntry] = []
    host = LocalHost([ConfigureHandler()], record=log.append)
    for event in events:
        own = isinstance(event, RunMeasured)
        kind = KINDS[type(event)]
        rightful = min(PUBLISHERS[kind])
        cause_id = "elsewhere" if kind in CAUSED else ""
        host.publish(event, source=SPEC.service if own else rightful, cause_id=cause_id)
    return log


def verified(log: Sequence[StoredEntry]) -> VerifyReport:
    return verify(log, [ConfigureHandler()], manifest_of(log), here=environment())


def of_type(log: Sequence[StoredEntry], event_type: type[Event]) -> list[Event]:
    return [event for event in map(event_of, log) if isinstance(event, event_type)]


@pytest.fixture
def watched_log() -> list[StoredEntry]:
    """A lesson, then a job that turns out to be half as fast as was predicted."""
    lesson = [RunMeasured(run=run) for run in measured_runs(2)]
    return played([*lesson, *story(predicted_job(), rate_per_hour=BELIEVED / 2)])


# --- state ------------------------------------------------------------------------------------


def test_the_market_is_folded_as_a_job_would_meet_it() -> None:
    handler = ConfigureHandler()
    state = handler.initial()
    before = state.market()

    for event in (market_opened(), slot_opened(0), forecast_issued(0)):
        handler.evolve(state, event)

    assert before is None
    market = state.market()
    assert {one.offering_id for one in market.offerings} == {EAST, WEST}
    assert market.next_slot == 1
    assert market.forecast is not None


def test_measured_runs_are_kept_once_and_in_order_whoever_measured_them() -> None:
    handler = ConfigureHandler()
    state = handler.initial()
    one, other = measured_runs(2)

    for run, job_id in ((other, ""), (one, "a job"), (other, "another")):
        handler.evolve(state, RunMeasured(run=run, job_id=job_id))

    assert state.runs.behind(0) == (other, one)


def test_the_log_teaches_no_more_than_its_bound(monkeypatch) -> None:
    monkeypatch.setattr(configure, "MOST_LEARNED_RUNS", 2)
    handler = ConfigureHandler()
    state = handler.initial()

    for run in measured_runs(3):
        handler.evolve(state, RunMeasured(run=run))

    assert state.runs.behind(0) == measured_runs(2)


def test_a_measured_run_by_itself_leads_to_nothing() -> None:
    handler = ConfigureHandler()
    state = handler.initial()
    event = RunMeasured(run=measured())
    handler.evolve(state, event)

    assert handler.decide(state, event, CTX).events == ()


# --- decisions --------------------------------------------------------------------------------


def test_reports_of_half_the_rate_lead_to_a_new_throughput(watched_log) -> None:
    found = of_type(watched_log, ThroughputReestimated)

    assert found
    assert found[-1].job_id == predicted_job().job_id
    assert found[-1].throughputs[0].alpha == pytest.approx(BELIEVED / 2, rel=0.1)


def test_a_closed_job_teaches_what_its_reports_measured(watched_log) -> None:
    learned = of_type(watched_log, RunMeasured)[2:]

    (event,) = learned
    assert event.job_id == predicted_job().job_id
    assert event.run.stack == "live"
    assert event.run.configuration == configuration()
    assert event.run.tokens_per_s == pytest.approx(BELIEVED / 2 / 3600)


def test_what_it_decided_is_part_of_its_own_state() -> None:
    log = played(story(predicted_job(), rate_per_hour=BELIEVED / 2))
    handler = ConfigureHandler()
    refolded = handler.initial()
    for entry in log:
        handler.evolve(refolded, event_of(entry))

    assert [run.stack for run in refolded.runs.behind(0)] == ["live"]


# --- verification -----------------------------------------------------------------------------


def test_lessons_are_observations_and_what_jobs_taught_is_recomputed(watched_log) -> None:
    decided = len(of_type(watched_log, ThroughputReestimated)) + 1

    result = verified(watched_log)

    assert (result.exit_code, result.open_inputs) == (0, 0), result.divergences
    assert result.decisions == {"configurator": decided}


def altered(log: Sequence[StoredEntry], place: int, event: Event) -> list[StoredEntry]:
    return [*log[:place], replace(log[place], payload=encode(event)), *log[place + 1 :]]


def test_an_altered_run_of_a_job_is_found(watched_log) -> None:
    place = len(watched_log) - 1
    event = event_of(watched_log[place])
    assert isinstance(event, RunMeasured)
    faster = replace(event, run=replace(event.run, tokens_per_s=1.0))

    result = verified(altered(watched_log, place, faster))

    (divergence,) = result.divergences
    assert divergence.seq == watched_log[place].seq
    assert "run.tokens_per_s" in divergence.differences[0]


def test_a_lesson_may_be_anything_for_nothing_follows_from_it(watched_log) -> None:
    event = event_of(watched_log[0])
    other = replace(event, run=measured(1.0, gpus=4))

    assert verified(altered(watched_log, 0, other)).exit_code == 0


def test_a_decision_whose_cause_was_wiped_is_missed_where_it_belongs(watched_log) -> None:
    kinds = [type(event_of(entry)) for entry in watched_log]
    place = kinds.index(ThroughputReestimated)
    headers = {**watched_log[place].headers, "ce-causationid": ""}
    wiped = replace(watched_log[place], headers=headers)

    result = verified([*watched_log[:place], wiped, *watched_log[place + 1 :]])

    assert result.exit_code == 1
    assert any(one.recorded == "nothing" for one in result.divergences)
