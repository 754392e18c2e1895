"""What nobody is believed to have written who may: left out by whoever gets it, with no effect."""

from dataclasses import replace

import pytest

from spotline.application.allocator.handler import JobsHandler
from spotline.application.cloud_actuator.handler import ActuateHandler
from spotline.application.configurator.handler import ConfigureHandler
from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions, slot_timer
from spotline.application.placer.handler import PlaceHandler
from spotline.application.read_model.handler import ReadModelHandler
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.turn import Turn, Turns, context_of
from spotline.application.unfit import Unfit
from spotline.bench.faults.scenario import scenario_of
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import OPERATOR, StoredEntry, derive_id, retry_id
from spotline.contracts.mapping import digest
from spotline.contracts.publishers import CAUSED, PUBLISHERS
from spotline.contracts.subjects import KINDS
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobCancelled, JobSubmitted
from spotline.domain.events.parking import EntryParked
from spotline.domain.forecasting.registry import forecaster_factory
from tests.fakes.allocator import job
from tests.fakes.events import overdue
from tests.fakes.odd_run import dumped
from tests.fakes.toy import ToyHandler
from tests.samples.events import SAMPLES

HANDLERS = {
    "market_ingest": lambda: IngestHandler(scenario_of(0).market, IngestOptions()),
    "forecaster": lambda: ForecastHandler(forecaster_factory("persistence"), horizon_slots=2),
    "selector": lambda: SelectHandler(SelectorOptions(), digest=digest),
    "allocator": JobsHandler,
    "read_model": ReadModelHandler,
    "configurator": ConfigureHandler,
    "placer": PlaceHandler,
    "cloud_actuator": ActuateHandler,
}


def entry_of(event, *, source, event_id="e", cause="", seq=1, index=0):
    envelope = envelope_for(
        event,
        event_id=event_id,
        source=source,
        causation_id=cause,
        correlation_id=event_id,
        index=index,
    )
    return StoredEntry(
        seq=seq,
        stored_ns=seq,
        subject=envelope.subject,
        headers=envelope.headers(),
        payload=envelope.payload,
    )


def take(turns, event, **said):
    entry = entry_of(event, **said)
    return turns.take(event, context_of(entry, entry.envelope()))


@pytest.mark.parametrize("service", HANDLERS)
def test_every_service_leaves_out_whatever_a_stranger_wrote_and_stays_as_it_was(service):
    turns = Turns(HANDLERS[service]())
    before = dumped(turns.state)
    tried = [event for event in SAMPLES if turns.consumes(event)]
    assert tried

    for number, event in enumerate(tried):
        turn = take(turns, event, source="stranger", event_id=f"e{number}")

        assert turn.calls == ()
        if isinstance(event, EntryParked) and event.kind == KINDS[EntryParked]:
            continue  # a parking of a parking is not told again
        assert turn.parked is not None, event
        assert turn.parked.error_type == "Forged"
        assert turn.parked.error.startswith("ce-source must be ")
        assert turn.parked.error.endswith("was 'stranger'")
    assert dumped(turns.state) == before


@pytest.mark.parametrize("service", HANDLERS)
def test_what_is_decided_is_left_out_where_it_follows_from_nothing(service):
    turns = Turns(HANDLERS[service]())

    for number, event in enumerate(SAMPLES):
        kind = KINDS[type(event)]
        if not turns.consumes(event) or kind not in CAUSED:
            continue
        turn = take(turns, event, source=min(PUBLISHERS[kind]), event_id=f"e{number}", cause="x")

        assert turn.parked.error_type == "Forged"
        assert turn.parked.error.startswith("ce-id must be")


def test_taken_again_behind_a_restart_it_is_left_out_as_well():
    entry = entry_of(overdue(2), source="stranger")
    turns = Turns(ToyHandler())

    turn = turns.refold(overdue(2), context_of(entry, entry.envelope()), {})

    assert turn.parked.error_type == "Forged"
    assert turns.state == ToyHandler().initial()


# --- retries ----------------------------------------------------------------------------------


class Choosy(ToyHandler):
    """Takes an event once it is let."""

    willing = False

    def check(self, state, event):
        if not self.willing:
            raise Unfit("slot", "another", 0)


def retry(turns, event, *, of="e", seq=9):
    return take(
        turns, event, source=OPERATOR, event_id=retry_id(of, turns.service), cause=of, seq=seq
    )


def parked_toy():
    handler = Choosy()
    turns = Turns(handler)
    assert take(turns, overdue(2), source="selector").parked.error_type == "Unfit"
    handler.willing = True
    return turns


def test_what_was_parked_is_taken_when_it_comes_again():
    turn = retry(parked_toy(), overdue(2))

    assert turn.parked is None
    assert turn.outputs


def test_a_retry_with_another_content_is_not_believed():
    turn = retry(parked_toy(), overdue(3))

    assert turn.parked.error_type == "Forged"
    assert turn.parked.error.startswith("payload must be that of e")


def test_a_retry_of_nothing_is_not_believed():
    turn = retry(parked_toy(), overdue(2), of="another")

    assert turn.parked.error.startswith(
        "ce-causationid must be the id of an event that toy has set"
    )


def test_nobody_can_vouch_for_what_was_forged():
    turns = Turns(ToyHandler())
    assert take(turns, overdue(2), source="stranger").parked.error_type == "Forged"

    assert retry(turns, overdue(2)).parked.error_type == "Forged"


def test_a_retry_is_believed_after_a_restart_from_a_snapshot():
    before = parked_toy()
    handler = Choosy()
    handler.willing = True
    after = Turns(handler)

    after.restore(before.state, before.applied_ids())

    assert retry(after, overdue(3)).parked.error_type == "Forged"
    assert take(after, overdue(2), source="selector") == Turn()
    assert retry(after, overdue(2), seq=10) == Turn()  # the same id, which was tried just now
    again = Turns(handler)
    again.restore(before.state, before.applied_ids())
    assert retry(again, overdue(2)).parked is None


def test_what_the_log_says_is_parked_can_be_retried():
    entry = entry_of(overdue(2), source="selector")
    ctx = context_of(entry, entry.envelope())
    (parked,) = Turns(Choosy()).take(overdue(2), ctx).outputs
    turns = Turns(ToyHandler())

    turns.leave_out(ctx, parked)

    assert retry(turns, overdue(2)).parked is None


# --- tenants ----------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["selector", "allocator", "read_model", "cloud_actuator"])
def test_a_tenant_says_nothing_of_the_job_of_another(service):
    turns = Turns(HANDLERS[service]())
    ours = job()
    submitted = JobSubmitted(job=ours, ts_event_ns=ours.start_ns)
    if service == "read_model":
        assert take(turns, SAMPLES[0], source="market_ingest", event_id="m").parked is None
    assert take(turns, submitted, source="allocator", event_id="s").parked is None
    other = JobCancelled(job_id=ours.job_id, tenant="other")

    turn = take(turns, other, source="allocator", event_id="c")

    assert turn.parked.error_type == "Unproven"
    assert turn.parked.error == f"tenant must be {ours.tenant}, whose {ours.job_id} is, was other"
    mine = replace(other, tenant=ours.tenant)
    assert take(turns, mine, source="allocator", event_id="d").parked is None


# --- nothing follows --------------------------------------------------------------------------


def parked(kind, *, by, error_type, slot=0, job_id=""):
    return EntryParked(
        service=by,
        seq=1,
        place=0,
        event_id="f",
        kind=kind,
        error="it",
        error_type=error_type,
        job_id=job_id,
        slot=slot,
    )


@pytest.mark.parametrize("error_type", ["Forged", "Unproven"])
def test_a_forged_entry_about_a_job_does_not_freeze_it(error_type):
    turns = Turns(HANDLERS["selector"]())
    event = parked("decision", by="allocator", error_type=error_type, job_id="j")
    told = replace(event, error_type="Unfit")

    assert take(turns, event, source="allocator", event_id="a").outputs == ()
    assert take(turns, told, source="allocator", event_id="b").outputs != ()


def test_a_forged_slot_is_not_passed_over_by_the_market():
    handler = HANDLERS["market_ingest"]()
    state = handler.initial()
    forged = parked("market.slot", by="market_ingest", error_type="Forged", slot=0)

    handler.evolve(state, forged)
    assert state.slot == -1

    own_id = derive_id("market_ingest", slot_timer(0), 3)
    handler.evolve(state, replace(forged, error_type="Unfit", event_id=own_id))
    assert state.slot == 0


def test_ids_that_follow_are_those_that_turns_give():
    """What is looked for in a decision is what any handler's turn puts there."""
    entry = entry_of(overdue(2), source="selector")
    (first, *_) = Turns(ToyHandler()).take(overdue(2), context_of(entry, entry.envelope())).outputs

    assert first.event_id == derive_id("e", KINDS[type(first.event)], first.index)


def test_a_forecast_of_a_slot_to_come_is_parked_before_it_lowers_the_trust_in_others():
    turns = Turns(HANDLERS["selector"]())
    early = next(sample for sample in SAMPLES if isinstance(sample, ForecastIssued))
    before = dumped(turns.state)

    turn = take(turns, early, source="forecaster")

    assert turn.parked.error == f"slot must be one that has opened (<= -1), was {early.slot}"
    assert dumped(turns.state) == before
