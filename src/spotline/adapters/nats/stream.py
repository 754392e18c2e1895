"""The log of a partition as one JetStream stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Self, TypeVar

import nats.errors
import nats.js.errors
import structlog
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spotline.adapters.nats.belonging import claim
from spotline.adapters.nats.configured import StreamLimits, ensure_stream
from spotline.adapters.nats.connection import FINAL, PASSING, BrokerLink, NatsConnection
from spotline.adapters.nats.continuity import MARK_SUBJECTS, Continuity, begun_in
from spotline.adapters.nats.delivery import PREFETCH, Broken, Delivery
from spotline.adapters.nats.facts import log_facts
from spotline.adapters.nats.passing import passing_consumer
from spotline.adapters.nats.publisher import LinkPublisher
from spotline.adapters.nats.subscription import NatsSubscription
from spotline.application.health.flow import LogFacts
from spotline.application.incarnations import LogSeen
from spotline.contracts.batch import MOST_EVENTS
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable
from spotline.contracts.subjects import StreamPart, stream_name
from spotline.domain.units import NS_PER_S
from spotline.runtime.patience import Patience

_log = structlog.get_logger(__name__)

PUBLISH_TIMEOUT_S = 30.0

_IN_FLIGHT = 512
# Between two acknowledgements, or for one answer of the JetStream API.
_ANSWER_S = 5.0
_RETRY_S = 0.1
# An abandoned read's consumer is removed by the server after this.
_READ_IDLE_S = 30.0
# Entries are redelivered by opening the consumer again, never by time.
_ACK_WAIT_S = 86_400.0

ResultT = TypeVar("ResultT")


class NatsEventStream:
    """An `EventStream` on a JetStream stream of one partition; see that port for its promises.

    Parameters
    ----------
    connection
        Open for as long as the stream is used.
    partition
        Of which partition.
    part
        Which of its streams; the log.
    publish_timeout_s
        How long a lost connection is retried before `ProviderUnavailable`.

    Attributes
    ----------
    most_events
        How many events that belong together go into one entry; as many as fit.
    """

    def __init__(
        self,
        connection: NatsConnection,
        *,
        partition: int = 0,
        part: StreamPart = StreamPart.LOG,
        publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> None:
        self.most_events = MOST_EVENTS
        self.name = stream_name(partition, part)
        self._connection = self.connection = connection
        self.partition = partition
        self._timeout_s = publish_timeout_s
        self._publisher: LinkPublisher | None = None
        self.continuity = Continuity(self.name, checked=part is StreamPart.LOG)

    @classmethod
    async def open(
        cls,
        connection: NatsConnection,
        *,
        partition: int = 0,
        part: StreamPart = StreamPart.LOG,
        limits: StreamLimits | None = None,
        publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> Self:
        """Create the stream if it does not exist, bring it up to date if it does, and return it.

        Raises
        ------
        ConfigError
            A stream of this name or on these subjects exists, and is another one.
        ProviderUnavailable
            No answer in time, or the server cannot store.
        """
        stream = cls(
            connection, partition=partition, part=part, publish_timeout_s=publish_timeout_s
        )
        try:
            await stream._make_sure(part, limits)
            await stream.look()
        except nats.js.errors.NotFoundError:
            # It was being removed as it was found.
            await stream._make_sure(part, limits)
            await stream.look()
        return stream

    async def _make_sure(self, part: StreamPart, limits: StreamLimits | None) -> None:
        await self.ask(
            lambda link: ensure_stream(
                link.client, part, partition=self.partition, limits=limits, may_make=link.sets_up
            )
        )

    async def look(self) -> None:
        """Take the stream as it is now for what it is to be from here on."""
        last_seq = await self.last_seq()
        begun = [found async for found in begun_in(self.read(MARK_SUBJECTS, last_seq=last_seq))]
        await self.ask(lambda link: self.continuity.look(link.jetstream(), begun))

    @property
    def incarnation(self) -> int:
        """Which incarnation of the log it was when it was looked at."""
        return self.continuity.incarnation

    @property
    def lineage(self) -> str:
        """Names this incarnation of this stream, as one token."""
        return self.continuity.lineage

    @property
    def may_begin(self) -> bool:
        """Whether this connection's identity may say that an incarnation begins."""
        return self.connection.sets_up

    async def seen(self) -> LogSeen:
        """The log as it is, with the furthest floor of those who follow it."""
        return await self.ask(lambda link: self.continuity.seen(link.jetstream()))

    async def claim(self, installation_id: str) -> None:
        """Mark the stream as an installation's. Idempotent."""
        await self.ask(lambda link: claim(link, self.name, installation_id))

    async def publish(self, envelopes: Sequence[Envelope]) -> Sequence[int]:
        """Store `envelopes` in order and return their sequence numbers; see the port.

        A retry sends everything from the first unacknowledged envelope on, in order and on a new
        connection, so whatever mixture of attempts the server sees, an envelope is first stored
        after those before it.

        Raises
        ------
        ProviderUnavailable
            Not everything was stored in time; what was is the beginning of `envelopes`.
        InvariantViolation
            An envelope is larger than the server takes, or the server stored out of order.
        LogCut
            The stream is not the one that was opened, or has lost entries.
        """
        stored: list[int] = []
        patience = Patience(self._timeout_s)
        problem = ""
        while len(stored) < len(envelopes):
            left_s = patience.left_s()
            if left_s <= 0:
                raise ProviderUnavailable(
                    f"{len(envelopes) - len(stored)} of {len(envelopes)} events could not be "
                    f"stored at {self._connection.url} within {self._timeout_s} s ({problem})"
                )
            link = await self._connection.link(timeout_s=left_s)
            try:
                publisher = await self._publisher_on(link)
                window = envelopes[len(stored) : len(stored) + _IN_FLIGHT]
                await publisher.publish(window, stored, self.continuity)
                self._connection.publishing.ended()
            except nats.errors.MaxPayloadError as error:
                raise InvariantViolation(
                    f"an event exceeds the server's max_payload of {link.client.max_payload} bytes"
                ) from error
            except FINAL:
                raise
            except PASSING as error:
                problem = self._connection.denied or str(error) or type(error).__name__
                self._connection.publishing.failed(problem)
                _log.warning("publish_retried", stream=self.name, error=problem)
                await self._connection.drop(link)
                await asyncio.sleep(min(_RETRY_S, left_s))
        return stored

    async def facts(self, places: Sequence[str] = ()) -> LogFacts:
        """How the stream, its room and these durable places are; see the port.

        Raises
        ------
        nats.js.errors.NotFoundError
            There is no such stream.
        """
        return await self.ask(lambda link: log_facts(link.jetstream(), self.name, places))

    async def last_seq(self) -> int:
        """The greatest stored `seq`, 0 when empty."""
        info = await self.ask(lambda link: link.jetstream().stream_info(self.name))
        return info.state.last_seq

    async def first_seq_since(self, stored_ns: int) -> int:
        """The `seq` of the first entry stored then or later; one more than the last if none was."""
        since = datetime.fromtimestamp(max(stored_ns, 0) // NS_PER_S, UTC)

        async def count(link: BrokerLink) -> int:
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_TIME,
                opt_start_time=since.isoformat().replace("+00:00", "Z"),  # type: ignore[arg-type]
                ack_policy=AckPolicy.NONE,
                inactive_threshold=_READ_IDLE_S,
                mem_storage=True,
            )
            async with passing_consumer(link, self.name, config) as made:
                pending = made.num_pending or 0
            info = await link.jetstream().stream_info(self.name)
            return info.state.last_seq - pending + 1

        return await self.ask(count)

    async def read(
        self, subjects: Sequence[str], *, first_seq: int = 1, last_seq: int
    ) -> AsyncIterator[StoredEntry]:
        """Yield the stored entries on `subjects` (all if empty) with seq in the range, in order.

        Raises
        ------
        ProviderUnavailable
            The connection was lost, and not back in time.
        """
        next_seq = first_seq
        patience = Patience(self._timeout_s)
        while next_seq <= last_seq:
            try:
                async for entry in self._read_once(subjects, next_seq, last_seq):
                    next_seq = entry.seq + 1
                    yield entry
                    patience = Patience(self._timeout_s)
                return
            except (Broken, *PASSING) as error:
                if isinstance(error, FINAL) or patience.left_s() <= 0:
                    raise ProviderUnavailable(
                        f"{self.name} cannot be read from seq {next_seq} on: {error!r}"
                    ) from error
                await asyncio.sleep(_RETRY_S)

    async def subscribe(
        self, name: str, subjects: Sequence[str], *, first_seq: int = 1
    ) -> NatsSubscription:
        """Open the durable place `name`; `first_seq` applies when it does not exist yet.

        The one that had it open before is shut out.

        Raises
        ------
        LogCut
            What was acknowledged there is not in the log, and no incarnation was begun since.
        """
        subscription = NatsSubscription(self, name, subjects)
        await self.ask(lambda link: subscription.claim(link.jetstream(), first_seq))
        return subscription

    async def _read_once(
        self, subjects: Sequence[str], first_seq: int, last_seq: int
    ) -> AsyncIterator[StoredEntry]:
        link = await self._connection.link(timeout_s=self._timeout_s)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first_seq,
            ack_policy=AckPolicy.NONE,
            filter_subjects=list(subjects) or None,
            inactive_threshold=_READ_IDLE_S,
            mem_storage=True,
        )
        loop = asyncio.get_running_loop()
        async with (
            passing_consumer(link, self.name, config) as made,
            Delivery(link, self.name, made.name, to_the_end=True) as delivery,
        ):
            while batch := await delivery.take(PREFETCH, loop.time() + _ANSWER_S):
                for delivered in batch:
                    if delivered.entry.seq > last_seq:
                        return
                    yield delivered.entry
            if not delivery.ended:
                raise Broken(f"no answer within {_ANSWER_S} s")

    async def ask(self, question: Callable[[BrokerLink], Awaitable[ResultT]]) -> ResultT:
        """Ask the JetStream API, again while the connection is lost."""
        patience = Patience(self._timeout_s)
        left_s = self._timeout_s
        while True:
            link = await self._connection.link(timeout_s=left_s)
            try:
                return await question(link)
            except nats.js.errors.NotFoundError:
                # Of a log that was there it is told what became of it.
                await self.continuity.check(link.jetstream())
                raise
            except FINAL:
                raise
            except PASSING as error:
                left_s = patience.left_s()
                if left_s <= 0:
                    raise ProviderUnavailable(
                        f"JetStream at {self._connection.url} does not answer: {error!r}"
                    ) from error
                await asyncio.sleep(_RETRY_S)

    async def _publisher_on(self, link: BrokerLink) -> LinkPublisher:
        if self._publisher is None or self._publisher.link is not link:
            await self.continuity.check(link.jetstream())
            self._publisher = await LinkPublisher.on(link, self.name)
        return self._publisher
