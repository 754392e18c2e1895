"""A log that lost entries: what it billed is billed, and what it said of jobs is held."""

from dataclasses import replace

from spotline.application.cloud_actuator.handler import ADMIT, NOTE_JOB, OPEN_SLOT
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.lifecycle import JobCancelled, JobClosed, JobSubmitted, JobUpdated
from tests.fakes.actuator import CTX, opened, quote
from tests.samples.events import SAMPLES
from tests.unit.application.cloud_actuator.test_handler import run

BEGUN = IncarnationBegun(
    installation_id="0" * 32, incarnation=2, last_seq_before=499, detail="cut", last_slot_before=33
)


def billed(*events):
    *_, call = [call for call in run(*events) if call.name == OPEN_SLOT]
    return [(one.slot, one.prices[0].spot_micro_usd) for one in call.request.unbilled]


def test_slots_of_the_lost_part_are_not_billed_again_and_its_last_one_is():
    assert billed(opened(10, quote(price=10)), BEGUN, opened(34, quote(price=20))) == [(33, 20)]
    assert billed(BEGUN, opened(34, quote(price=20))) == [(33, 20)]
    assert billed(BEGUN, opened(34, quote(price=20)), opened(35)) == [(34, 20)]


def test_an_incarnation_that_knows_of_no_later_slot_changes_nothing():
    known = replace(BEGUN, last_slot_before=-1)

    assert billed(opened(10, quote(price=10)), known, opened(11)) == [(10, 10)]


def test_what_the_log_says_of_a_job_is_held_with_the_ids_it_said_it_by():
    kinds = (JobSubmitted, JobUpdated, JobCancelled, JobClosed)
    for event in (sample for sample in SAMPLES if isinstance(sample, kinds)):
        (call,) = run(event)
        assert call.name == (ADMIT if isinstance(event, JobSubmitted) else NOTE_JOB)
        record = call.request.record
        assert (record.event, record.event_id) == (event, CTX.event_id)


def test_a_call_is_told_apart_without_what_is_held():
    (submitted,) = [sample for sample in SAMPLES if isinstance(sample, JobSubmitted)][:1]
    (call,) = run(submitted)
    (later,) = run(replace(submitted, ts_event_ns=submitted.ts_event_ns + 1))

    assert call.digest == later.digest
