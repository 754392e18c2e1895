"""Whatever comes over the bus or out of a store is read, or is a `ContractError`."""

import base64
import json
import random
import tracemalloc
import zlib

import pytest
from google.protobuf import json_format

from spotline.adapters.eventlog.lines import entry_of, line_of
from spotline.adapters.eventlog.manifest import UnreadableLog
from spotline.adapters.ledger.answers import dump_answers, load_answers
from spotline.api.v1.batch_pb2 import EventBatch
from spotline.contracts.batch import packed, unpacked
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.codec import (
    decode,
    decode_dead_letter,
    encode,
    json_of,
    message_type_of_kind,
    payload_of_json,
)
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import KINDS
from tests.depth import examples
from tests.fakes.mutation import changed_bytes, changed_value, only_raises
from tests.samples.events import SAMPLES

TYPED = (ContractError,)
TIMES = examples(120)


def named(event):
    return KINDS[type(event)]


def stored(envelope, seq=5):
    return StoredEntry(
        seq=seq,
        stored_ns=1,
        subject=envelope.subject,
        headers=envelope.headers(),
        payload=envelope.payload,
    )


def enveloped(event, index=0):
    return envelope_for(
        event,
        event_id=f"e{index}",
        source="test",
        causation_id="c",
        correlation_id="k",
        index=index,
    )


@pytest.mark.parametrize("event", SAMPLES, ids=named)
def test_a_changed_payload_is_an_event_or_breaks_the_contract(event):
    kind, payload = named(event), encode(event)
    rng = random.Random(f"bytes {kind}")
    for number in range(TIMES):
        data = changed_bytes(payload, rng)
        said = f"{kind} {number}: {base64.b64encode(data)!r}"
        if only_raises(lambda data=data: decode(kind, data), TYPED, said):
            # What is taken can be written again: a handler may pass it on.
            again = decode(kind, data)
            assert decode(kind, encode(again)) == again or encode(again)


@pytest.mark.parametrize("event", SAMPLES, ids=named)
def test_fields_of_strange_values_are_an_event_or_break_the_contract(event):
    kind = named(event)
    text = json_of(kind, encode(event))
    message_type = message_type_of_kind(kind)
    rng = random.Random(f"fields {kind}")
    for number in range(TIMES):
        strange = changed_value(text, rng)
        said = f"{kind} {number}: {strange!r}"[:2000]
        if not only_raises(lambda strange=strange: payload_of_json(kind, strange), TYPED, said):
            continue
        payload = payload_of_json(kind, strange)
        assert message_type.FromString(payload) is not None
        only_raises(lambda payload=payload: decode(kind, payload), TYPED, said)


def test_random_bytes_are_no_event():
    rng = random.Random(3)
    kinds = [named(event) for event in SAMPLES]
    for number in range(20 * TIMES):
        kind, data = rng.choice(kinds), rng.randbytes(rng.randrange(60))
        only_raises(lambda kind=kind, data=data: decode(kind, data), TYPED, f"{kind} {number}")
        only_raises(lambda data=data: decode_dead_letter(data), TYPED, f"letter {number}")


@pytest.mark.parametrize("name", sorted(enveloped(SAMPLES[0]).headers()))
@pytest.mark.parametrize(
    "value",
    ["", "x", "-1", "9" * 5_000, "\x1b[2J", "\ud800", "1e5", "٣", "²", "nan", "spotline.v1."],
)
def test_a_header_of_anything_is_read_or_breaks_the_contract(name, value):
    entry = stored(enveloped(SAMPLES[0]))
    strange = StoredEntry(
        seq=5,
        stored_ns=1,
        subject=entry.subject,
        headers={**entry.headers, name: value},
        payload=entry.payload,
    )
    missing = StoredEntry(
        seq=5,
        stored_ns=1,
        subject=entry.subject,
        headers={key: held for key, held in entry.headers.items() if key != name},
        payload=entry.payload,
    )
    for wrong in (strange, missing):
        only_raises(wrong.envelope, TYPED, f"{name}={value[:20]!r}")
        only_raises(lambda wrong=wrong: event_of(wrong), TYPED, f"{name}={value[:20]!r}")
        only_raises(lambda wrong=wrong: unpacked(wrong), TYPED, f"{name}={value[:20]!r}")


def batches():
    """Batches of ten and of one, deflated and not."""
    members = [enveloped(event, index) for index, event in enumerate(SAMPLES)]
    return [
        stored(entry.envelope)
        for chunk in (members, members[:1])
        for entry in packed(chunk, most_events=10)
    ]


def test_a_changed_batch_is_events_or_breaks_the_contract():
    rng = random.Random(7)
    for number in range(10 * TIMES):
        entry = rng.choice(batches())
        changed = StoredEntry(
            seq=entry.seq,
            stored_ns=entry.stored_ns,
            subject=entry.subject,
            headers=entry.headers,
            payload=changed_bytes(entry.payload, rng),
        )
        only_raises(lambda changed=changed: unpacked(changed), TYPED, f"batch {number}")


def test_a_batch_that_inflates_to_a_gigabyte_costs_no_gigabyte():
    (entry,) = (each for each in batches()[:1])
    message = EventBatch.FromString(entry.payload)
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(1 << 10)) + packer.flush()
    fields = [
        field.name for field in EventBatch.DESCRIPTOR.fields if field.type == field.TYPE_BYTES
    ]
    assert fields, "a batch must have deflated bytes"
    tracemalloc.start()
    try:
        for name in fields:
            held = EventBatch()
            held.CopyFrom(message)
            setattr(held, name, bomb)
            payload = held.SerializeToString()
            strange = StoredEntry(
                seq=1, stored_ns=1, subject=entry.subject, headers=entry.headers, payload=payload
            )
            only_raises(lambda strange=strange: unpacked(strange), TYPED, name)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300 << 20


def test_a_changed_line_of_a_log_is_an_entry_or_unreadable():
    rng = random.Random(11)
    entries = [*batches()[:3], *(stored(enveloped(event)) for event in SAMPLES)]
    lines = [line_of(entry) for entry in entries]
    for number in range(10 * TIMES):
        line = rng.choice(lines)
        if number % 2:
            wrong = changed_bytes(line.encode(), rng)
        else:
            wrong = json.dumps(changed_value(json.loads(line), rng)).encode()
        said = f"line {number}: {wrong[:1000]!r}"
        only_raises(lambda wrong=wrong: entry_of(wrong, "entries.jsonl:1"), (UnreadableLog,), said)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"9" * 100_000,
        b'{"headers": {}, "seq": Infinity, "stored_ns": 1, "subject": "s", "payload_b64": ""}',
        b'{"headers": {}, "seq": 1e400, "stored_ns": 1, "subject": "s", "payload_b64": ""}',
        b'{"headers": [], "seq": 1}',
        b"null",
        b"\xff\xfe",
        b"",
    ],
    ids=[
        "lists",
        "mappings",
        "digits",
        "infinity",
        "1e400",
        "no headers",
        "null",
        "utf-16",
        "empty",
    ],
)
def test_a_line_that_is_none_is_unreadable(line):
    with pytest.raises(UnreadableLog):
        entry_of(line, "entries.jsonl:1")


def test_changed_answers_of_a_ledger_are_events_or_break_the_contract():
    rng = random.Random(13)
    text = dump_answers(SAMPLES[:6])
    for number in range(5 * TIMES):
        if number % 2:
            wrong = changed_bytes(text.encode(), rng).decode("utf-8", "replace")
        else:
            wrong = json.dumps(changed_value(json.loads(text), rng))
        only_raises(lambda wrong=wrong: load_answers(wrong), TYPED, f"{number}: {wrong[:1000]!r}")
    for wrong in ("[" * 100_000, "", "null", "{}", "[[1]]", "[[1, 2, 3]]", '[["a", null]]'):
        only_raises(lambda wrong=wrong: load_answers(wrong), TYPED, wrong[:20])


def test_a_value_is_changed_into_what_protobuf_can_be_asked_to_read():
    # The changes must reach fields, not only names that nobody knows.
    rng = random.Random(17)
    kind = named(SAMPLES[0])
    text = json_of(kind, encode(SAMPLES[0]))
    taken = 0
    for _ in range(TIMES):
        try:
            payload_of_json(kind, changed_value(text, rng))
        except (ContractError, json_format.Error):
            continue
        taken += 1
    assert taken > 0
