import base64
import hashlib
import json
from dataclasses import dataclass, is_dataclass, replace
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.api.v1 import allocator_service_pb2, job_service_pb2, market_pb2
from spotline.application.allocation.messages import AllocateAnswer, AllocateRequest
from spotline.application.allocator import messages as requests
from spotline.application.allocator.messages import JobQuery, JobStatus
from spotline.application.configurator import messages as configuring
from spotline.contracts.build import (
    dead_letter_for,
    envelope_for,
    event_of,
    is_dead_letter,
    ts_event_ns_of,
)
from spotline.contracts.codec import (
    DeadLettered,
    Header,
    decode,
    decode_dead_letter,
    encode,
    json_of,
    payload_of_json,
)
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError, InvariantViolation
from spotline.contracts.mapping import digest, from_message, to_message
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobCancelled, JobProgressReported, JobSubmitted
from spotline.domain.events.market import QuoteObserved, SlotOpened
from tests.depth import examples
from tests.samples.events import GOLDEN, JOB, LOT, QUOTE, SAMPLES, START_NS
from tests.samples.strategies import values

KIND_OF_SAMPLE = [pytest.param(event, id=KINDS[type(event)]) for event in SAMPLES]
RPC_VALUES = [
    value
    for module in (requests, configuring)
    for value in vars(module).values()
    if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
]
relaxed = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def sample(event_type):
    return next(event for event in SAMPLES if type(event) is event_type)


def decoded_or_none(kind, payload):
    """None where the payload is refused; any error but `ContractError` fails the test."""
    try:
        return decode(kind, payload)
    except ContractError:
        return None


def test_every_event_has_a_kind_and_a_sample():
    every = set(get_args(Event))

    assert set(KINDS) == every
    assert {type(event) for event in SAMPLES} == every


@pytest.mark.parametrize("event_type", KINDS, ids=KINDS.get)
def test_every_event_comes_back_equal_and_encodes_the_same_again(event_type):
    @relaxed
    @given(values(event_type))
    def holds(event):
        payload = encode(event)
        back = decode(KINDS[event_type], payload)
        assert back == event
        assert encode(back) == payload

    holds()


@pytest.mark.parametrize("value_type", RPC_VALUES)
def test_every_request_and_answer_comes_back_equal(value_type):
    @relaxed
    @given(values(value_type))
    def holds(value):
        message = to_message(value)
        again = type(message).FromString(message.SerializeToString())
        assert from_message(value_type, again) == value

    holds()


@pytest.mark.parametrize("event_type", KINDS, ids=KINDS.get)
def test_json_of_an_event_gives_the_same_bytes_or_is_not_offered(event_type):
    @relaxed
    @given(values(event_type))
    def holds(event):
        payload = encode(event)
        text = json_of(KINDS[event_type], payload)
        if text is not None:
            assert payload_of_json(KINDS[event_type], json.loads(json.dumps(text))) == payload

    holds()


@pytest.mark.parametrize("event", KIND_OF_SAMPLE)
def test_a_golden_sample_keeps_its_bytes_its_subject_and_its_meaning(event):
    golden = json.loads((GOLDEN / f"{KINDS[type(event)]}.json").read_text())
    payload = base64.b64decode(golden["payload_b64"])

    assert decode(golden["kind"], payload) == event
    assert encode(event) == payload
    assert json_of(golden["kind"], payload) == golden["event"]


def test_golden_files_are_those_their_metadata_lists():
    listed = json.loads((GOLDEN / "metadata.json").read_text())["sha256"]

    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in GOLDEN.glob("*.json")
        if path.name != "metadata.json"
    }

    assert found == listed


@pytest.mark.parametrize("event", KIND_OF_SAMPLE)
def test_a_truncated_payload_is_refused_or_is_another_valid_event(event):
    # Protobuf cannot tell a message cut between two fields from a shorter one.
    kind, payload = KINDS[type(event)], encode(event)

    results = [decoded_or_none(kind, payload[:length]) for length in range(len(payload))]

    assert event not in results
    assert results.count(None) >= len(payload) // 3


@given(st.binary(max_size=64), st.sampled_from(list(KINDS.values())))
def test_garbage_is_a_contract_error_or_an_event(payload, kind):
    event = decoded_or_none(kind, payload)

    assert event is None or isinstance(event, Event)


def test_an_empty_payload_names_the_missing_id():
    with pytest.raises(ContractError, match="decision job_id: must not be empty"):
        decode("decision", b"")


def test_an_unknown_kind_names_the_known_ones():
    with pytest.raises(ContractError, match=r"unknown kind.*market\.quote"):
        decode("market.rumour", b"")


def test_a_price_of_zero_deep_inside_is_refused_with_its_path():
    message = to_message(sample(SlotOpened))
    message.quotes.add().CopyFrom(message.quotes[0])
    message.quotes[1].quote.spot_price_micro_usd = 0

    with pytest.raises(ContractError) as caught:
        decode("market.slot", message.SerializeToString())

    assert str(caught.value) == (
        "market.slot quotes[1].quote: spot_price_micro_usd must be > 0, was 0"
    )


def test_an_unspecified_enum_is_refused():
    message = to_message(sample(AllocationDecided))
    message.reason = 0

    with pytest.raises(ContractError, match="decision reason: is unspecified; expected one of"):
        decode("decision", message.SerializeToString())


def test_an_enum_of_the_future_is_refused():
    message = to_message(QuoteObserved(quote=QUOTE))
    message.quote.spot_available.provenance = 99

    with pytest.raises(
        ContractError, match=r"market\.quote quote\.spot_available\.provenance: has the unknown"
    ):
        decode("market.quote", message.SerializeToString())


def test_a_missing_nested_message_is_refused():
    with pytest.raises(ContractError, match=r"market\.quote quote: is missing"):
        decode("market.quote", market_pb2.QuoteObserved().SerializeToString())


@pytest.mark.parametrize("done", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(done):
    payload = encode(replace(sample(JobProgressReported), done=done))

    with pytest.raises(ContractError, match=r"job\.progress done: must be finite"):
        decode("job.progress", payload)


def test_a_field_of_the_future_is_passed_over():
    unknown_field_100 = b"\xa2\x06\x03new"
    payload = encode(sample(JobCancelled)) + unknown_field_100

    assert decode("job.cancelled", payload) == sample(JobCancelled)
    assert json_of("job.cancelled", payload) is None


def test_an_integer_beyond_64_bits_is_our_bug():
    with pytest.raises(InvariantViolation, match="SlotOpened cannot be written"):
        encode(replace(sample(SlotOpened), slot=2**63))


def test_a_dataclass_that_differs_from_its_message_is_our_bug():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Lot:
        offering_id: str
        spots: int

    with pytest.raises(InvariantViolation, match=r"Lot and its message differ in .*spots"):
        to_message(Lot(offering_id="a", spots=1))


def test_a_type_without_a_message_is_our_bug():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Rumour:
        text: str

    with pytest.raises(InvariantViolation, match="Rumour has no message"):
        encode(Rumour(text="x"))


def test_a_request_without_a_forecast_has_none():
    message = allocator_service_pb2.AllocateRequest(slot_s=600, reason=2)

    assert from_message(AllocateRequest, message).forecast is None


def test_a_status_before_the_first_decision_has_no_reason():
    message = to_message(JobStatus(job=JOB, state=requests.JobState.PENDING, submitted_ns=START_NS))

    assert message.last_reason == 0
    assert from_message(JobStatus, message).last_reason is None


def test_a_list_request_may_leave_out_everything():
    assert from_message(JobQuery, job_service_pb2.ListRequest()) == JobQuery()


def test_a_bad_request_names_its_message_and_field():
    message = job_service_pb2.SubmitRequest()
    message.job.CopyFrom(to_message(JOB))
    message.job.work.unit = "parsecs"

    with pytest.raises(ContractError, match=r"SubmitRequest job\.work: work\.unit must be one of"):
        from_message(requests.Submission, message)


def test_a_digest_depends_on_every_field_and_on_nothing_else():
    answers = [
        AllocateAnswer(answers=()),
        AllocateAnswer(answers=(), request_digest="ab"),
    ]

    assert digest(answers[0]) == digest(AllocateAnswer(answers=()))
    assert digest(answers[0]) != digest(answers[1])
    assert len(digest(answers[0])) == 64


def stored(event, **changes):
    envelope = envelope_for(
        event,
        event_id="e1",
        source="selector",
        causation_id="c1",
        correlation_id="k1",
        index=2,
    )
    entry = StoredEntry(
        seq=9,
        stored_ns=1,
        subject=envelope.subject,
        headers=envelope.headers(),
        payload=envelope.payload,
    )
    return replace(entry, **changes)


@pytest.mark.parametrize("event", KIND_OF_SAMPLE)
def test_an_event_survives_its_envelope(event):
    entry = stored(event)

    assert event_of(entry) == event
    assert entry.envelope().event_id == "e1"
    assert entry.envelope().index == 2
    assert entry.envelope().ts_event_ns == ts_event_ns_of(event)


def test_the_time_of_an_event_is_the_markets_where_it_has_one():
    assert ts_event_ns_of(sample(QuoteObserved)) == QUOTE.ts_event_ns
    assert ts_event_ns_of(sample(JobSubmitted)) == START_NS
    assert ts_event_ns_of(sample(JobCancelled)) == 0


def test_an_event_on_the_subject_of_another_kind_is_refused():
    entry = stored(sample(AllocationDecided), subject="spotline.v1.cost.a.b")

    with pytest.raises(ContractError, match="carries an event of kind decision"):
        event_of(entry)


def test_a_message_without_headers_is_refused():
    entry = stored(sample(AllocationDecided), headers={})

    with pytest.raises(ContractError, match="header ce-id is missing"):
        event_of(entry)


def test_a_dead_letter_keeps_the_message_untouched():
    entry = stored(sample(AllocationDecided), payload=b"\xff\x00")

    letter = dead_letter_for(
        entry, event_id="d1", service="forecaster", error=ContractError("decision", "bad bytes")
    )

    assert letter.subject == "spotline.v1.deadletter.forecaster"
    assert is_dead_letter(
        StoredEntry(seq=1, stored_ns=1, subject=letter.subject, headers={}, payload=letter.payload)
    )
    assert letter.causation_id == "e1"
    assert decode_dead_letter(letter.payload) == DeadLettered(
        original_subject=entry.subject,
        original_headers=tuple(
            Header(name=name, value=value) for name, value in sorted(entry.headers.items())
        ),
        payload=b"\xff\x00",
        service="forecaster",
        error="decision: bad bytes",
    )


def test_a_lot_of_an_offering_without_id_is_refused():
    message = to_message(replace(sample(AllocationDecided), lots=(LOT, LOT)))
    message.lots[1].offering_id = ""

    with pytest.raises(ContractError, match=r"decision lots\[1\]\.offering_id: must not be empty"):
        decode("decision", message.SerializeToString())
