"""A durable place in a stream."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import nats.js.errors
import structlog
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spotline.adapters.nats.connection import FINAL, PASSING, BrokerLink, NatsConnection
from spotline.adapters.nats.continuity import INCARNATION, OWNER, Continuity, place_of
from spotline.adapters.nats.delivery import Broken, Delivery
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable

_log = structlog.get_logger(__name__)

_ANSWER_S = 5.0
_RETRY_S = 0.1
# Entries are redelivered by opening the consumer again, never by time.
_ACK_WAIT_S = 86_400.0


ResultT = TypeVar("ResultT")


class FollowedStream(Protocol):
    """The stream that a place is in."""

    name: str
    connection: NatsConnection
    continuity: Continuity

    async def ask(self, question: Callable[[BrokerLink], Awaitable[ResultT]]) -> ResultT:
        """Ask the JetStream API, again while the connection is lost."""
        ...


class NatsSubscription:
    """A durable consumer, recreated behind the last acknowledged entry whenever order is in doubt.

    A redelivery by time would break the order, and a predecessor that was killed leaves entries
    pending; a consumer that starts right behind the acknowledged ones has neither.
    """

    def __init__(self, stream: FollowedStream, name: str, subjects: Sequence[str]) -> None:
        self._stream = stream
        self._name = name
        self._subjects = list(dict.fromkeys(subjects))
        self._owner = secrets.token_hex(8)
        self._floor_seq = 0
        self._rebased = False
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
    def rebased(self) -> bool:
        """Whether what was acknowledged beyond the floor is of a log that was cut, or is gone."""
        return self._rebased

    @property
    def waiting(self) -> int:
        """Entries stored for this place and not fetched yet, as far as it has heard."""
        return 0 if self._delivery is None else self._delivery.waiting

    async def claim(self, js: JetStreamContext, first_seq: int) -> None:
        """Take the place over from the one that had it, and read how far that came.

        What it acknowledged of a log that was cut holds as far as the log does: what is stored there
        since is new.
        """
        continuity = self._stream.continuity
        await continuity.check(js)
        try:
            info = await js.consumer_info(self._stream.name, self._name)
        except nats.js.errors.NotFoundError:
            claimed = first_seq - 1
            # A place that is wanted beyond the end is one in another log.
            floor = claimed if claimed <= await continuity.last_seq(js) else 0
            self._rebased = floor < claimed
        else:
            claimed, incarnation = place_of(info)
            floor = await continuity.holds(js, claimed, incarnation)
            self._rebased = floor < claimed or incarnation < continuity.incarnation
        if self._rebased:
            _log.error("place_rebased", consumer=self._name, acknowledged=claimed, floor_seq=floor)
        self._floor_seq = floor
        # What followed from what was acknowledged may be among what is gone: all is looked at again,
        # also by one that comes after a crash before it has.
        self._acked_seq = 0 if self._rebased else floor
        await self._recreate(js)

    async def fetch(self, *, limit: int, timeout_s: float) -> Sequence[StoredEntry]:
        """Return up to `limit` next entries, empty after `timeout_s` without any.

        Raises
        ------
        InvariantViolation
            Another process has opened this place.
        LogCut
            The stream is not the one that was opened, or has lost entries.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            delivery = self._delivery or await self._open(timeout_s)
            batch = await delivery.take(limit, deadline)
        except ProviderUnavailable:
            return ()
        except (Broken, *PASSING) as error:
            if isinstance(error, nats.js.errors.NotFoundError):
                # The place went, or the stream with it; the latter is told here.
                await self._stream.ask(lambda link: self._stream.continuity.check(link.jetstream()))
            elif isinstance(error, FINAL):
                raise
            _log.info("consumer_reopened", consumer=self._name, reason=str(error))
            await self._abandon()
            await asyncio.sleep(_RETRY_S)
            return ()
        if batch:
            self._stream.continuity.saw(batch[-1].entry.seq)
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
        link = await self._stream.connection.link(timeout_s=timeout_s)
        if self._used:
            js = link.jetstream()
            await self._stream.continuity.check(js)
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
        if (info.config.metadata or {}).get(OWNER) != self._owner:
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
            metadata={
                OWNER: self._owner,
                INCARNATION: str(self._stream.continuity.incarnation),
            },
        )
        await js.add_consumer(self._stream.name, config)
