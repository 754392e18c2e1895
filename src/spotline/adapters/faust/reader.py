"""Messages of one partition, pulled ahead in bulk from a consumer of its own.

No acknowledgements: where to go on is the committed offset, kept elsewhere, so a consumer is
thrown away with the connection and a new one opened behind the last message.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import nats.js.errors
import structlog
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spotline.adapters.faust.headers import parse_block, status_of
from spotline.adapters.faust.inbox import subscribe_raw
from spotline.adapters.faust.session import Session
from spotline.adapters.nats.connection import PASSING, BrokerLink
from spotline.adapters.nats.passing import passing_consumer
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

_BATCH = 2000
# Asked for again when this few are still to come.
_LOW = 1000
# What is asked for at once, and what may wait before more is asked for, stays below this, so that
# few large messages do not fill the memory.
_MAX_BYTES = 16 * 1024 * 1024
_EXPIRES_S = 30.0
_HEARTBEAT_S = 2.0
_SILENCE_S = 3 * _HEARTBEAT_S
_IDLE_S = 60.0
_RETRY_S = 0.1

_NO_MESSAGES = "404"
_EXPIRED = "408"
_HEARTBEAT = "100"
_CONFLICT = "409"
_STILL_PENDING = "nats-pending-messages"


class Record(NamedTuple):
    """A message as it came: bytes, and what its acknowledgement subject says."""

    offset: int
    stored_ns: int
    subject: bytes
    payload: bytes
    block: bytes | None


class PartitionReader:
    """Reads `stream` from `next_offset` on.

    `first_offset` is where the stream let it begin: later than asked for, if what was there has
    expired. `records` is where messages wait, taken from the left by `take`. `on_news` is called when some came, or
    when the end was reached.
    """

    def __init__(
        self,
        session: Session,
        stream: str,
        subjects: tuple[str, ...],
        *,
        next_offset: int,
        on_news: Callable[[], None],
    ) -> None:
        self.records: deque[Record] = deque()
        self.at_end = False
        self.first_offset = 0
        self._session = session
        self._stream = stream
        self._subjects = subjects
        self._next_offset = max(next_offset, 1)
        self._on_news = on_news
        self._link: BrokerLink | None = None
        self._consumer = ""
        self._opened = AsyncExitStack()
        self._inbox = ""
        self._end_inbox: Callable[[], None] | None = None
        self._requested = 0
        self._next_delivery = 1
        self._heard_s = 0.0
        self._has_heard = False
        self._waiting_bytes = 0
        self._broken = ""

    def take(self) -> Record:
        """The message that waits longest."""
        record = self.records.popleft()
        self._waiting_bytes -= len(record.payload)
        return record

    @property
    def is_open(self) -> bool:
        """Whether messages can come."""
        return self._link is not None and not self._broken

    async def open(self) -> None:
        """Open a consumer behind the last message that came.

        Raises
        ------
        ProviderUnavailable
            The server does not answer.
        """
        await self.close()
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._next_offset,
            ack_policy=AckPolicy.NONE,
            filter_subjects=list(self._subjects),
            inactive_threshold=_IDLE_S,
            mem_storage=True,
        )
        link = await self._session.link()
        self._broken = ""
        self._requested = 0
        self._next_delivery = 1
        self._inbox = link.client.new_inbox()
        try:
            self._end_inbox = await subscribe_raw(link.client, self._inbox, self._receive)
            info = await self._opened.enter_async_context(
                passing_consumer(link, self._stream, config)
            )
        except PASSING as error:
            if isinstance(error, nats.js.errors.NotFoundError):
                raise
            raise ProviderUnavailable(f"no consumer on {self._stream}: {error!r}") from error
        self._link = link
        self._consumer = info.name
        link.when_lost(self._lose)
        self._heard_s = asyncio.get_running_loop().time()
        self.at_end = not info.num_pending
        delivered = info.delivered.stream_seq if info.delivered is not None else 0
        self.first_offset = (delivered or 0) + 1
        await self.request()
        if self.at_end:
            self._on_news()

    async def close(self) -> None:
        """Let the consumer go; what waits in `records` stays."""
        link, self._link = self._link, None
        if self._end_inbox is not None:
            self._end_inbox()
            self._end_inbox = None
        if link is None:
            return
        link.forget(self._lose)
        await self._opened.aclose()

    async def request(self) -> None:
        """Ask for more, if little is waiting and little on its way. Also notices silence."""
        link = self._link
        if link is None or self._broken:
            return
        if link.lost:
            self._break("the connection was closed")
            return
        if self._has_heard:
            self._has_heard = False
            self._heard_s = asyncio.get_running_loop().time()
        if self._requested > _LOW or len(self.records) > _BATCH or self._waiting_bytes > _MAX_BYTES:
            if asyncio.get_running_loop().time() > self._heard_s + _SILENCE_S and self._requested:
                self._break(f"nothing was heard for {_SILENCE_S:.0f} s")
            return
        request = {
            "batch": _BATCH,
            "max_bytes": max(_MAX_BYTES, link.client.max_payload + 65_536),
            "expires": int(_EXPIRES_S * NS_PER_S),
            "idle_heartbeat": int(_HEARTBEAT_S * NS_PER_S),
        }
        if not self._requested:
            self._heard_s = asyncio.get_running_loop().time()
        self._requested += _BATCH
        try:
            await link.client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                json.dumps(request).encode(),
                reply=self._inbox,
            )
        except PASSING as error:
            self._break(repr(error))

    def _receive(self, subject: bytes, reply: bytes, payload: bytes, block: bytes | None) -> None:
        if block is not None and (status := status_of(block)):
            self._note_status(status, block)
            return
        # $JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<ns>.<pending>, or with
        # <domain>.<account> before the stream and a random token at the end.
        tokens = reply.split(b".")
        if len(tokens) > 9:
            tokens = tokens[2:]
        if int(tokens[6]) != self._next_delivery:
            self._break(f"delivery {self._next_delivery} is missing")
            return
        self._next_delivery += 1
        self._requested -= 1
        offset = int(tokens[5])
        self._next_offset = offset + 1
        self._has_heard = True
        self._waiting_bytes += len(payload)
        records = self.records
        records.append(Record(offset, int(tokens[7]), subject, payload, block))
        self.at_end = tokens[8] == b"0"
        if len(records) == 1 or self.at_end:
            self._on_news()

    def _note_status(self, status: str, block: bytes) -> None:
        self._has_heard = True
        if status == _HEARTBEAT:
            return
        headers = {name.lower(): value for name, value in parse_block(block)}
        if _STILL_PENDING in headers:
            self._requested = max(0, self._requested - int(headers[_STILL_PENDING]))
        else:
            self._requested = 0
        if status not in (_NO_MESSAGES, _EXPIRED) and not (
            status == _CONFLICT and _STILL_PENDING in headers
        ):
            self._break(block.split(b"\r\n", 1)[0].decode("latin-1"))
        self._on_news()

    def _lose(self) -> None:
        self._break("the connection was lost")

    def _break(self, why: str) -> None:
        if not self._broken:
            _log.debug("faust_reader_broken", stream=self._stream, reason=why)
        self._broken = why
        self._on_news()
