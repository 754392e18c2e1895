"""Changes of tables, written once per key and commit, by the owner of the partition only.

Faust writes a changelog entry per change. Only the last of a key survives compaction, and nothing
may be committed before it is stored, so it is enough to write the last one when offsets are about
to be committed. Between two commits a table is ahead of its changelog: after a crash the same
events come again, to values that may have seen some of them. Hence the rule for exact tables:
keep the last applied offset in the value, and skip what is not after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import nats.js.errors
import structlog
from faust.stores.memory import Store as MemoryStore
from faust.streams import current_event
from faust.tables.table import Table
from faust.types import TP

from spotline.adapters.faust.bucket import WRONG_LAST_SEQUENCE
from spotline.adapters.faust.messages import StreamMessage
from spotline.adapters.faust.names import fence_subject, stream_name
from spotline.adapters.faust.offsets import Fenced
from spotline.adapters.faust.session import Session

_log = structlog.get_logger(__name__)

# While serialising, give others the loop after this many entries.
_YIELD_EVERY = 500
_EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
_IMMUTABLE = frozenset({int, float, str, bytes, bool, type(None)})


class StaleEvent(Exception):
    """An event was still being handled long after its partition was lost; it comes again."""


class _Deleted:
    pass


_DELETED = _Deleted()


class _Serialised(NamedTuple):
    """A mutable value, as it was when it was set: it may be half changed when it is written."""

    value: bytes | None
    headers: Any


class ChangelogBuffer:
    """Collects the changes of tables until `take`.

    A value of an immutable type is kept as it is; any other is serialised when it is set. Only
    tables in memory: what a store on disk keeps of changes that were never written is not undone.
    """

    def __init__(self) -> None:
        self._changes: dict[Table[Any, Any], dict[tuple[int, Any], Any]] = {}
        self._attached: set[int] = set()
        self._flushing = asyncio.Lock()
        # The change that is being handed over; None if it was discarded meanwhile.
        self._in_hand: tuple[Table[Any, Any], tuple[int, Any]] | None = None

    def attach(self, table: Any) -> None:
        """Take over what `table` does with a change, if it is an ordinary one."""
        kind = type(table)
        if (
            id(table) in self._attached
            or kind.on_key_set is not Table.on_key_set
            or kind.on_key_del is not Table.on_key_del
            or table.use_partitioner
            or not isinstance(table.data, MemoryStore)
        ):
            return
        self._attached.add(id(table))
        self._changes.setdefault(table, {})
        # Faust notes this only for keys that were recovered.
        partition_of = table.data._key_partition
        partition_for_key = table.partition_for_key
        expires = table._should_expire_keys()
        note_ttl, forget_ttl = table._maybe_set_key_ttl, table._maybe_del_key_ttl
        note_set, note_del = table._sensor_on_set, table._sensor_on_del

        def on_key_set(key: Any, value: Any) -> None:
            _refuse_stale(table)
            partition = partition_for_key(key)
            self._changes[table][partition, key] = (
                value if _is_immutable(value) else _serialised(table, value)
            )
            partition_of[key] = partition
            if expires:
                note_ttl(key, partition)
            note_set(table, key, value)

        def on_key_del(key: Any) -> None:
            _refuse_stale(table)
            partition = partition_for_key(key)
            self._changes[table][partition, key] = _DELETED
            partition_of.pop(key, None)
            forget_ttl(key, partition)
            note_del(table, key)

        table.on_key_set = on_key_set
        table.on_key_del = on_key_del

    def discard(self, partitions: Iterable[TP]) -> None:
        """Forget changes of partitions that somebody else owns now."""
        gone = set(partitions)
        for table, changes in self._changes.items():
            topic = table.changelog_topic_name
            for where in [change for change in changes if TP(topic, change[0]) in gone]:
                del changes[where]
            in_hand = self._in_hand
            if in_hand is not None and in_hand[0] is table and TP(topic, in_hand[1][0]) in gone:
                self._in_hand = None

    def forget(self, partitions: Iterable[TP]) -> None:
        """Forget all that tables hold of partitions, which are to be recovered if they come back.

        A table is ahead of its changelog. Were the rest of it kept when a partition is lost, the
        same events would find themselves applied, and never be written.
        """
        gone = set(partitions)
        self.discard(gone)
        for table in self._changes:
            topic = table.changelog_topic_name
            store: Any = table.data
            for key, partition in list(store._key_partition.items()):
                if TP(topic, partition) in gone:
                    store.data.pop(key, None)
                    del store._key_partition[key]

    async def flush(self, send: Callable[..., Any]) -> None:
        """Hand every change to `await send(table, partition, key, value, headers)`.

        What was not handed over, because that failed or was cancelled, is kept for the next time.
        """
        async with self._flushing:
            for table, changes in list(self._changes.items()):
                for count, where in enumerate(list(changes), 1):
                    await self._hand_over(table, where, send)
                    if count % _YIELD_EVERY == 0:
                        await asyncio.sleep(0)

    async def _hand_over(
        self, table: Table[Any, Any], where: tuple[int, Any], send: Callable[..., Any]
    ) -> None:
        changes = self._changes[table]
        if where not in changes:
            return  # discarded meanwhile
        value = changes.pop(where)
        self._in_hand = table, where
        is_sent = False
        try:
            partition, key = where
            topic: Any = table.changelog_topic
            raw_key, headers = topic.prepare_key(key, table.key_serializer, None, {})
            if value is _DELETED:
                raw = None
            elif type(value) is _Serialised:
                raw, headers = value
            else:
                raw, headers = topic.prepare_value(value, table.value_serializer, None, headers)
            await send(table, partition, raw_key, raw, headers)
            is_sent = True
        finally:
            if not is_sent and self._in_hand is not None:
                changes.setdefault(where, value)
            self._in_hand = None


def _refuse_stale(table: Table[Any, Any]) -> None:
    """Keep an event of an assignment before out of what was recovered since."""
    event = current_event()
    if event is None:
        return
    message = event.message
    if type(message) is StreamMessage and message.generation_id != table.app.consumer_generation_id:
        raise StaleEvent(
            f"{message.tp} was given away while its event at {message.offset} was being handled; "
            f"what it changes in table {table.name} is dropped, and the event comes again"
        )


def _serialised(table: Table[Any, Any], value: Any) -> _Serialised:
    topic: Any = table.changelog_topic
    return _Serialised(*topic.prepare_value(value, table.value_serializer, None, {}))


def _is_immutable(value: Any) -> bool:
    kind = type(value)
    if kind in _IMMUTABLE:
        return True
    return kind is tuple and all(type(part) in _IMMUTABLE for part in value)


class Fences:
    """Marks in changelog streams that say who writes a partition now.

    An owner stores a mark and then writes on condition that its mark is still the last. The
    server checks that with every write, so nothing of an owner before can follow the mark. A mark
    replaces only one of an earlier epoch, so an owner that is late cannot shut out the next.

    Attributes
    ----------
    on_refused
        Called with a partition of which a change was refused: it cannot be written any more, and
        nothing of it may be committed until it was claimed and recovered again.
    """

    on_refused: Callable[[TP], None] | None = None

    def __init__(self, session: Session) -> None:
        self._session = session
        self._conditions: dict[TP, dict[str, str]] = {}
        self._epochs: dict[TP, int] = {}

    def condition(self, partition: TP) -> dict[str, str] | None:
        """The headers of a write, None if the partition is not this worker's."""
        return self._conditions.get(partition)

    async def raise_(self, partition: TP, epoch: int) -> None:
        """Shut out the one that wrote `partition` before.

        Raises
        ------
        Fenced
            The partition has an owner of a later epoch.
        """
        if self._epochs.get(partition) == epoch:
            return
        subject = fence_subject(*partition)
        while True:
            last_epoch, last_seq = await self._last(partition)
            if last_epoch > epoch:
                raise Fenced(f"{partition} is written in epoch {last_epoch}, mine is {epoch}")
            seq = await self._replace(subject, epoch, last_seq)
            if seq is not None:
                break
        self._epochs[partition] = epoch
        self._conditions[partition] = {
            _EXPECTED_SEQUENCE: str(seq),
            "Nats-Expected-Last-Subject-Sequence-Subject": subject,
        }

    async def _last(self, partition: TP) -> tuple[int, int]:
        """The epoch and the sequence of the last fence, zeros if there is none."""
        stream, subject = stream_name(partition.topic), fence_subject(*partition)
        try:
            found = await self._session.ask(lambda js: js.get_msg(stream, subject=subject))
        except nats.js.errors.NotFoundError:
            return 0, 0
        return int(found.data or b"0"), found.seq or 0

    async def _replace(self, subject: str, epoch: int, last_seq: int) -> int | None:
        """Store a fence on condition that the last one is still at `last_seq`, else None."""
        # Retention is for entries, not for the fence between them.
        headers = {"Nats-TTL": "never", _EXPECTED_SEQUENCE: str(last_seq)}
        try:
            ack = await self._session.ask(
                lambda js: js.publish(subject, str(epoch).encode(), headers=headers)
            )
        except nats.js.errors.BadRequestError as error:
            if error.err_code in WRONG_LAST_SEQUENCE:
                return None  # somebody else's, or this one whose answer was lost
            raise
        return ack.seq

    def refused(self, partition: TP, condition: dict[str, str] | None) -> None:
        """Note that a change was refused that was sent on `condition`, or for want of one."""
        if self._conditions.get(partition) != condition:
            return  # of a lease before
        self.forget([partition])
        if self.on_refused is not None:
            self.on_refused(partition)

    def forget(self, partitions: Iterable[TP]) -> None:
        """Write no more to `partitions`."""
        for partition in partitions:
            self._conditions.pop(partition, None)
            self._epochs.pop(partition, None)
