"""Messages on their way to JetStream: many at once, in order, sent again when a link is lost."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import nats.errors
import nats.js.errors
import structlog
from faust.exceptions import ProducerSendError

from spotline.adapters.faust.inbox import subscribe_raw
from spotline.adapters.faust.session import Session
from spotline.adapters.nats.connection import PASSING, BrokerLink
from spotline.contracts.errors import ProviderUnavailable

_log = structlog.get_logger(__name__)

IN_FLIGHT = 4096

# Without any answer for this long, while some are awaited, the link is given up.
_SILENCE_S = 5.0
_LOOK_S = 0.5
_RETRY_S = 0.1
_PUT_OFF_S = 1.0
# The server is there, its JetStream not now.
_TRY_AGAIN = (503, 500)
_MESSAGE_ID = "Nats-Msg-Id"


class PublishRefused(ProducerSendError):
    """The server said no; `code` is its error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class _Message:
    subject: str
    payload: bytes
    headers: dict[str, str]
    stored: asyncio.Future[int]
    since_s: float


class Publisher:
    """Stores messages; `send` gives a future of each one's sequence number.

    Messages of one publisher are stored in the order they were sent. Each has an id, unless the
    sender gave it one, so that one whose answer was lost is not stored again, if it can be sent
    again within the stream's window of duplicates (two minutes). Where the server is there but its
    JetStream is not, as while a cluster elects a leader, order comes before that. `patience_s` is how long a message may
    take, reconnecting included.
    """

    def __init__(self, session: Session, *, patience_s: float) -> None:
        self._session = session
        self._patience_s = patience_s
        self._waiting: dict[int, _Message] = {}
        self._next = 0
        self._nonce = secrets.token_urlsafe(9)
        self._renamed = 0
        self._inbox = ""
        self._link: BrokerLink | None = None
        self._end_inbox: Callable[[], None] | None = None
        self._room = asyncio.Event()
        self._heard_s = 0.0
        self._put_off = False
        self._closed = False
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def in_flight(self) -> int:
        """How many are sent and not answered."""
        return len(self._waiting)

    async def send(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> asyncio.Future[int]:
        """Send, when there is room; the value awaits the storing.

        Raises
        ------
        ProducerSendError
            Sent or not, it would be refused: it is too large.
        """
        while len(self._waiting) >= IN_FLIGHT:
            self._room.clear()
            await self._room.wait()
        loop = asyncio.get_running_loop()
        number = self._next
        self._next += 1
        if headers is None:
            headers = {_MESSAGE_ID: f"{self._nonce}.{number}"}
        elif _MESSAGE_ID not in headers:
            headers = {_MESSAGE_ID: f"{self._nonce}.{number}", **headers}
        message = _Message(subject, payload, headers, loop.create_future(), loop.time())
        if not self._waiting:
            self._heard_s = message.since_s
            self._drained.clear()
        self._waiting[number] = message
        link = self._link
        if link is not None:
            try:
                await link.client.publish(
                    subject, payload, reply=f"{self._inbox}.{number}", headers=headers
                )
            except nats.errors.MaxPayloadError as error:
                self._take(number)
                raise _too_large(message, link) from error
            except PASSING:
                self._lose()
        return message.stored

    async def drained(self, *, timeout_s: float) -> bool:
        """Wait until everything sent was answered, and return whether it was."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Keep messages moving, until `close` or cancelled."""
        loop = asyncio.get_running_loop()
        while not self._closed:
            if self._link is None:
                if self._put_off:
                    self._put_off = False
                    await asyncio.sleep(_PUT_OFF_S)
                try:
                    await self._attach()
                except (ProviderUnavailable, *PASSING) as error:
                    self._stop_hearing()
                    _log.warning("faust_publisher_waits", reason=str(error) or repr(error))
                    await asyncio.sleep(_RETRY_S)
            now_s = loop.time()
            self._give_up_old(now_s)
            if self._link is not None and self._link.lost:
                self._lose()  # the sender was not told
                continue
            if self._waiting and self._link is not None and now_s > self._heard_s + _SILENCE_S:
                _log.warning("faust_publish_unanswered", messages=len(self._waiting))
                await self._session.drop(self._link)
            self._wake.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def close(self) -> None:
        """Store nothing more; what waits fails."""
        self._closed = True
        self._wake.set()
        for number in list(self._waiting):
            self._fail(number, ProducerSendError("the producer was stopped"))

    async def _attach(self) -> None:
        """Use a new link, and send again what waits, in order."""
        link = await self._session.link()
        inbox = link.client.new_inbox()
        self._inbox = inbox
        self._end_inbox = await subscribe_raw(link.client, f"{inbox}.*", self._answered)
        link.when_lost(self._lose)
        self._heard_s = asyncio.get_running_loop().time()
        # New messages wait behind these: `_link` is set when all before them are sent.
        sent = -1
        while rest := [number for number in self._waiting if number > sent]:
            for number in rest:
                message = self._waiting.get(number)
                sent = number
                if message is not None:
                    await self._send_again(link, number, message)
            if link.lost:
                self._stop_hearing()
                return
        self._link = link

    async def _send_again(self, link: BrokerLink, number: int, message: _Message) -> None:
        try:
            await link.client.publish(
                message.subject,
                message.payload,
                reply=f"{self._inbox}.{number}",
                headers=message.headers,
            )
        except nats.errors.MaxPayloadError:
            # It was sent while it was not known how much the server takes.
            if number in self._waiting:
                self._fail(number, _too_large(message, link))

    def _lose(self) -> None:
        self._link = None
        self._stop_hearing()
        self._wake.set()

    def _stop_hearing(self) -> None:
        if self._end_inbox is not None:
            self._end_inbox()
            self._end_inbox = None

    def _answered(self, subject: bytes, reply: bytes, payload: bytes, block: bytes | None) -> None:
        number = int(subject[subject.rfind(b".") + 1 :])
        if number not in self._waiting:
            return
        message = self._waiting[number]
        self._heard_s = asyncio.get_running_loop().time()
        try:
            answer = json.loads(payload) if payload else {}
        except ValueError:
            answer = {}
        seq = answer.get("seq")
        error = answer.get("error")
        if seq and error is None:
            # Before `drained` says so: who waits for that looks at what became of messages.
            if not message.stored.done():
                message.stored.set_result(int(seq))
            self._take(number)
        elif error is not None and error.get("code") not in _TRY_AGAIN:
            self._fail(
                number,
                PublishRefused(
                    f"{message.subject} was refused: {error.get('description')}",
                    int(error.get("err_code", 0)),
                ),
            )
        else:
            # No server is there to store it, or not now. It has to be sent again, and everything
            # behind it too, to keep the order.
            if self._link is not None:
                _log.warning("faust_publish_put_off", subject=message.subject, answer=str(answer))
                self._put_off = True
                self._rename_from(number)
                self._lose()

    def _rename_from(self, first: int) -> None:
        """Have the server take all from `first` on as new.

        Those behind it may have been stored. Were they then dropped as repetitions, it would come
        to be after them: rather twice than out of order.
        """
        for number, message in self._waiting.items():
            if number >= first and message.headers[_MESSAGE_ID].startswith(self._nonce):
                self._renamed += 1
                message.headers = {
                    **message.headers,
                    _MESSAGE_ID: f"{self._nonce}.{number}.{self._renamed}",
                }

    def _take(self, number: int) -> _Message:
        message = self._waiting.pop(number)
        self._room.set()
        if not self._waiting:
            self._drained.set()
        return message

    def _fail(self, number: int, error: ProducerSendError) -> None:
        message = self._waiting[number]
        if not message.stored.done():
            message.stored.set_exception(error)
        self._take(number)

    def _give_up_old(self, now_s: float) -> None:
        for number, message in list(self._waiting.items()):
            if now_s < message.since_s + self._patience_s:
                return
            self._fail(
                number,
                ProducerSendError(f"{message.subject} was not stored in {self._patience_s:.0f} s"),
            )


def _too_large(message: _Message, link: BrokerLink) -> ProducerSendError:
    return ProducerSendError(
        f"{len(message.payload)} bytes exceed the server's max_payload of {link.client.max_payload}"
    )
