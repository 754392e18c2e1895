"""Several events in one message of the log, and back.

Here alone batches are packed and unpacked. `(seq, place)` is the order of what comes out.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from google.protobuf.message import DecodeError

from spotline.api.v1.batch_pb2 import BatchedEvent, BatchedEvents, EventBatch
from spotline.contracts.codec import message_type_of_kind
from spotline.contracts.envelope import (
    CarriedHeaders,
    Envelope,
    StoredEntry,
    answer_id,
    derive_id,
)
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import (
    BATCH_KIND,
    EVENT_TYPES,
    ONLY_IN_BATCHES,
    PREFIX,
    ROUTES,
    SINGLE_KINDS,
    batch_subject,
    token,
)

MOST_EVENTS = 1 << 16
"""How many events a batch holds by default: as many as fit."""

_MOST_BYTES = 1_000_000
_MOST_INFLATED_BYTES = 64 * _MOST_BYTES
# What surrounds a payload takes about this.
_AROUND_BYTES = 48
_LEVEL = 6
_SHORTEST_DEFLATED = 200
_RAW_ID = re.compile(r"[0-9a-f]{32}")


# --- packing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """A message for the log, and how many of the envelopes it holds."""

    envelope: Envelope
    events: int


def packed(envelopes: Sequence[Envelope], *, most_events: int = MOST_EVENTS) -> list[PackedEntry]:
    """Put neighbours of one cause into batches, in order.

    An event alone stays an entry of its own, unless the log takes its kind only in batches. The
    same envelopes give the same messages with the same ids.

    Parameters
    ----------
    most_events
        In one batch; a batch also ends before it would exceed a megabyte uncompressed.
    """
    entries: list[PackedEntry] = []
    for _, group in groupby(envelopes, key=_belonging):
        members = list(group)
        last_id = _last_answer_id(members)
        done = 0
        for chunk in _chunks(members, most_events):
            done += len(chunk)
            if len(chunk) == 1 and chunk[0].kind not in ONLY_IN_BATCHES:
                entries.append(PackedEntry(chunk[0], 1))
            else:
                batch = _batch(chunk, last_id, left=len(members) - done)
                entries.append(PackedEntry(batch, len(chunk)))
    return entries


def packed_for(service: str, envelope: Envelope) -> Envelope:
    """A batch of one event alone, whatever its kind, on the subject of `service`."""
    batch = _batch([envelope], _last_answer_id([envelope]), left=0)
    return replace(batch, subject=batch_subject(service))


def _belonging(envelope: Envelope) -> tuple[object, ...]:
    """What the events of a batch share; a kind that stands alone shares it with nobody."""
    if envelope.kind in SINGLE_KINDS:
        return (id(envelope),)
    its_own = not envelope.causation_id and envelope.correlation_id == envelope.event_id
    correlation_id = "" if its_own else envelope.correlation_id
    return (envelope.source, envelope.causation_id, correlation_id, its_own)


def _chunks(members: Sequence[Envelope], most_events: int) -> list[list[Envelope]]:
    chunks: list[list[Envelope]] = [[]]
    size = 0
    for envelope in members:
        taken = len(envelope.payload) + _AROUND_BYTES
        if chunks[-1] and (len(chunks[-1]) >= most_events or size + taken > _MOST_BYTES):
            chunks.append([])
            size = 0
        chunks[-1].append(envelope)
        size += taken
    return chunks


def _last_answer_id(members: Sequence[Envelope]) -> str:
    """The id that the others' derive from where these are the answers to a call, else empty."""
    first, last = members[0], members[-1].event_id
    if first.event_id == derive_id(first.causation_id, first.kind, first.index):
        return ""
    distances = range(len(members) - 1, -1, -1)
    answers = all(
        member.event_id == answer_id(last, left)
        for member, left in zip(members, distances, strict=True)
    )
    return last if answers else ""


def _batch(members: Sequence[Envelope], last_id: str, *, left: int) -> Envelope:
    first = members[0]
    kinds = list(dict.fromkeys(envelope.kind for envelope in members))
    place_of = {kind: place for place, kind in enumerate(kinds)}
    own_chain = not first.causation_id and first.correlation_id == first.event_id
    batch = EventBatch(
        causation_id=first.causation_id,
        correlation_id="" if own_chain else first.correlation_id,
        own_chain=own_chain,
        ts_event_ns=first.ts_event_ns,
        kinds=kinds,
        last_id=last_id,
        left=left,
    )
    events = BatchedEvents()
    before = -1
    for number, envelope in enumerate(members):
        event = events.events.add(
            kind=place_of[envelope.kind],
            skipped=envelope.index - before - 1,
            later_ns=envelope.ts_event_ns - first.ts_event_ns,
            trace_headers=envelope.trace_headers,
            payload=envelope.payload,
        )
        before = envelope.index
        if envelope.event_id == _derived_id(
            batch, envelope.kind, envelope.index, len(members) - 1 - number
        ):
            continue
        if _RAW_ID.fullmatch(envelope.event_id):
            event.event_id = bytes.fromhex(envelope.event_id)
        else:
            event.other_id = envelope.event_id
    plain = events.SerializeToString(deterministic=True)
    deflated = zlib.compress(plain, _LEVEL) if len(plain) >= _SHORTEST_DEFLATED else plain
    if len(deflated) < len(plain):
        batch.deflated = deflated
    else:
        batch.plain.CopyFrom(events)
    ids = "\x1f".join(envelope.event_id for envelope in members)
    return Envelope(
        event_id=hashlib.sha256(ids.encode()).hexdigest()[:32],
        kind=BATCH_KIND,
        source=first.source,
        subject=batch_subject(first.source),
        causation_id=first.causation_id,
        correlation_id=batch.correlation_id,
        index=first.index,
        ts_event_ns=first.ts_event_ns,
        payload=batch.SerializeToString(deterministic=True),
        trace_headers=first.trace_headers,
    )


def _derived_id(batch: EventBatch, kind: str, index: int, behind: int) -> str:
    """The id of an event that states none; `behind` events follow it in the batch."""
    if batch.last_id:
        return answer_id(batch.last_id, batch.left + behind)
    return derive_id(batch.causation_id, kind, index) if batch.causation_id else ""


# --- unpacking --------------------------------------------------------------------------------


def is_batch(entry: StoredEntry) -> bool:
    """Whether `entry` holds several events."""
    return entry.subject.startswith(_BATCH_HEAD)


def unpacked(entry: StoredEntry, kinds: Container[str] | None = None) -> tuple[StoredEntry, ...]:
    """The events of an entry in order, each as if it had been stored alone; itself, if it is one.

    They have its `seq`, their `place` in it, and their own subjects and headers.

    Parameters
    ----------
    kinds
        Which events of a batch are wanted; None for all.

    Raises
    ------
    ContractError
        It is a batch that cannot be read. One event of it that cannot be read raises when it is
        decoded itself.
    """
    if not is_batch(entry):
        return (entry,)
    source = entry.envelope().source
    made = _remembered if len(entry.payload) <= _REMEMBERED_BYTES else _Unpacking
    return made(entry.payload, entry.subject, entry.seq, entry.stored_ns, source).events(kinds)


class _Unpacking:
    """A batch that is taken apart: each event of it when it is first wanted."""

    def __init__(self, payload: bytes, subject: str, seq: int, stored_ns: int, source: str) -> None:
        self._batch = _read(payload, subject)
        self._subject, self._seq, self._stored_ns = subject, seq, stored_ns
        self._source = source
        self._inside: BatchedEvents | None = None
        self._found: dict[int, StoredEntry] = {}

    def events(self, kinds: Container[str] | None) -> tuple[StoredEntry, ...]:
        """Its events of these kinds, in order."""
        wanted = [kinds is None or kind in kinds for kind in self._batch.kinds]
        if not any(wanted):
            return ()
        inside = self._inside
        if inside is None:
            inside = _events_of(self._batch, self._subject)
            if inside.ByteSize() <= _REMEMBERED_INFLATED_BYTES:
                self._inside = inside
        found: list[StoredEntry] = []
        index = -1
        last = len(inside.events) - 1
        for place, event in enumerate(inside.events):
            index += event.skipped + 1
            if event.kind >= len(wanted):
                raise ContractError(self._subject, f"event {place} is of no kind of the batch")
            if not wanted[event.kind]:
                continue
            stored = self._found.get(place)
            if stored is None:
                stored = self._entry(event, place, index, last - place)
                if self._inside is not None:
                    self._found[place] = stored
            found.append(stored)
        return tuple(found)

    def _entry(self, event: BatchedEvent, place: int, index: int, behind: int) -> StoredEntry:
        batch = self._batch
        kind = batch.kinds[event.kind]
        if event.event_id:
            event_id = event.event_id.hex()
        else:
            event_id = event.other_id or _derived_id(batch, kind, index, behind)
        if not event_id:
            raise ContractError(self._subject, f"event {place} has no id")
        subject, job_id = _routed(kind, event.payload)
        envelope = Envelope(
            event_id=event_id,
            kind=kind,
            source=self._source,
            subject=subject,
            causation_id=batch.causation_id,
            correlation_id=event_id if batch.own_chain else batch.correlation_id,
            index=index,
            ts_event_ns=batch.ts_event_ns + event.later_ns,
            payload=event.payload,
            job_id=job_id,
            trace_headers=dict(event.trace_headers) if event.trace_headers else {},
            stored_ns=self._stored_ns,
            carrier=self._subject.removeprefix(_BATCH_HEAD),
        )
        return StoredEntry(
            seq=self._seq,
            stored_ns=self._stored_ns,
            subject=envelope.subject,
            headers=CarriedHeaders(envelope),
            payload=event.payload,
            place=place,
        )


# Services in one process read the same batches one after the other, and all that is made of them is
# frozen. At most 4 MiB of payloads are kept, and 16 MiB of what they inflate to.
_REMEMBERED_BYTES, _REMEMBERED_INFLATED_BYTES, _REMEMBERED_BATCHES = 16_384, 65_536, 256


@lru_cache(maxsize=_REMEMBERED_BATCHES)
def _remembered(payload: bytes, subject: str, seq: int, stored_ns: int, source: str) -> _Unpacking:
    return _Unpacking(payload, subject, seq, stored_ns, source)


def events_in(entry: StoredEntry) -> int:
    """How many events an entry holds, of whatever kinds; 1 where that cannot be read."""
    try:
        if not is_batch(entry):
            return 1
        return len(_events_of(_read(entry.payload, entry.subject), entry.subject).events)
    except ContractError:
        return 1


def repacked(entry: StoredEntry, events: Sequence[StoredEntry]) -> StoredEntry:
    """The batch `entry` with other events in it, which belong together as its own do.

    Raises
    ------
    ContractError
        They do not, or an envelope of theirs cannot be read.
    """
    envelopes = [event.envelope() for event in events]
    if not envelopes or len({_belonging(envelope) for envelope in envelopes}) != 1:
        raise ContractError(entry.subject, "its events must have one cause")
    batch = _batch(envelopes, _last_answer_id(envelopes), left=0)
    return StoredEntry(
        seq=entry.seq,
        stored_ns=entry.stored_ns,
        subject=entry.subject,
        headers=entry.headers,
        payload=batch.payload,
    )


def _read(payload: bytes, where: str) -> EventBatch:
    try:
        return EventBatch.FromString(payload)
    except DecodeError as error:
        raise ContractError(where, f"{len(payload)} bytes that are no EventBatch") from error


def _events_of(batch: EventBatch, where: str) -> BatchedEvents:
    if not batch.deflated:
        return batch.plain
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(batch.deflated, _MOST_INFLATED_BYTES)
        if not inflater.eof:
            raise ContractError(
                where, f"inflates to more than {_MOST_INFLATED_BYTES} bytes or ends early"
            )
        return BatchedEvents.FromString(plain)
    except (zlib.error, DecodeError) as error:
        raise ContractError(where, f"its events cannot be read: {error}") from error


def _routed(kind: str, payload: bytes) -> tuple[str, str]:
    """Where the event would be published alone, and its job; the kind's head where it is unreadable."""
    head = PREFIX + kind
    names = _routing_fields(kind)
    message_type = message_type_of_kind(kind)
    if not names or message_type is None:
        return head, ""
    try:
        message = message_type.FromString(payload)
        values = {name: str(field(message)) for name, field in names}
        subject = head + "".join(f".{token(value)}" for value in values.values())
    except (DecodeError, ContractError):
        return head, ""
    jobs = (value for name, value in values.items() if name.rpartition(".")[2] == "job_id")
    return subject, next(jobs, "")


@lru_cache(maxsize=256)
def _routing_fields(kind: str) -> tuple[tuple[str, attrgetter[str]], ...]:
    event_type = EVENT_TYPES.get(kind)
    fields = () if event_type is None else ROUTES[event_type].fields
    return tuple((name, attrgetter(name)) for name in fields)


_BATCH_HEAD = f"{PREFIX}{BATCH_KIND}."
