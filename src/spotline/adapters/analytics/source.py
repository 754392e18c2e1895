"""Spotline's own event stream as a Faust topic: what is stored is read as it is.

events = event_topic(app, [QuoteObserved, SlotOpened], name="market")

@app.agent(events)
async def watch(stream):
    async for entry in stream:
        for sourced in entry.events:
            print(sourced.seq, sourced.event)

An entry is one message of Faust's, with one offset, whether it holds one event or a batch: it is
acknowledged when all of its events are done, and taken again with all of them otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import faust
import structlog
from faust.exceptions import ValueDecodeError
from faust.types import AppT, Message

from spotline.adapters.faust.messages import StreamMessage
from spotline.adapters.faust.topics import STREAMS, SUBJECTS
from spotline.contracts.batch import is_batch, unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import OPERATOR, Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.publishers import why_forged
from spotline.contracts.subjects import KINDS, stream_name, subjects_with
from spotline.domain.events.event import Event

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SourcedEvent:
    """An event, and where it was stored: `partition`, `seq` and `place` name it for good."""

    event: Event
    partition: int
    entry: StoredEntry

    @property
    def seq(self) -> int:
        """The order of the partition's log; Faust's offset."""
        return self.entry.seq

    @property
    def place(self) -> int:
        """Its place among the events of that entry."""
        return self.entry.place

    @property
    def stored_ns(self) -> int:
        """When the broker stored it, in nanoseconds since 1970."""
        return self.entry.stored_ns

    @property
    def subject(self) -> str:
        """What it was published on."""
        return self.entry.subject

    @property
    def headers(self) -> Mapping[str, str]:
        """The CloudEvents headers and those of its trace."""
        return self.entry.headers

    @property
    def event_id(self) -> str:
        """Its id, which a second publishing shares."""
        return self.entry.headers["ce-id"]

    def envelope(self) -> Envelope:
        """What surrounded it."""
        return self.entry.envelope()


@dataclass(frozen=True, slots=True)
class SourcedEntry:
    """An entry of the log, and those of its events that are wanted and can be read."""

    events: tuple[SourcedEvent, ...]
    seq: int
    stored_ns: int


@dataclass(slots=True)
class SourceCounters:
    """What came out of an event topic since the process started.

    `read` and `rejected` are events, `unreadable` entries of which nothing could be read.
    """

    read: int = 0
    rejected: int = 0
    unreadable: int = 0


class _EventSchema(faust.Schema):  # type: ignore[type-arg]
    """Decodes with the protobuf codec; counts."""

    def __init__(self, counters: SourceCounters, kinds: frozenset[str]) -> None:
        super().__init__(key_type=bytes, value_type=bytes)
        self.counters = counters
        self.kinds = kinds

    def compile(self, app: AppT, **_: Any) -> Callable[..., Awaitable[Any]]:
        """The function that makes a Faust event of a message."""
        create_event = app.create_event
        counters, kinds = self.counters, self.kinds

        async def decode(message: StreamMessage, *, propagate: bool = False) -> Any:
            headers: Any = message.headers
            entry = StoredEntry(
                seq=message.offset,
                stored_ns=message.stored_ns,
                subject=(message.key or b"").decode(),
                headers={name: value.decode() for name, value in headers},
                payload=message.value or b"",
            )
            try:
                events = _first_told(unpacked(entry, kinds))
                sourced = [
                    SourcedEvent(_believed(held), message.partition, held) for held in events
                ]
            except ContractError as error:
                if not is_batch(entry):
                    raise ValueDecodeError(str(error)) from error
                sourced = _readable(entry, kinds, message.partition, counters)
            counters.read += len(sourced)
            value = SourcedEntry(tuple(sourced), entry.seq, entry.stored_ns)
            return create_event(message.key, value, headers, message)

        return decode


def _first_told(events: Sequence[StoredEntry]) -> list[StoredEntry]:
    """Without those that are published again for a service that had parked them."""
    return [held for held in events if held.envelope().source != OPERATOR]


def _believed(held: StoredEntry) -> Event:
    """The event, where its source may publish it; `ContractError` where not."""
    event = event_of(held)
    forged = why_forged(event, held.envelope())
    if forged is not None:
        field, expected, found = forged
        raise ContractError(held.subject, f"{field} must be {expected}, was {found}")
    return event


def _readable(
    batch: StoredEntry, kinds: frozenset[str], partition: int, counters: SourceCounters
) -> list[SourcedEvent]:
    """What can be read of a batch of which something cannot."""
    try:
        events = _first_told(unpacked(batch, kinds))
    except ContractError as error:
        raise ValueDecodeError(str(error)) from error
    sourced = []
    for held in events:
        try:
            sourced.append(SourcedEvent(_believed(held), partition, held))
        except ContractError as error:
            counters.rejected += 1
            _tell_rejected(partition, held.seq, held.subject, str(error))
    return sourced


def _tell_rejected(partition: int, seq: int, subject: str, reason: str) -> None:
    _log.error("event_rejected", partition=partition, seq=seq, subject=subject, reason=reason)


class EventTopic(faust.Topic):
    """A topic of `SourcedEntry`; made by `event_topic`.

    A message that breaks the contract is counted, logged and passed over: the service that
    publishes it, or the one that is too old to read it, is to be mended, and the log keeps it.
    """

    @property
    def counters(self) -> SourceCounters:
        """What was read and rejected, by all agents of the topic."""
        schema: Any = self.schema
        counters: SourceCounters = schema.counters
        return counters

    async def on_value_decode_error(self, exc: Exception, message: Message) -> None:
        """Count and log; the message is acknowledged already."""
        self.counters.rejected += 1
        self.counters.unreadable += 1
        subject = (message.key or b"").decode(errors="replace")
        _tell_rejected(message.partition, message.offset, subject, str(exc))


def event_topic(
    app: AppT,
    event_types: Iterable[type[Event]],
    *,
    name: str,
    partitions: int = 1,
    first_partition: int = 0,
) -> EventTopic:
    """Read the events of some types, from the beginning of every partition's log on.

    Parameters
    ----------
    event_types
        Which events; all of a type are read, in the order of the log.
    name
        Of the topic: how far it was read is committed under it. Read on under the same name with
        more types, and only later events of the new ones will come.
    partitions
        How many partitions' logs are read.
    first_partition
        Which one is the topic's partition 0.
    """
    wanted = tuple(event_types)
    kinds = frozenset(KINDS[event_type] for event_type in wanted)
    topic = EventTopic(
        app,
        topics=[name],
        schema=_EventSchema(SourceCounters(), kinds),
        partitions=partitions,
        config={
            STREAMS: [stream_name(first_partition + p) for p in range(partitions)],
            SUBJECTS: sorted(subjects_with(wanted)),
        },
    )
    return topic
