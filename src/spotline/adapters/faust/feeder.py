"""From partition readers into the streams of an app, and how far that went."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, MutableSet
from typing import Any, cast

import structlog
from faust.types import TP, AppT

from spotline.adapters.faust.conductor import Conductor
from spotline.adapters.faust.messages import message_of
from spotline.adapters.faust.progress import Progress
from spotline.adapters.faust.reader import PartitionReader, Record
from spotline.adapters.faust.session import Session
from spotline.adapters.faust.topics import Topics, TopicStreams
from spotline.contracts.errors import ProviderUnavailable

_log = structlog.get_logger(__name__)

# So many messages of one partition, then those of the next.
_TURN = 256
_RETRY_S = 0.2


class Feeder:
    """Reads partitions ahead and hands messages over, as fast as streams take them.

    Parameters
    ----------
    may_flow
        Whether messages may be handed over right now.

    Attributes
    ----------
    news
        Set when it is worth trying again.
    rejected
        Messages that could not be read, each of which was logged.
    """

    def __init__(
        self, app: AppT, session: Session, topics: Topics, *, may_flow: Callable[[], bool]
    ) -> None:
        self.news = asyncio.Event()
        self.rejected = 0
        self._app = app
        self._session = session
        self._topics = topics
        self._may_flow = may_flow
        self._positions: dict[TP, int] = {}
        self._ends: dict[TP, int] = {}
        self._readers: dict[TP, PartitionReader] = {}
        self._progress: dict[TP, Progress] = defaultdict(Progress)

    def position(self, tp: TP) -> int | None:
        """The next offset that will be handed over, None before the first seek."""
        return self._positions.get(tp)

    def end(self, tp: TP) -> int:
        """One more than the last offset that was read."""
        return self._ends.get(tp, 0)

    async def seek(self, tp: TP, offset: int) -> None:
        """Go on at `offset`; what was begun before is no longer waited for."""
        self._positions[tp] = max(offset, 1)
        self.forget(tp)
        reader = self._readers.pop(tp, None)
        if reader is not None:
            await reader.close()

    def forget(self, tp: TP) -> None:
        """Wait no longer for what streams have begun."""
        self._progress.pop(tp, None)

    def advance(self, tp: TP, acked: MutableSet[int]) -> int | None:
        """Where to go on reading once all in `acked` is done; see `Progress.advance`."""
        return self._progress[tp].advance(acked)

    async def close(self) -> None:
        """Stop reading; positions are kept."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            await reader.close()

    async def move(self, tp: TP) -> int:
        """Hand up to a turn of messages to the streams, and return how many."""
        reader = self._readers.get(tp)
        if reader is None or not reader.is_open:
            try:
                reader = await self._open(tp)
            except ProviderUnavailable as error:
                _log.warning("faust_reader_waits", topic=tp.topic, reason=str(error))
                await asyncio.sleep(_RETRY_S)
                return 0
            if not self._may_flow():
                return 0
        moved = await self._hand_over(tp, reader) if reader.records else 0
        await reader.request()
        if reader.at_end and not reader.records:
            self._note_end(tp)
        return moved

    async def _hand_over(self, tp: TP, reader: PartitionReader) -> int:
        app = self._app
        conductor = cast(Conductor, app.topics)
        # Without leases there are no partitions: Faust files all under the first.
        channels, room = conductor.readers(
            TP(tp.topic, 0) if app.client_only else tp, self.news.set
        )
        records = reader.records
        count = min(_TURN, len(records), room)
        if not count:
            return 0
        buffer = app.producer.buffer
        if buffer.size > buffer.max_messages:
            await buffer.wait_until_ebb()
        tracked = bool(channels) and app.topics.acks_enabled_for(tp.topic)
        progress, deliver = self._progress[tp], conductor.deliver
        foreign, generation_id = self._streams(tp).foreign, app.consumer_generation_id
        for moved in range(count):
            # Decoding may have waited: the flow may have stopped, or a seek replaced the reader.
            if not self._may_flow() or self._readers.get(tp) is not reader:
                return moved
            record = reader.take()
            self._positions[tp] = record.offset + 1
            if not channels:
                continue
            try:
                message = message_of(tp, record, foreign=foreign, generation_id=generation_id)
            except ValueError as error:
                self._reject(tp, record, error)
                continue
            if tracked:
                progress.deliver(record.offset)
            await deliver(message, channels)
        self._ends[tp] = records[-1].offset + 1 if records else self._positions[tp]
        app.monitor.track_tp_end_offset(tp, self._ends[tp])
        return count

    def _reject(self, tp: TP, record: Record, error: ValueError) -> None:
        """Somebody else's message on a subject of ours: not silently passed over."""
        self.rejected += 1
        _log.error(
            "faust_message_rejected",
            topic=tp.topic,
            partition=tp.partition,
            offset=record.offset,
            subject=record.subject.decode(errors="replace"),
            reason=str(error),
        )

    def _note_end(self, tp: TP) -> None:
        """While a table is recovered: no more will come, whatever was expected.

        Between asking for the last offset and reaching it, that entry may have been replaced or
        have expired.
        """
        recovery: Any = cast(Any, self._app.tables).recovery
        if not self._app.in_recovery or tp not in recovery.active_tps:
            return
        expected = recovery.active_highwaters.get(tp)
        last = self._positions.get(tp, 1) - 1
        if expected is not None and expected > last >= 0:
            recovery.active_highwaters[tp] = max(last, recovery.active_offsets.get(tp) or -1)

    async def _open(self, tp: TP) -> PartitionReader:
        reader = self._readers.get(tp)
        if reader is None:
            streams = self._streams(tp)
            reader = self._readers[tp] = PartitionReader(
                self._session,
                streams.streams[tp.partition],
                streams.subjects[tp.partition],
                next_offset=self._positions.get(tp, 1),
                on_news=self.news.set,
            )
        await reader.open()
        self._note_skipped(tp, reader.first_offset)
        return reader

    def _note_skipped(self, tp: TP, first: int) -> None:
        """Tell of messages that have expired before they were read."""
        position = self._positions.get(tp, 1)
        # A compacting topic lets go what was replaced; a reader from the start wants what is there.
        if 1 < position < first and not self._streams(tp).compacting:
            _log.warning(
                "faust_messages_expired_unread",
                topic=tp.topic,
                partition=tp.partition,
                next_offset=position,
                first_offset=first,
            )

    def _streams(self, tp: TP) -> TopicStreams:
        return cast(TopicStreams, self._topics.known(tp.topic))
