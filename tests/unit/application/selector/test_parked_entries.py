"""What the selector does where an entry is parked."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from spotline.application.allocation.allocate import allocate
from spotline.application.selector.state import SlotPhase
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import CapacityReported, SlotDecided
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobProgressReported
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
from spotline.domain.limits.freezes import FreezeReason, FreezeScope
from spotline.domain.policies.answer import JobAnswer
from spotline.replay import parts
from spotline.replay.jobs import generated_jobs
from tests.fakes.odd_run import OddRun, dumped
from tests.fakes.recorded_run import small_market
from tests.samples.events import SAMPLES

MARKET = small_market(slots=16)
JOBS = generated_jobs(MARKET, 3, 5)
FAR = 10_000_000


def run(odd, *, forecaster="persistence"):
    found = OddRun(MARKET, JOBS, forecaster=forecaster)
    found.begin()
    found.to_the_end(odd)
    return found


@cache
def clean():
    return run({})


def opened(slot):
    return next(event for event in clean().events(SlotOpened) if event.slot == slot)


def parked_about(job_id, event_id="e-1", service="allocator"):
    return EntryParked(
        service=service,
        seq=7,
        place=0,
        event_id=event_id,
        kind="job.progress",
        error="progress must be <= 1, was 2",
        error_type="Unfit",
        job_id=job_id,
    )


def assert_all_ended(found):
    assert found.state_of("market_ingest").slot == MARKET.slots - 1
    assert set(found.outcomes()) == set(clean().outcomes())


def test_a_job_of_which_an_entry_is_parked_stops_buying_until_it_is_dealt_with():
    job_id = JOBS[0].job_id
    about = parked_about(job_id)
    dropped = ParkedEntryDropped(service="allocator", event_id="e-1", by="ann", detail="a test")

    found = run({2: [about], 4: [dropped]})

    (frozen,) = found.events(BuyingFrozen)
    freeze = frozen.freeze
    assert (freeze.freeze_id, freeze.scope, freeze.key) == (
        "parked/allocator/e-1",
        FreezeScope.JOB,
        job_id,
    )
    assert freeze.reason is FreezeReason.PARKED
    assert "spotline parked retry allocator e-1" in freeze.continue_with
    assert "progress must be <= 1, was 2" in freeze.detail
    (unfrozen,) = found.events(BuyingUnfrozen)
    assert (unfrozen.freeze_id, unfrozen.by) == ("parked/allocator/e-1", "ann")
    assert not found.state_of("selector").freezes.by_id


def test_a_retry_ends_the_freeze_too():
    retried = ParkedEntryRetried(service="allocator", event_id="e-1", retried_as="e-2")

    found = run({2: [parked_about(JOBS[0].job_id), retried]})

    assert [event.freeze_id for event in found.events(BuyingUnfrozen)] == ["parked/allocator/e-1"]


def test_an_entry_about_no_job_or_one_that_is_over_freezes_nothing():
    found = run({2: [parked_about("")], MARKET.slots - 1: [parked_about(JOBS[0].job_id)]})

    over = found.outcomes().get(JOBS[0].job_id) is not None
    assert len(found.events(BuyingFrozen)) == (0 if over else 1)


def test_what_the_selector_parks_itself_about_a_job_freezes_it():
    about = next(one for one in SAMPLES if isinstance(one, JobProgressReported))
    about = replace(about, job_id=JOBS[0].job_id, tenant=JOBS[0].tenant)

    found = OddRun(MARKET, JOBS)
    select = next(turns for turns in found.host.hosted if turns.service == "selector")
    evolve = select._handler.evolve

    def failing(state, event):
        evolve(state, event)
        if event is about:
            raise KeyError("nobody foresaw this")

    select._handler.evolve = failing
    found.begin()
    found.to_the_end({3: [about]})

    (parked,) = found.parked()
    assert (parked.service, parked.kind, parked.job_id) == (
        "selector",
        "job.progress",
        JOBS[0].job_id,
    )
    (frozen,) = found.events(BuyingFrozen)
    assert frozen.freeze.freeze_id == f"parked/selector/{parked.event_id}"
    assert_all_ended(found)


# --- a slot that loses an entry goes on -------------------------------------------------------


def failing_on(service, event_type, slot, *, times=1):
    """A run in which a service fails on its entry of a type and slot."""
    found = OddRun(MARKET, JOBS)
    turns = next(turns for turns in found.host.hosted if turns.service == service)
    handler = turns._handler
    evolve = handler.evolve
    left = [times]

    def failing(state, event):
        evolve(state, event)
        if isinstance(event, event_type) and event.slot == slot and left[0]:
            left[0] -= 1
            raise KeyError("nobody foresaw this")

    handler.evolve = failing
    found.begin()
    found.to_the_end()
    return found


def test_a_slot_goes_on_without_what_the_selector_could_not_take():
    for event_type in (SlotOpened, ForecastIssued, AllocationAnswered, CapacityReported):
        found = failing_on("selector", event_type, 4)

        # Where it lost the opening, the slot's forecast is none of a slot that has opened.
        assert {(parked.service, parked.slot) for parked in found.parked()} == {("selector", 4)}
        assert_all_ended(found)


def test_a_parked_forecast_is_waited_for_no_longer_than_one_that_is_late():
    found = failing_on("selector", ForecastIssued, 4)

    assert [event.slot for event in found.events(ForecastOverdue)] == [4]


def test_a_parked_answer_is_replaced_by_the_fallback():
    found = failing_on("selector", AllocationAnswered, 4)

    decided = [event for event in found.events(SlotDecided) if event.slot == 4]
    assert next(event.revision for event in decided) == 0


def test_a_slot_goes_on_without_what_market_forecaster_or_actuator_could_not_take():
    for service, event_type in (
        ("market_ingest", SlotOpened),
        ("market_ingest", CapacityReported),
        ("forecaster", SlotOpened),
        ("allocator", SlotOpened),
        ("allocator", CapacityReported),
    ):
        found = failing_on(service, event_type, 4)

        assert [parked.service for parked in found.parked()] == [service]
        assert_all_ended(found)


# --- odd slots --------------------------------------------------------------------------------


def test_a_slot_far_ahead_is_parked_by_all_with_the_reason_and_the_market_goes_on():
    far = replace(opened(5), slot=FAR)

    found = run({5: [far]})

    consumers = {"market_ingest", "forecaster", "selector", "allocator", "read_model"}
    assert consumers <= {parked.service for parked in found.parked()}
    assert all(parked.error.startswith("slot must be ") for parked in found.parked())
    assert found.outcomes() == clean().outcomes()


def test_an_old_slot_under_a_new_id_changes_nothing():
    found = run({5: [opened(2), opened(5)]})

    assert found.parked() == []
    assert found.outcomes() == clean().outcomes()


def test_a_slot_that_skips_others_while_no_time_has_passed_is_parked_by_all():
    ahead = replace(opened(6), slot=12)

    found = run({5: [ahead]})

    reasons = {parked.service: parked.error for parked in found.parked()}
    assert {"market_ingest", "forecaster", "selector", "allocator"} <= set(reasons)
    assert "6 slots after slot 5" in reasons["selector"]
    assert found.outcomes() == clean().outcomes()


def test_a_slot_without_quotes_or_with_an_offering_missing_is_taken_with_those_of_before():
    for kept in (0, 1, 2):
        odd = replace(opened(6), quotes=opened(6).quotes[:kept])

        found = run({5: [odd]}, forecaster="river")

        assert found.parked() == []
        assert_all_ended(found)
        state = found.state_of("selector")
        assert len(state.current.quotes) == len(opened(6).quotes)


def test_an_answer_about_a_job_that_nobody_knows_is_parked_and_decided_without():
    asked = next(event for event in clean().events(AllocationAnswered) if event.slot == 5)
    strange = replace(asked.answers[0], job_id="nobody") if asked.answers else None
    odd = AllocationAnswered(
        slot=5, revision=0, request_digest="x", outcome=CallOutcome.ANSWERED, answers=(strange,)
    )
    assert isinstance(strange, JobAnswer)

    found = run({5: [odd]})

    assert_all_ended(found)


def test_an_answer_of_more_instances_than_a_job_can_use_is_parked_and_decided_without(monkeypatch):
    """An allocator that asks for ten times as many is not believed."""
    most = {job.job_id: job.max_instances for job in JOBS}
    at = next(
        event.slot
        for event in clean().events(AllocationAnswered)
        if any(answer.lots for answer in event.answers)
    )

    def tenfold(request):
        answered = allocate(request)
        if request.slot != at:
            return answered
        return replace(answered, answers=tuple(ten_times(answer) for answer in answered.answers))

    monkeypatch.setattr(parts, "allocate", tenfold)
    found = run({})

    (parked,) = found.parked()
    assert (parked.service, parked.slot) == ("selector", at)
    assert parked.error.startswith("answers.lots must be <= ")
    assert all(
        sum(lot.spot + lot.on_demand for lot in event.lots) <= most[event.job_id]
        for event in found.events(AllocationDecided)
    )
    assert_all_ended(found)


def ten_times(answer):
    lots = (replace(lot, spot=10 * lot.spot, on_demand=10 * lot.on_demand) for lot in answer.lots)
    return replace(answer, lots=tuple(lots))


def test_the_selector_is_as_before_behind_an_entry_that_it_parked():
    found = OddRun(MARKET, JOBS)
    found.begin()
    select = next(turns for turns in found.host.hosted if turns.service == "selector")
    before = dumped(select.state)

    found.host.publish(replace(opened(0), slot_s=0), source="somebody")

    assert "slot_s must be >= 1, was 0" in {parked.error for parked in found.parked()}
    assert dumped(select.state) == before or select.state.phase is not SlotPhase.SETTLED
