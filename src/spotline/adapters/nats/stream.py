"""The log of a partition as one JetStream stream."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self, TypeVar

import nats.errors
import nats.js.errors
import structlog
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spotline.adapters.nats.configured import StreamLimits, ensure_stream
from spotline.adapters.nats.connection import FINAL, PASSING, BrokerLink, NatsConnection
from spotline.adapters.nats.delivery import PREFETCH, Broken, Delivery
from spotline.adapters.nats.facts import log_facts
from spotline.application.health.flow import LogFacts
from spotline.contracts.batch import MOST_EVENTS
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ConfigError, InvariantViolation, ProviderUnavailable
from spotline.contracts.subjects import StreamPart, stream_name
from spotline.domain.units import NS_PER_S

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
        self._connection = connection
        self._timeout_s = publish_timeout_s
        self._publisher: _Publisher | None = None

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
        await stream.ask(
            lambda link: ensure_stream(link.client, part, partition=partition, limits=limits)
        )
        return stream

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
        """
        stored: list[int] = []
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        problem = ""
        while len(stored) < len(envelopes):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise ProviderUnavailable(
                    f"{len(envelopes) - len(stored)} of {len(envelopes)} events could not be "
                    f"stored at {self._connection.url} within {self._timeout_s} s ({problem})"
                )
            publisher = await self._live_publisher(left_s)
            try:
                window = envelopes[len(stored) : len(stored) + _IN_FLIGHT]
                await publisher.publish(window, stored)
                self._connection.publishing.ended()
            except nats.errors.MaxPayloadError as error:
                raise InvariantViolation(
                    "an event exceeds the server's max_payload of "
                    f"{publisher.link.client.max_payload} bytes"
                ) from error
            except PASSING as error:
                problem = str(error) or type(error).__name__
                self._connection.publishing.failed(problem)
                _log.warning("publish_retried", stream=self.name, error=problem)
                await self._connection.drop(publisher.link)
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
            js = link.jetstream()
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_TIME,
                opt_start_time=since.isoformat().replace("+00:00", "Z"),  # type: ignore[arg-type]
                ack_policy=AckPolicy.NONE,
                inactive_threshold=_READ_IDLE_S,
                mem_storage=True,
            )
            made = await js.add_consumer(self.name, config)
            with suppress(nats.js.errors.NotFoundError):
                await js.delete_consumer(self.name, made.name)
            info = await js.stream_info(self.name)
            return info.state.last_seq - (made.num_pending or 0) + 1

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
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while next_seq <= last_seq:
            try:
                async for entry in self._read_once(subjects, next_seq, last_seq):
                    next_seq = entry.seq + 1
                    yield entry
                    deadline = loop.time() + self._timeout_s
                return
            except (Broken, *PASSING) as error:
                if isinstance(error, FINAL) or loop.time() >= deadline:
                    raise ProviderUnavailable(
                        f"{self.name} cannot be read from seq {next_seq} on: {error!r}"
                    ) from error
                await asyncio.sleep(_RETRY_S)

    async def subscribe(
        self, name: str, subjects: Sequence[str], *, first_seq: int = 1
    ) -> NatsSubscription:
        """Open the durable place `name`; `first_seq` applies when it does not exist yet.

        The one that had it open before is shut out.
        """
        subscription = NatsSubscription(self, name, subjects)
        await self.ask(lambda link: subscription.claim(link.jetstream(), first_seq))
        return subscription

    async def _read_once(
        self, subjects: Sequence[str], first_seq: int, last_seq: int
    ) -> AsyncIterator[StoredEntry]:
        link = await self._connection.link(timeout_s=self._timeout_s)
        js = link.jetstream()
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first_seq,
            ack_policy=AckPolicy.NONE,
            filter_subjects=list(subjects) or None,
            inactive_threshold=_READ_IDLE_S,
            mem_storage=True,
        )
        consumer = (await js.add_consumer(self.name, config)).name
        loop = asyncio.get_running_loop()
        try:
            async with Delivery(link, self.name, consumer, to_the_end=True) as delivery:
                while batch := await delivery.take(PREFETCH, loop.time() + _ANSWER_S):
                    for delivered in batch:
                        if delivered.entry.seq > last_seq:
                            return
                        yield delivered.entry
                if not delivery.ended:
                    raise Broken(f"no answer within {_ANSWER_S} s")
        finally:
            if not link.lost:
                with suppress(*PASSING):
                    await js.delete_consumer(self.name, consumer)

    async def ask(self, question: Callable[[BrokerLink], Awaitable[ResultT]]) -> ResultT:
        """Ask the JetStream API, again while the connection is lost."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            left_s = max(deadline - asyncio.get_running_loop().time(), 0.0)
            link = await self._connection.link(timeout_s=left_s)
            try:
                return await question(link)
            except FINAL:
                raise
            except PASSING as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise ProviderUnavailable(
                        f"JetStream at {self._connection.url} does not answer: {error!r}"
                    ) from error
                await asyncio.sleep(_RETRY_S)

    async def _live_publisher(self, timeout_s: float) -> _Publisher:
        link = await self._connection.link(timeout_s=timeout_s)
        if self._publisher is None or self._publisher.link is not link:
            self._publisher = await _Publisher.on(link, self.name)
        return self._publisher


class _Publisher:
    """Publishes on one link and matches the acknowledgements to what was sent."""

    def __init__(self, link: BrokerLink, stream: str) -> None:
        self.link = link
        self._stream = stream
        self._inbox = link.client.new_inbox()
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[int]] = {}
        link.when_lost(self._give_up)

    @classmethod
    async def on(cls, link: BrokerLink, stream: str) -> Self:
        publisher = cls(link, stream)
        await link.client.subscribe(f"{publisher._inbox}.*", cb=publisher._acknowledged)
        return publisher

    async def publish(self, envelopes: Sequence[Envelope], stored: list[int]) -> None:
        """Append the seq of each to `stored`, as far as that is known, or raise."""
        loop = asyncio.get_running_loop()
        acks: list[asyncio.Future[int]] = []
        replies: list[str] = []
        try:
            for envelope in envelopes:
                reply = f"{self._inbox}.{next(self._numbers)}"
                ack: asyncio.Future[int] = loop.create_future()
                self._waiting[reply] = ack
                replies.append(reply)
                acks.append(ack)
                await self.link.client.publish(
                    envelope.subject, envelope.payload, reply=reply, headers=envelope.headers()
                )
            if self.link.lost:
                raise nats.errors.ConnectionClosedError
            for index, ack in enumerate(acks):
                if not ack.done():
                    async with asyncio.timeout(_ANSWER_S):
                        await asyncio.wait((ack,))
                if isinstance(ack.exception(), nats.js.errors.Error):
                    await self._refuse_gaps(acks[index + 1 :])
                stored.append(ack.result())
        finally:
            for reply, ack in zip(replies, acks, strict=True):
                self._waiting.pop(reply, None)
                if not ack.done():
                    ack.cancel()
                elif not ack.cancelled():
                    ack.exception()  # retrieved, lest the loop complains

    async def _refuse_gaps(self, later: Sequence[asyncio.Future[int]]) -> None:
        """After one envelope was refused, none behind it may be stored."""
        if later:
            await asyncio.wait(later, timeout=_ANSWER_S)
        if any(ack.done() and ack.exception() is None for ack in later):
            raise InvariantViolation(
                f"{self._stream} refused an event and stored one that belongs behind it"
            )

    async def _acknowledged(self, message: Msg) -> None:
        ack = self._waiting.get(message.subject)
        if ack is None or ack.done():
            return
        if not message.data:
            ack.set_exception(nats.js.errors.NoStreamResponseError())
            return
        answer = json.loads(message.data)
        if "error" in answer:
            error = answer["error"]
            ack.set_exception(
                nats.js.errors.APIError(
                    code=error.get("code"),
                    description=error.get("description"),
                    err_code=error.get("err_code"),
                )
            )
        elif answer.get("stream") != self._stream:
            ack.set_exception(
                ConfigError(f"events went to stream {answer.get('stream')}, not {self._stream}")
            )
        else:
            ack.set_result(int(answer["seq"]))

    def _give_up(self) -> None:
        for ack in self._waiting.values():
            if not ack.done():
                ack.set_exception(nats.errors.ConnectionClosedError())


class NatsSubscription:
    """A durable consumer, recreated behind the last acknowledged entry whenever order is in doubt.

    A redelivery by time would break the order, and a predecessor that was killed leaves entries
    pending; a consumer that starts right behind the acknowledged ones has neither.
    """

    def __init__(self, stream: NatsEventStream, name: str, subjects: Sequence[str]) -> None:
        self._stream = stream
        self._name = name
        self._subjects = list(dict.fromkeys(subjects))
        self._owner = secrets.token_hex(8)
        self._floor_seq = 0
        self._acked_seq = 0
        self._last_ack_subject = ""
        self._unacked: deque[tuple[int, str]] = deque()
        self._link: BrokerLink | None = None
        self._delivery: Delivery | None = None
        self._used = False

    @property
    def floor_seq(self) -> int:
        """The last acknowledged `seq` when the subscription was opened, 0 for none."""
        return self._floor_seq

    @property
    def waiting(self) -> int:
        """Entries stored for this place and not fetched yet, as far as it has heard."""
        return 0 if self._delivery is None else self._delivery.waiting

    async def claim(self, js: JetStreamContext, first_seq: int) -> None:
        """Take the place over from the one that had it, and read how far that came."""
        try:
            info = await js.consumer_info(self._stream.name, self._name)
            floor = info.ack_floor.stream_seq if info.ack_floor is not None else 0
        except nats.js.errors.NotFoundError:
            floor = first_seq - 1
        self._floor_seq = self._acked_seq = floor
        await self._recreate(js)

    async def fetch(self, *, limit: int, timeout_s: float) -> Sequence[StoredEntry]:
        """Return up to `limit` next entries, empty after `timeout_s` without any.

        Raises
        ------
        InvariantViolation
            Another process has opened this place.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            delivery = self._delivery or await self._open(timeout_s)
            batch = await delivery.take(limit, deadline)
        except ProviderUnavailable:
            return ()
        except (Broken, *PASSING) as error:
            if isinstance(error, FINAL):
                raise
            _log.info("consumer_reopened", consumer=self._name, reason=str(error))
            await self._abandon()
            await asyncio.sleep(_RETRY_S)
            return ()
        self._unacked.extend((delivered.entry.seq, delivered.ack_subject) for delivered in batch)
        return [delivered.entry for delivered in batch]

    async def ack(self, entry: StoredEntry) -> None:
        """Say that `entry` and everything before it is done. Safe to repeat."""
        self._acked_seq = max(self._acked_seq, entry.seq)
        ack_subject = ""
        while self._unacked and self._unacked[0][0] <= entry.seq:
            _, ack_subject = self._unacked.popleft()
        if ack_subject and self._link is not None and not self._link.lost:
            self._last_ack_subject = ack_subject
            # Unconfirmed: an acknowledgement that is lost costs one more, harmless, delivery.
            with suppress(*PASSING):
                await self._link.client.publish(ack_subject, b"+ACK")

    async def close(self) -> None:
        """Stop following; the place is kept.

        The server works off acknowledgements in its own time: the last one is confirmed, so that
        the next to open the place finds it there.
        """
        link, ack_subject = self._link, self._last_ack_subject
        await self._abandon()
        if link is not None and not link.lost and ack_subject:
            self._last_ack_subject = ""
            with suppress(*PASSING):
                await link.client.request(ack_subject, b"+ACK", timeout=_ANSWER_S)

    async def _open(self, timeout_s: float) -> Delivery:
        link = await self._stream._connection.link(timeout_s=timeout_s)
        if self._used:
            js = link.jetstream()
            await self._refuse_new_owner(js)
            await self._recreate(js)
        self._used = True
        delivery = Delivery(link, self._stream.name, self._name, to_the_end=False)
        self._link = link
        self._delivery = await delivery.__aenter__()
        return delivery

    async def _abandon(self) -> None:
        delivery, self._delivery = self._delivery, None
        self._unacked.clear()
        if delivery is not None:
            with suppress(*PASSING):
                await delivery.__aexit__()

    async def _refuse_new_owner(self, js: JetStreamContext) -> None:
        try:
            info = await js.consumer_info(self._stream.name, self._name)
        except nats.js.errors.NotFoundError:
            return
        if (info.config.metadata or {}).get("owner") != self._owner:
            raise InvariantViolation(
                f"another process follows {self._stream.name} as {self._name}; run only one"
            )

    async def _recreate(self, js: JetStreamContext) -> None:
        with suppress(nats.js.errors.NotFoundError):
            await js.delete_consumer(self._stream.name, self._name)
        config = ConsumerConfig(
            durable_name=self._name,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._acked_seq + 1,
            ack_policy=AckPolicy.ALL,
            ack_wait=_ACK_WAIT_S,
            max_ack_pending=-1,
            filter_subjects=self._subjects or None,
            metadata={"owner": self._owner},
        )
        await js.add_consumer(self._stream.name, config)
