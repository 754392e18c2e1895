"""Faust's consumer on JetStream: reads what this worker's leases are for."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

import structlog
from faust.exceptions import ProducerSendError
from faust.transport import base
from faust.types import TP, ConsumerMessage, Message
from mode import Service

from spotline.adapters.faust.bucket import Bucket
from spotline.adapters.faust.feeder import Feeder
from spotline.adapters.faust.keeper import LeaseKeeper
from spotline.adapters.faust.names import bucket_name
from spotline.adapters.faust.offsets import Fenced, Offsets
from spotline.adapters.faust.producer import Producer
from spotline.adapters.faust.telling import tell_assignor, tell_recovery
from spotline.adapters.faust.topics import TopicStreams, streams_of
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.time_limit import time_limit

_log = structlog.get_logger(__name__)

_IDLE_S = 1.0
_RETRY_S = 0.2
_PATIENCE_WHEN_STOPPING_S = 10.0
# How long partitions wait for an event of one that was lost. After that, what it changes is refused.
_PATIENCE_WITH_EVENTS_S = 30.0


class Consumer(base.Consumer):
    """Reads partitions ahead, hands messages to streams, commits offsets."""

    def __post_init__(self) -> None:
        transport: Any = self.transport
        conf = self.app.conf
        self._session = transport.session
        self._topics = transport.topics
        self._fences = transport.fences
        self._changes = transport.changes
        self._options = transport.options
        self._bucket = Bucket(
            self._session, bucket_name(conf.id), replicas=conf.topic_replication_factor
        )
        self._offsets = Offsets(self._bucket)
        self._keeper = LeaseKeeper(
            self._session,
            self._bucket,
            name=conf.consumer_group_instance_id
            or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
            url=str(conf.canonical_url or ""),
            lease_s=self._options.lease_s,
            static=self._options.partitions,
            on_change=self._on_leases_changed,
        )
        self._subscribed: dict[str, TopicStreams] = {}
        self._assigned: frozenset[TP] | None = None
        self._lost: frozenset[TP] = frozenset()
        self._epochs: dict[int, int] = {}
        self._generation = 0
        # The generation of which offsets are being committed.
        self._committing = 0
        self._feeder = Feeder(
            self.app, self._session, self._topics, may_flow=lambda: self.flow_active
        )
        self._resuming: set[TP] = set()
        self._leases_changed = asyncio.Event()
        self._fences.on_refused = self._on_refused

    # Life

    async def on_start(self) -> None:
        """Connect."""
        await super().on_start()
        if not self._options.monitor and self.app.monitor in set(self.app.sensors):
            self.app.sensors.remove(self.app.monitor)
        await self._session.open()
        await self._bucket.open()

    async def on_stop(self) -> None:
        """Commit what is done, and let others have the partitions."""
        await super().on_stop()
        with suppress(ProviderUnavailable, TimeoutError):
            async with time_limit(self._options.lease_s):
                await self._keeper.leave()
        await self._feeder.close()
        await self._session.close()

    @Service.task
    async def _keep_leases(self) -> None:
        if not self.app.client_only:
            await self._keeper.keep()

    @Service.task
    async def _follow_leases(self) -> None:
        while not self.should_stop:
            await self._leases_changed.wait()
            self._leases_changed.clear()
            try:
                await self._rebalance()
            except (Fenced, ProviderUnavailable) as error:
                _log.warning("faust_rebalance_repeated", reason=str(error))
                await asyncio.sleep(_RETRY_S)
                self._leases_changed.set()

    # Subscribing and rebalancing

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read `topics` from now on, those partitions of them that fall to this worker."""
        subscribed = {
            topic: await streams_of(self.app, self._topics, topic) for topic in sorted(topics)
        }
        self._subscribed = subscribed
        for table in self.app.tables.values():
            if self._options.coalesce:
                self._changes.attach(table)
        if self.app.client_only:
            self._assigned = frozenset(self._all_partitions(subscribed))
            return
        self._keeper.want(
            max(
                (own.partitions for name, own in subscribed.items() if not self._is_private(name)),
                default=0,
            )
        )
        if self._assigned is not None:
            self._leases_changed.set()

    def _is_private(self, topic: str) -> bool:
        """Whether only this process reads `topic`: replies to it."""
        return bool(topic == self.app.conf.reply_to)

    def _all_partitions(self, subscribed: Mapping[str, TopicStreams]) -> Iterable[TP]:
        return (TP(name, p) for name, own in subscribed.items() for p in range(own.partitions))

    def _on_leases_changed(self) -> None:
        owned = self._keeper.owned
        gone = {p for p, epoch in self._epochs.items() if owned.get(p) != epoch}
        if gone:
            _log.warning("faust_leases_lost", worker=self._keeper.name, partitions=sorted(gone))
            self._lose(gone)
        self._leases_changed.set()

    def _on_refused(self, changelog: TP) -> None:
        """Commit no more of a partition whose changes are refused, and claim it again."""
        if changelog in self.assignment():
            self._lose({changelog.partition})
            self._leases_changed.set()

    def _lose(self, gone: set[int]) -> None:
        if gone:
            # What is lost is lost now, not when the streams have come to rest.
            self._lost |= {tp for tp in self._assigned or () if self._lease_of(tp) in gone}
            self._fences.forget(self._lost)
            # Won back, be it at once and in the same epoch, it is recovered like any other.
            self._epochs = {p: epoch for p, epoch in self._epochs.items() if p not in gone}
            self._offsets.forget(self._lost)
            self._changes.discard(self._lost)
            self.stop_flow()
            self.app.flow_control.suspend()
            self.app.flow_control.clear()

    def _lease_of(self, tp: TP) -> int | None:
        return None if self._is_private(tp.topic) else tp.partition

    async def _rebalance(self) -> None:
        if not self._subscribed or self.app.client_only or self.should_stop:
            return
        surplus = self._keeper.surplus
        epochs = {p: e for p, e in self._keeper.owned.items() if p not in surplus}
        wanted = self._partitions_for(epochs)
        if self._assigned is not None and wanted == self._assigned and epochs == self._epochs:
            return
        # Amid a recovery tables are half full: what stays is recovered like what is new.
        are_whole = self.app.tables.actives_ready
        self.app.on_rebalance_start()
        await self.on_partitions_revoked(set(self.assignment()))
        await self._finish_begun()
        # From here on what earlier events change or acknowledge is refused.
        self._generation += 1
        self.app.consumer_generation_id = self._generation
        # Also what lost partitions had acknowledged: the changes that went with it are dropped.
        for tp in self._assigned or ():
            self._feeder.forget(tp)
        kept = {tp for tp in wanted if are_whole and self._is_same_epoch(tp, epochs)}
        self._forget((self._assigned or frozenset()) - kept)
        self._assigned, self._epochs, self._lost = frozenset(), {}, frozenset()
        is_claimed = False
        try:
            await self._feeder.close()
            if surplus:
                await self._keeper.release(surplus)
            await self._claim(wanted, epochs)
            await tell_recovery(self.app, self._topics, kept)
            is_claimed = True
        finally:
            if not is_claimed:
                # The next try does not know what was kept: it claims and recovers everything.
                self._forget(wanted)
        self._assigned, self._epochs = wanted, epochs
        if any(self._keeper.owned.get(p) != epoch for p, epoch in epochs.items()):
            self._on_leases_changed()
        tell_assignor(self.app, wanted, self._keeper.group, self._subscribed)
        _log.info(
            "faust_partitions_assigned",
            worker=self._keeper.name,
            partitions=sorted(epochs),
            generation=self._generation,
        )
        await self.on_partitions_assigned(set(wanted), self._generation)

    async def _finish_begun(self) -> None:
        """Wait for events of lost partitions too, for which Faust does not.

        One that ended when its partition is this worker's again would write what it read long ago.
        """
        try:
            async with asyncio.timeout(_PATIENCE_WITH_EVENTS_S):
                await self.wait_empty()
        except TimeoutError:
            _log.warning("faust_rebalanced_amid_events", events=len(self._unacked_messages))

    def _forget(self, gone: Iterable[TP]) -> None:
        """Hold nothing of partitions any more; should they come back, they are recovered."""
        self._offsets.forget(gone)
        self._fences.forget(gone)
        self._changes.forget(gone)
        recovery: Any = cast(Any, self.app.tables).recovery
        for tp in gone:
            recovery.revoke(tp)

    def _partitions_for(self, epochs: Mapping[int, int]) -> frozenset[TP]:
        return frozenset(
            tp
            for tp in self._all_partitions(self._subscribed)
            if self._is_private(tp.topic) or tp.partition in epochs
        )

    def _is_same_epoch(self, tp: TP, epochs: Mapping[int, int]) -> bool:
        if self._is_private(tp.topic):
            return True
        return tp.partition in epochs and epochs[tp.partition] == self._epochs.get(tp.partition)

    async def _claim(self, wanted: frozenset[TP], epochs: Mapping[int, int]) -> None:
        """Read where the owners before have stopped, and shut them out.

        From commits first: one that still gets through had its changes stored before. Were the
        changes shut out first, a commit without them could follow.
        """
        changelogs = self.app.tables.changelog_topics
        await self._offsets.claim(
            {
                tp: epochs[tp.partition]
                for tp in wanted
                if tp.topic not in changelogs and not self._is_private(tp.topic)
            }
        )
        for tp in sorted(wanted):
            if tp.topic in changelogs:
                await self._fences.raise_(tp, epochs[tp.partition])

    # What Faust asks

    def assignment(self) -> set[TP]:
        """The partitions that are this worker's."""
        return set((self._assigned or frozenset()) - self._lost)

    def topic_partitions(self, topic: str) -> int | None:
        """How many partitions `topic` has, None if that is not known."""
        streams = self._topics.known(topic)
        return None if streams is None else streams.partitions

    def highwater(self, tp: TP) -> int:
        """One more than the last offset of `tp` that was seen."""
        return self._feeder.end(tp)

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int | None]:  # type: ignore[override]
        """One more than the last offset of each partition, None where there is nothing.

        Where a table has been recovered further than its changelog now reaches, because entries
        have expired, that is the end: nothing more will come.
        """
        recovered = self.app.tables.recovery.active_offsets  # type: ignore[attr-defined]
        ends: dict[TP, int | None] = {}
        for tp in partitions:
            last = await self._topics.last_offset(self._topics.known(tp.topic), tp.partition)
            known = recovered.get(tp)
            if known is not None and known >= 0:
                last = max(known, last or 0)
            ends[tp] = None if last is None else last + 1
        return ends

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int | None]:  # type: ignore[override]
        """The first offset of each partition, None where there is nothing."""
        return {
            tp: await self._topics.first_offset(self._topics.known(tp.topic), tp.partition)
            for tp in partitions
        }

    async def position(self, tp: TP) -> int | None:
        """The next offset that will be read."""
        return self._feeder.position(tp)

    def committed(self, tp: TP) -> int | None:
        """The offset that a restart would go on at, None if nothing was ever committed."""
        return self._offsets.committed(tp)

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Read on at other offsets."""
        for tp, offset in partitions.items():
            await self._seek(tp, offset)
            self._read_offset[tp] = offset or None

    async def _seek(self, partition: TP, offset: int) -> None:
        await self._feeder.seek(partition, offset)
        self._acked.pop(partition, None)
        self._acked_index.pop(partition, None)
        # Faust notes an offset as committed even if it was not.
        self._committed_offset[partition] = None

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Read on where was committed; see `consumer_auto_offset_reset` for where nothing was."""
        committed: dict[TP, int] = {}
        for tp in sorted(self.assignment()):
            if self._is_changelog_tp(tp):
                continue
            offset = self._offsets.committed(tp)
            if offset is not None:
                committed[tp] = offset
            elif self.app.conf.consumer_auto_offset_reset == "latest":
                streams = self._topics.known(tp.topic)
                offset = (await self._topics.last_offset(streams, tp.partition) or 0) + 1
            await self._seek(tp, offset or 1)
        return committed

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Read from `tps` again, once the flow is resumed too.

        Faust resumes partitions before it seeks and clears the queues, and the flow after: what
        came in between would be cleared away.
        """
        tps = set(tps)
        super().resume_partitions(tps)
        self._resuming |= tps

    def resume_flow(self) -> None:
        """Let messages through."""
        super().resume_flow()
        self._resuming.clear()
        self._feeder.news.set()

    def on_buffer_drop(self, tp: TP) -> None:
        """There is room in the queues of `tp` again."""
        super().on_buffer_drop(tp)
        self._feeder.news.set()

    async def create_topic(
        self, topic: str, partitions: int, replication: int, **wanted: Any
    ) -> None:
        """Create `topic` unless it exists; the producer knows what may be `wanted` of it."""
        await self.app.producer.create_topic(topic, partitions, replication, **wanted)

    def key_partition(
        self, topic: str, key: bytes | None, partition: int | None = None
    ) -> int | None:
        """The partition of `key`, None if nothing is known of the topic."""
        if partition is not None or self._topics.known(topic) is None:
            return partition
        return self.app.producer.key_partition(topic, cast(bytes, key)).partition

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    # Reading

    async def _drain_messages(self, fetcher: Any) -> None:
        """Move messages from readers to streams, until the fetcher is stopped."""
        try:
            while not (self.should_stop or fetcher.should_stop):
                if not self.flow_active:
                    await self._wait_for(self.can_resume_flow)
                    continue
                self._feeder.news.clear()
                moved = 0
                for tp in self._readable():
                    moved += await self._feeder.move(tp)
                await self._commit_if_many()
                if moved:
                    await asyncio.sleep(0)
                else:
                    await self._wait_for(self._feeder.news)
        except asyncio.CancelledError:
            if self.app.should_stop:
                return
            raise

    async def _wait_for(self, event: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_S):
                await event.wait()

    def _readable(self) -> list[TP]:
        if self.app.client_only:
            return sorted(self._assigned or ())
        return [
            tp
            for tp in sorted(self._active_partitions)
            if tp not in self._resuming and tp not in self._lost
        ]

    async def _getmany(
        self,
        active_partitions: set[TP] | None,
        timeout: float,  # noqa: ASYNC109 - Faust names it so
    ) -> Any:
        raise NotImplementedError("messages are moved by the feeder")

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        raise NotImplementedError("messages are made by the feeder")

    # Acknowledging and committing

    def ack(self, message: Message) -> bool:
        """Note that `message` is done, unless it will come again, or did so already."""
        if message.generation_id != self.app.consumer_generation_id:
            message.acked = True
            self._unacked_messages.discard(message)
            return False
        return super().ack(message)

    def _new_offset(self, tp: TP) -> int | None:
        self._acked[tp].clear()
        return self._feeder.advance(tp, self._acked_index[tp])

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Streams come to rest, and what they did is committed."""
        await super().on_partitions_revoked(revoked)
        for tp in revoked:
            self._feeder.forget(tp)

    async def wait_empty(self) -> None:
        """Wait until streams have finished what they have begun, but not without end when stopping.

        What an agent never finishes comes again.
        """
        limit_s = _PATIENCE_WHEN_STOPPING_S if self.app.should_stop else None
        try:
            async with asyncio.timeout(limit_s):
                await super().wait_empty()
        except TimeoutError:
            _log.warning("faust_stopped_amid_events", events=len(self._unacked_messages))

    async def _commit_if_many(self) -> None:
        if self._commit_every is not None and self._n_acked >= self._commit_every:
            self._n_acked = 0
            # The fetcher is cancelled when the app stops; a commit that was begun is finished.
            await asyncio.shield(self.add_future(self.commit()))

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        self._committing = self._generation
        return super()._filter_committable_offsets(tps)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        failure = cast(Producer, self.app.producer).failure
        if failure is not None:
            await self.crash(ProducerSendError(f"a message was not stored: {failure}"))
            return False
        # Replies are read once and by no other process. What was lost while flushing, because of a lease
        # or because a change was refused, is handled again, also if it is this worker's again by now.
        mine = self.assignment() if self._committing == self._generation else set()
        shared = {
            tp: offset
            for tp, offset in offsets.items()
            if not self._is_private(tp.topic) and tp in mine
        }
        try:
            lost = await self._offsets.commit(shared)
        except ProviderUnavailable as error:
            _log.warning("faust_commit_waits", reason=str(error))
            return False
        if lost:
            _log.warning("faust_commit_fenced", partitions=sorted({tp.partition for tp in lost}))
            self._keeper.look()
        return len(lost) < len(shared) or any(self._is_private(tp.topic) for tp in offsets)
