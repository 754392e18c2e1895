"""Spotline's own event stream as a Faust topic: what is stored is read as it is.

events = event_topic(app, [QuoteObserved, SlotOpened], name="market")

@app.agent(events)
async def watch(stream):
    async for sourced in stream:
        print(sourced.seq, sourced.event)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import faust
import structlog
from faust.exceptions import ValueDecodeError
from faust.types import AppT, Message

from spotline.adapters.faust.messages import StreamMessage
from spotline.adapters.faust.topics import STREAMS, SUBJECTS
from spotline.contracts.build import event_of
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import filter_of, stream_name
from spotline.domain.events.event import Event

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SourcedEvent:
    """An event, and where it was stored: `partition` and `seq` name it for good."""

    event: Event
    partition: int
    entry: StoredEntry

    @property
    def seq(self) -> int:
        """The order of the partition's log; Faust's offset."""
        return self.entry.seq

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


@dataclass(slots=True)
class SourceCounters:
    """What came out of an event topic since the process started."""

    read: int = 0
    rejected: int = 0


class _EventSchema(faust.Schema):  # type: ignore[type-arg]
    """Decodes with the protobuf codec; counts."""

    def __init__(self, counters: SourceCounters) -> None:
        super().__init__(key_type=bytes, value_type=bytes)
        self.counters = counters

    def compile(self, app: AppT, **_: Any) -> Callable[..., Awaitable[Any]]:
        """The function that makes a Faust event of a message."""
        create_event = app.create_event
        counters = self.counters

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
                event = event_of(entry)
            except ContractError as error:
                raise ValueDecodeError(str(error)) from error
            counters.read += 1
            sourced = SourcedEvent(event, message.partition, entry)
            return create_event(message.key, sourced, headers, message)

        return decode


class EventTopic(faust.Topic):
    """A topic of `SourcedEvent`; made by `event_topic`.

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
        _log.error(
            "event_rejected",
            partition=message.partition,
            seq=message.offset,
            subject=(message.key or b"").decode(errors="replace"),
            reason=str(exc),
        )


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
    filters = sorted(filter_of(event_type) for event_type in event_types)
    topic = EventTopic(
        app,
        topics=[name],
        schema=_EventSchema(SourceCounters()),
        partitions=partitions,
        config={
            STREAMS: [stream_name(first_partition + p) for p in range(partitions)],
            SUBJECTS: filters,
        },
    )
    return topic
