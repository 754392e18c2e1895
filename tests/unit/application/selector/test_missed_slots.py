"""Slots that a live market missed: what is held goes on, and the present one decides what follows."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Outcome
from spotline.domain.events.capacity import CapacityReported, ProvisioningCommanded, SlotDecided
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.replay.jobs import generated_jobs
from tests.unit.application.selector.test_revisions import MARKET, Driver

JOB = generated_jobs(MARKET, 1, 2)[0]
CLOCK = IngestHandler(MARKET, IngestOptions())
FIRST = next(s for s in range(MARKET.slots) if MARKET.slot_starts_ns()[s] >= JOB.start_ns)


def opened(slot: int, *, missed: int = 0) -> SlotOpened:
    event = CLOCK.slot_events(slot)[-1]
    assert isinstance(event, SlotOpened)
    return replace(event, missed=missed)


def running() -> tuple[Driver, JobRun]:
    """A selector whose job holds on-demand in its first slot."""
    driver = Driver(SelectorOptions(rehearsals=0))
    driver.feed(
        MarketOpened(
            offerings=MARKET.offerings,
            slot_s=MARKET.slot_s,
            first_slot_start_ns=MARKET.start_ns,
            source="test",
        )
    )
    driver.feed(JobSubmitted(job=JOB, ts_event_ns=0))
    driver.feed(opened(FIRST))
    run = driver.state.runs[JOB.job_id]
    held(driver, Lot(offering_id=run.offering_id, on_demand=run.compiled.max_instances))
    return driver, run


def held(driver: Driver, lot: Lot) -> None:
    """The open slot is settled, and the job holds this."""
    state: SelectorState = driver.state
    driver.feed(ForecastOverdue(slot=state.slot, waited_ms=1))
    driver.feed(SlotDecided(slot=state.slot, revision=state.revision, offset_s=0, commands=0))
    holding = JobHolding(job_id=JOB.job_id, lots=(lot,))
    driver.feed(
        CapacityReported(
            slot=state.slot, revision=state.revision, offset_s=0, holdings=(holding,), settled=True
        )
    )


def of(outcome: Outcome, kind: type) -> list:
    return [event for event in outcome.events if isinstance(event, kind)]


def test_missed_slots_are_worked_and_paid_for_as_they_were_held_and_nothing_is_decided_of_them():
    driver, run = running()
    one_by_one, other = running()

    driver.feed(opened(FIRST + 3, missed=2))
    for slot in (1, 2, 3):
        one_by_one.feed(opened(FIRST + slot))
        if slot < 3:
            held(one_by_one, other.held_lots[0])

    assert run.state.progress_quanta == other.state.progress_quanta > 0
    # At the prices that were known as nobody was there.
    assert run.spent_micro_usd == 3 * run.last_slot_cost_micro_usd > 0
    outcome = driver.feed(ForecastOverdue(slot=FIRST + 3, waited_ms=1))
    assert [call.request.slot for call in outcome.calls] == [FIRST + 3]


def test_a_deadline_that_passed_meanwhile_is_told_and_everything_released_by_the_present_slot():
    driver, run = running()
    held(driver, Lot(offering_id=run.offering_id, on_demand=1))
    end = min(FIRST + run.compiled.end_slots + 2, MARKET.slots - 1)

    outcome = driver.feed(opened(end, missed=end - FIRST - 1))
    commands = driver.feed(ForecastOverdue(slot=driver.state.slot, waited_ms=1))

    (closed,) = of(outcome, JobClosed)
    assert closed.job_id == JOB.job_id
    (command,) = of(commands, ProvisioningCommanded)
    assert command.target == Lot(offering_id=run.offering_id)


def test_a_job_that_was_left_alone_teaches_nothing():
    driver, run = running()
    taught, alone = 0, 0
    other, _ = running()
    for slot in range(FIRST + 2, MARKET.slots, 2):
        alone += len(of(driver.feed(opened(slot, missed=1)), PolicyWeightsUpdated))
        taught += len(of(other.feed(opened(slot)), PolicyWeightsUpdated))

    assert (taught, alone) == (1, 0)
    assert not run.teaches
