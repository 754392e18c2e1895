from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.api.v1.batch_pb2 import EventBatch
from spotline.contracts.batch import events_in, is_batch, packed, repacked, unpacked
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.envelope import StoredEntry, answer_id, derive_id
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import KINDS, ONLY_IN_BATCHES, SINGLE_KINDS, subject_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, ProvisioningCommanded, SlotDecided
from spotline.domain.events.lifecycle import JobAdvanced
from spotline.domain.events.market import QuoteObserved, SlotOpened
from tests.depth import examples
from tests.samples.events import SAMPLES

CAUSE = derive_id("a slot", "market.slot")
BATCHED = [event for event in SAMPLES if KINDS[type(event)] not in SINGLE_KINDS]


def sample(event_type):
    return next(event for event in SAMPLES if type(event) is event_type)


def decided(events, *, cause=CAUSE, correlation="chain", source="selector"):
    return [
        envelope_for(
            event,
            event_id=derive_id(cause, KINDS[type(event)], index),
            source=source,
            causation_id=cause,
            correlation_id=correlation,
            index=index,
        )
        for index, event in enumerate(events)
    ]


CALL_ID = derive_id(CAUSE, "call:open_slot")


def answered(events, *, call_id=CALL_ID):
    last = len(events) - 1
    return [
        replace(one, event_id=answer_id(call_id, last - place), source="cloud_actuator")
        for place, one in enumerate(decided(events))
    ]


def stored(envelopes, *, first_seq=1):
    return [
        StoredEntry(
            seq=seq,
            stored_ns=1_000 + seq,
            subject=one.subject,
            headers=one.headers(),
            payload=one.payload,
        )
        for seq, one in enumerate(envelopes, start=first_seq)
    ]


def stored_batches(envelopes, **options):
    return stored([entry.envelope for entry in packed(envelopes, **options)])


def all_unpacked(entries):
    return [event for entry in entries for event in unpacked(entry)]


DECISIONS = [
    sample(AllocationDecided),
    sample(JobAdvanced),
    sample(ProvisioningCommanded),
    sample(SlotDecided),
]


def test_what_is_unpacked_again_is_the_same_and_other_kinds_of_it_come_in_order():
    (entry,) = stored_batches(decided(DECISIONS))
    kinds = [KINDS[type(event)] for event in DECISIONS]

    ends = unpacked(entry, {kinds[0], kinds[-1]})
    whole = unpacked(entry)

    assert [event.envelope().kind for event in whole] == kinds
    assert (whole[0], whole[-1]) == ends
    assert whole[0] is ends[0]
    assert unpacked(replace(entry, seq=entry.seq + 1))[0].seq == entry.seq + 1


def test_of_a_batch_that_inflates_to_much_nothing_is_kept():
    large = replace(sample(SlotDecided), slot=7)
    (entry,) = stored_batches(decided([large] * 8_000))
    assert len(entry.payload) < 16_384

    assert unpacked(entry)[0] is not unpacked(entry)[0]
    assert unpacked(entry) == unpacked(entry)


def test_outputs_of_one_cause_are_one_entry_and_come_back_as_they_were():
    envelopes = decided(DECISIONS)
    (entry,) = stored_batches(envelopes)
    assert entry.subject == "spotline.v1.batch.selector"
    assert is_batch(entry)
    assert events_in(entry) == 4
    events = unpacked(entry)
    assert [event.envelope() for event in events] == envelopes
    assert [event_of(event) for event in events] == DECISIONS
    assert [(event.seq, event.place) for event in events] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert [event.stored_ns for event in events] == [entry.stored_ns] * 4
    for event, envelope in zip(events, envelopes, strict=True):
        assert event.headers == envelope.headers()
        assert replace(event, place=0) == replace(
            stored([envelope])[0], seq=1, stored_ns=entry.stored_ns
        )


def test_ids_that_can_be_derived_are_left_out():
    batch = EventBatch.FromString(stored_batches(decided(DECISIONS[:2]))[0].payload)
    assert all(not event.event_id and not event.other_id for event in batch.plain.events)
    costs = [sample(CostAccrued)] * 3
    (entry,) = stored_batches(answered(costs))
    assert b"before" not in entry.payload
    assert len(entry.payload) < sum(len(one.payload) for one in answered(costs))
    assert [one.envelope() for one in unpacked(entry)] == answered(costs)


def test_answers_split_over_several_batches_keep_their_ids():
    envelopes = answered([sample(CostAccrued)] * 7)
    entries = stored_batches(envelopes, most_events=3)
    assert [events_in(entry) for entry in entries] == [3, 3, 1]
    assert [one.envelope() for one in all_unpacked(entries)] == envelopes


def test_one_alone_stays_an_entry_of_its_own():
    (envelope,) = decided([sample(SlotDecided)])
    assert [entry.envelope for entry in packed([envelope])] == [envelope]
    (entry,) = stored([envelope])
    assert unpacked(entry) == (entry,)
    assert unpacked(entry, kinds=()) == (entry,)


def test_what_the_log_takes_in_batches_alone_is_one_even_alone():
    (envelope,) = decided([sample(AllocationDecided)])
    (entry,) = stored_batches([envelope])
    assert is_batch(entry)
    assert [one.envelope() for one in unpacked(entry)] == [envelope]


def test_a_batch_of_one_event_at_most_is_the_form_of_before():
    entries = packed(decided(DECISIONS), most_events=1)
    assert [entry.events for entry in entries] == [1] * 4
    assert [entry.envelope.subject for entry in entries[1:]] == [
        subject_of(event, "selector") for event in DECISIONS[1:]
    ]


def test_events_of_two_causes_are_two_entries():
    first, second = decided(DECISIONS), decided(DECISIONS, cause=derive_id("b", "c"))
    assert [entry.events for entry in packed([*first, *second])] == [4, 4]


def test_the_opening_of_a_slot_stands_alone_behind_the_quotes():
    events = [sample(QuoteObserved), sample(QuoteObserved), sample(SlotOpened)]
    envelopes = []
    for index, event in enumerate(events):
        event_id = derive_id("market_ingest", "slot:3", index)
        envelopes.append(
            envelope_for(
                event,
                event_id=event_id,
                source="market_ingest",
                causation_id="",
                correlation_id=event_id,
                index=index,
            )
        )
    entries = stored_batches(envelopes)
    assert [events_in(entry) for entry in entries] == [2, 1]
    assert entries[1].subject == "spotline.v1.market.slot"
    assert [one.envelope() for one in all_unpacked(entries)] == envelopes


def test_a_batch_ends_before_a_megabyte():
    long = replace(sample(AllocationDecided), explanation="x" * 100_000)
    entries = packed(decided([long] * 25))
    assert [entry.events for entry in entries] == [9, 9, 7]
    assert all_ids(entries) == [one.event_id for one in decided([long] * 25)]


def all_ids(entries):
    return [
        event.headers["ce-id"] for event in all_unpacked(stored([one.envelope for one in entries]))
    ]


def test_the_same_events_give_the_same_message():
    assert packed(decided(DECISIONS)) == packed(decided(DECISIONS))
    (one,), (other,) = packed(decided(DECISIONS)), packed(decided(DECISIONS[:3]))
    assert one.envelope.event_id != other.envelope.event_id


def test_kinds_that_nobody_wants_are_passed_over_and_keep_their_place():
    (entry,) = stored_batches(decided(DECISIONS))
    wanted = {KINDS[SlotDecided], KINDS[JobAdvanced]}
    assert [event.place for event in unpacked(entry, wanted)] == [1, 3]
    assert unpacked(entry, {"market.slot"}) == ()


def test_trace_headers_stay_with_their_event():
    envelopes = decided(DECISIONS)
    envelopes[1] = replace(envelopes[1], trace_headers={"traceparent": "00-aa-bb-01"})
    (entry,) = stored_batches(envelopes)
    assert [one.envelope() for one in unpacked(entry)] == envelopes


def test_an_unreadable_batch_is_refused():
    (entry,) = stored_batches(decided(DECISIONS))
    with pytest.raises(ContractError, match="no EventBatch"):
        unpacked(replace(entry, payload=b"\xff"))
    assert events_in(replace(entry, payload=b"\xff")) == 1


def test_a_truncated_batch_is_refused():
    (entry,) = stored_batches(decided(DECISIONS * 10))
    batch = EventBatch.FromString(entry.payload)
    batch.deflated = batch.deflated[:-20]
    with pytest.raises(ContractError, match="ends early"):
        unpacked(replace(entry, payload=batch.SerializeToString()))
    batch.deflated = b"garbage"
    with pytest.raises(ContractError, match="cannot be read"):
        unpacked(replace(entry, payload=batch.SerializeToString()))


def test_one_unreadable_event_leaves_the_others_readable():
    envelopes = decided(DECISIONS)
    envelopes[2] = replace(envelopes[2], payload=b"\xff\xff")
    (entry,) = stored_batches(envelopes)
    events = unpacked(entry)
    assert [event_of(events[place]) for place in (0, 1, 3)] == [
        DECISIONS[0],
        DECISIONS[1],
        DECISIONS[3],
    ]
    with pytest.raises(ContractError):
        event_of(events[2])


def test_a_kind_of_the_future_is_an_event_that_cannot_be_read():
    envelopes = decided(DECISIONS)
    envelopes[1] = replace(
        envelopes[1], kind="job.teleported", subject="spotline.v1.job.teleported"
    )
    (entry,) = stored_batches(envelopes)
    assert len(unpacked(entry)) == 4
    with pytest.raises(ContractError, match="unknown kind"):
        event_of(unpacked(entry)[1])


def test_repacked_with_an_event_changed():
    (entry,) = stored_batches(decided(DECISIONS))
    events = list(unpacked(entry))
    assert repacked(entry, events).payload == entry.payload
    changed = repacked(entry, events[:2])
    assert [one.envelope() for one in unpacked(changed)] == decided(DECISIONS)[:2]
    with pytest.raises(ContractError, match="one cause"):
        repacked(entry, [*events, *stored(decided(DECISIONS, cause="other"))])


def test_only_kinds_of_events_are_sorted_into_groups():
    assert frozenset(KINDS.values()) >= ONLY_IN_BATCHES
    assert frozenset({*KINDS.values(), "deadletter"}) >= SINGLE_KINDS
    assert not ONLY_IN_BATCHES & SINGLE_KINDS


ids = st.one_of(
    st.text("0123456789abcdef", min_size=32, max_size=32), st.text(min_size=1, max_size=5)
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_packed_comes_back(data):
    causes = data.draw(st.lists(st.one_of(st.just(""), ids), min_size=1, max_size=3))
    envelopes = []
    for number in range(data.draw(st.integers(1, 20))):
        event = data.draw(st.sampled_from(SAMPLES))
        kind, index = KINDS[type(event)], data.draw(st.integers(0, 40))
        cause = data.draw(st.sampled_from(causes))
        event_id = data.draw(st.one_of(st.just(derive_id(cause, kind, index)), ids))
        envelopes.append(
            envelope_for(
                event,
                event_id=f"{event_id}" or str(number),
                source=data.draw(st.sampled_from(["selector", "cloud_actuator"])),
                causation_id=cause,
                correlation_id=data.draw(st.sampled_from([event_id, "chain", *causes])),
                index=index,
            )
        )
    entries = stored_batches(envelopes, most_events=data.draw(st.integers(1, 30)))
    assert [one.envelope() for one in all_unpacked(entries)] == envelopes
    order = [(one.seq, one.place) for one in all_unpacked(entries)]
    assert order == sorted(set(order))
