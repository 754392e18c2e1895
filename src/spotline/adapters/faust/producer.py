"""Faust's producer on JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import structlog
from aiokafka.partitioner import DefaultPartitioner  # type: ignore[import-untyped]
from faust.exceptions import ImproperlyConfigured, NotReady, ProducerSendError
from faust.transport import base
from faust.types import TP, RecordMetadata
from mode import Seconds, Service, want_seconds

from spotline.adapters.faust import headers as wire
from spotline.adapters.faust.bucket import WRONG_LAST_SEQUENCE
from spotline.adapters.faust.changelog import ChangelogBuffer, Fences
from spotline.adapters.faust.names import LONGEST_KEY_BYTES, subject_of
from spotline.adapters.faust.publisher import Publisher, PublishRefused
from spotline.adapters.faust.topics import TopicStreams

_log = structlog.get_logger(__name__)

# A deletion is told for this long to those who read a changelog on from where they were.
_TOMBSTONE_TTL = "24h"
# An app that stops while the server is away does not wait for it to come back.
_PATIENCE_WHEN_STOPPING_S = 5.0


class Producer(base.Producer):
    """Stores messages with many on their way at once."""

    def __post_init__(self) -> None:
        transport: Any = self.transport
        self._session = transport.session
        self._topics = transport.topics
        self.fences: Fences = transport.fences
        self.changes: ChangelogBuffer = transport.changes
        self._options = transport.options
        self._partition_of = self.partitioner or DefaultPartitioner()
        self._publisher = Publisher(self._session, patience_s=self.request_timeout)
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """Why something was not stored, ever: from then on nothing may be committed."""
        return self._failure

    async def on_start(self) -> None:
        """Connect."""
        await self._session.open()
        await super().on_start()

    async def on_stop(self) -> None:
        """Store what is left, and disconnect."""
        await super().on_stop()
        self._publisher.close()
        await self._session.close()

    @Service.task
    async def _publish(self) -> None:
        await self._publisher.run()

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Any,
        *,
        transactional_id: str | None = None,
    ) -> Awaitable[RecordMetadata]:
        """Send, and return what awaits the storing.

        Raises
        ------
        ProducerSendError
            The topic cannot be written, has no such partition, or the message is too large.
        """
        streams = self._topics.known(topic) or await self._find(topic)
        if streams.foreign:
            raise ProducerSendError(
                f"topic {topic} is made of existing streams, which are read only"
            )
        if partition is None:
            partition = self._choose(streams, key)
        elif not 0 <= partition < streams.partitions:
            raise ProducerSendError(
                f"topic {topic} has partitions 0 to {streams.partitions - 1}, was {partition}"
            )
        own: dict[str, str] = {}
        if timestamp is not None:
            own[wire.TIMESTAMP] = repr(float(timestamp))
        return await self._store(streams, TP(topic, partition), key, value, headers, own)

    async def send_and_wait(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Any,
        *,
        transactional_id: str | None = None,
    ) -> RecordMetadata:
        """Send, and wait until it is stored."""
        stored = await self.send(topic, key, value, partition, timestamp, headers)
        return await stored

    async def flush(self) -> None:
        """Wait until all that was sent, and all changes of tables, are answered.

        Whether they were stored says `failure`: Faust flushes while stopping too, where an error
        would leave it half stopped.
        """
        await self.buffer.flush()
        try:
            await self.changes.flush(self._store_change)
        except Exception as error:  # noqa: BLE001 - the next commit ends the app by it
            _log.exception("faust_changelog_not_written")
            self._failure = self._failure or error
        while not await self._publisher.drained(timeout_s=_PATIENCE_WHEN_STOPPING_S):
            if self.app.should_stop:
                self._publisher.close()

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,
        *,
        config: Mapping[str, Any] | None = None,
        retention: Seconds | None = None,
        compacting: bool | None = None,
        **_of_kafka: Any,
    ) -> None:
        """Create `topic` unless it exists; what Faust says beyond these is for Kafka."""
        await self._topics.create(
            topic,
            partitions,
            replicas=replication,
            retention_s=want_seconds(retention) if retention else None,
            compacting=bool(compacting),
            extra=config,
        )

    def key_partition(self, topic: str, key: bytes) -> TP:
        """The partition of `key`.

        Raises
        ------
        NotReady
            Nothing is known of the topic yet.
        """
        streams = self._topics.known(topic)
        if streams is None:
            raise NotReady(f"nothing is known of topic {topic} yet; declare it first")
        return TP(topic, self._choose(streams, key))

    def supports_headers(self) -> bool:
        """Whether messages can have headers: yes."""
        return True

    async def _find(self, topic: str) -> TopicStreams:
        found = await self._topics.find(topic)
        if found is not None:
            return cast(TopicStreams, found)
        conf = self.app.conf
        if not conf.topic_allow_declare:
            raise ImproperlyConfigured(
                f"topic {topic} does not exist, and topic_allow_declare is off: create it"
            )
        return cast(
            TopicStreams,
            await self._topics.create(
                topic, conf.topic_partitions, replicas=conf.topic_replication_factor
            ),
        )

    def _choose(self, streams: TopicStreams, key: bytes | None) -> int:
        partitions = list(range(streams.partitions))
        return int(self._partition_of(key, partitions, partitions))

    async def _store_change(
        self, table: Any, partition: int, key: bytes | None, value: bytes | None, headers: Any
    ) -> None:
        topic = table.changelog_topic_name
        streams = self._topics.known(topic) or await self._find(topic)
        stored = await self._store(streams, TP(topic, partition), key, value, headers, {})
        stored.add_done_callback(lambda answer: _note_persisted(table, answer))

    async def _store(
        self,
        streams: TopicStreams,
        partition: TP,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        own: dict[str, str],
    ) -> asyncio.Future[RecordMetadata]:
        if value is None:
            own[wire.NO_VALUE] = "1"
            if streams.compacting:
                own["Nats-TTL"] = _TOMBSTONE_TTL
        if key is not None and len(key) > LONGEST_KEY_BYTES:
            own[wire.KEY] = wire.base64_text(key)
        condition: dict[str, str] | None = None
        if self._is_fenced(partition.topic):
            condition = self.fences.condition(partition)
            if condition is None:
                self.fences.refused(partition, None)
                return _not_mine(partition)
            own.update(condition)
        if headers:
            own.update(wire.encode_headers(headers))
        seq = await self._publisher.send(
            subject_of(partition.topic, partition.partition, key), value or b"", own or None
        )
        metadata: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        seq.add_done_callback(lambda done: self._note_stored(done, partition, condition, metadata))
        return metadata

    def _is_fenced(self, topic: str) -> bool:
        table: Any = self.app.tables._changelogs.get(topic)  # type: ignore[attr-defined]
        return table is not None and not table.is_global and not table.use_partitioner

    def _note_stored(
        self,
        seq: asyncio.Future[int],
        partition: TP,
        condition: dict[str, str] | None,
        metadata: asyncio.Future[RecordMetadata],
    ) -> None:
        error = seq.exception()
        if error is None:
            if not metadata.done():
                metadata.set_result(
                    RecordMetadata(
                        partition.topic, partition.partition, partition, seq.result(), None, 0
                    )
                )
            return
        if isinstance(error, PublishRefused) and error.code in WRONG_LAST_SEQUENCE and condition:
            # The next owner goes on at what was committed, and makes this change itself.
            if self.fences.condition(partition) == condition:
                _log.warning(
                    "faust_changelog_fenced", topic=partition.topic, partition=partition.partition
                )
            self.fences.refused(partition, condition)
        else:
            self._failure = self._failure or error
        if not metadata.done():
            metadata.set_exception(error)
            metadata.exception()  # retrieved: `flush` tells of it


def _not_mine(partition: TP) -> asyncio.Future[RecordMetadata]:
    """What becomes of a change that comes too late: its partition is lost."""
    refused: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    refused.set_exception(ProducerSendError(f"{partition} is not this worker's to write"))
    refused.exception()  # retrieved: Faust does not ask
    return refused


def _note_persisted(table: Any, stored: asyncio.Future[RecordMetadata]) -> None:
    if stored.cancelled() or stored.exception() is not None:
        return
    result = stored.result()
    table.data.set_persisted_offset(result.topic_partition, result.offset)
