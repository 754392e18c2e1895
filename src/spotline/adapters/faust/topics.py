"""Topics as JetStream streams: creating them, and what is known of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import nats.js.errors
import structlog
from faust.exceptions import ImproperlyConfigured
from faust.types import AppT
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from spotline.adapters.faust.declared import COMPACTING, PARTITIONS, topic_stream
from spotline.adapters.faust.names import partition_filter, stream_name
from spotline.adapters.faust.session import Session

_log = structlog.get_logger(__name__)

# Options of `app.topic(..., config={...})` that make a topic of streams that exist.
STREAMS = "nats.streams"
SUBJECTS = "nats.subjects"

_NAME_IN_USE = 10058


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStreams:
    """Where a topic's messages are.

    `streams` and `subjects` have an element per partition: the stream, and the filter for its
    messages. `foreign` streams are read as they are: the key is the subject, and nothing is sent.
    """

    topic: str
    streams: tuple[str, ...]
    subjects: tuple[tuple[str, ...], ...]
    compacting: bool = False
    foreign: bool = False

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self.streams)


def own_streams(topic: str, partitions: int, *, compacting: bool) -> TopicStreams:
    """A topic of this transport: one stream, partitions by subject."""
    return TopicStreams(
        topic=topic,
        streams=(stream_name(topic),) * partitions,
        subjects=tuple((partition_filter(topic, p),) for p in range(partitions)),
        compacting=compacting,
    )


def foreign_streams(topic: str, config: Mapping[str, Any]) -> TopicStreams | None:
    """A topic made of existing streams, one per partition; None if `config` names none.

    Raises
    ------
    ImproperlyConfigured
        The options are malformed.
    """
    if STREAMS not in config and SUBJECTS not in config:
        return None
    streams, subjects = _names(config.get(STREAMS)), _names(config.get(SUBJECTS))
    if not streams or not subjects:
        raise ImproperlyConfigured(
            f"topic {topic}: config must have both {STREAMS} (a stream, or one per partition) and "
            f"{SUBJECTS} (filters, such as orders.>), was {dict(config)!r}"
        )
    return TopicStreams(
        topic=topic, streams=streams, subjects=(subjects,) * len(streams), foreign=True
    )


class Topics:
    """The topics that were met so far, and how to meet more."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, TopicStreams] = {}

    def known(self, topic: str) -> TopicStreams | None:
        """What is known without asking."""
        return self._known.get(topic)

    def learn(self, streams: TopicStreams) -> None:
        """Note a topic that is not the transport's own."""
        self._known[streams.topic] = streams

    async def find(self, topic: str) -> TopicStreams | None:
        """What the server knows of `topic`, None if there is no such."""
        known = self._known.get(topic)
        if known is not None:
            return known
        try:
            info = await self._session.ask(lambda js: js.stream_info(stream_name(topic)))
        except nats.js.errors.NotFoundError:
            return None
        self._known[topic] = found = _read(topic, info.config)
        return found

    async def create(
        self,
        topic: str,
        partitions: int,
        *,
        replicas: int = 1,
        retention_s: float | None = None,
        compacting: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> TopicStreams:
        """Create `topic` unless it exists; what exists stays as it is, as with Kafka."""
        foreign = foreign_streams(topic, extra or {})
        if foreign is not None:
            self.learn(foreign)
            return foreign
        found = await self.find(topic)
        if found is None:
            config = topic_stream(
                topic,
                partitions,
                replicas=replicas,
                retention_s=retention_s,
                compacting=compacting,
            )

            async def add(js: JetStreamContext) -> None:
                try:
                    await js.add_stream(config)
                except nats.js.errors.BadRequestError as error:
                    if error.err_code != _NAME_IN_USE:
                        raise  # else another worker was faster

            await self._session.ask(add)
            found = await self.find(topic)
        if found is None:
            raise ImproperlyConfigured(f"the stream of topic {topic} vanished when it was created")
        if found.partitions != partitions:
            _log.warning(
                "faust_topic_has_other_partitions",
                topic=topic,
                partitions=found.partitions,
                wanted=partitions,
            )
        return found

    async def first_offset(self, streams: TopicStreams, partition: int) -> int | None:
        """The offset of the first message of a partition, None if it is empty."""
        stream = streams.streams[partition]

        async def first(subject: str) -> int | None:
            try:
                message = await self._session.ask(
                    lambda js: js.get_msg(stream, seq=1, subject=subject, next=True)
                )
            except nats.js.errors.NotFoundError:
                return None
            return message.seq

        return min(await _all(map(first, streams.subjects[partition])), default=None)

    async def last_offset(self, streams: TopicStreams, partition: int) -> int | None:
        """The offset of the last message of a partition, None if it is empty."""
        stream = streams.streams[partition]

        async def last(subject: str) -> int | None:
            try:
                message = await self._session.ask(lambda js: js.get_msg(stream, subject=subject))
            except nats.js.errors.NotFoundError:
                return None
            return message.seq

        return max(await _all(map(last, streams.subjects[partition])), default=None)


async def _all(questions: Iterable[Any]) -> list[int]:
    return [answer for answer in await asyncio.gather(*questions) if answer is not None]


def _read(topic: str, config: StreamConfig) -> TopicStreams:
    metadata = config.metadata or {}
    try:
        partitions = int(metadata[PARTITIONS])
    except (KeyError, ValueError):
        raise ImproperlyConfigured(
            f"the stream {config.name} exists, but is no topic of this transport"
        ) from None
    return own_streams(topic, partitions, compacting=metadata.get(COMPACTING) == "true")


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(name) for name in value or ())


async def streams_of(app: AppT, topics: Topics, topic: str) -> TopicStreams:
    """Find the streams of `topic`, declared where they may be.

    Raises
    ------
    ImproperlyConfigured
        The topic does not exist, and the app may not declare it.
    """
    channels: list[Any] = [channel for channel in app.topics if topic in cast(Any, channel).topics]
    for channel in channels:
        foreign = foreign_streams(topic, channel.config)
        if foreign is not None:
            topics.learn(foreign)
            return foreign
    found = await topics.find(topic)
    if found is None:
        if channels and app.conf.topic_allow_declare:
            await channels[0].declare()
            found = await topics.find(topic)
        if found is None:
            raise ImproperlyConfigured(
                f"topic {topic} does not exist, and topic_allow_declare is off: create it"
            )
    return found
