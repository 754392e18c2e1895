"""Publishes on one connection, many at once, and knows which of them was stored where."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Self

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg

from spotline.adapters.nats.connection import BrokerLink
from spotline.adapters.nats.continuity import Continuity
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ConfigError, InvariantViolation

# Between two acknowledgements.
_ANSWER_S = 5.0


class LinkPublisher:
    """Publishes on one link and matches the acknowledgements to what was sent."""

    def __init__(self, link: BrokerLink, stream: str) -> None:
        self.link = link
        self._stream = stream
        self._inbox = link.client.new_inbox()
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[tuple[int, bool]]] = {}
        link.when_lost(self._give_up)

    @classmethod
    async def on(cls, link: BrokerLink, stream: str) -> Self:
        """Listen for the acknowledgements of a stream on a link."""
        publisher = cls(link, stream)
        await link.client.subscribe(f"{publisher._inbox}.*", cb=publisher._acknowledged)
        return publisher

    async def publish(
        self, envelopes: Sequence[Envelope], stored: list[int], continuity: Continuity
    ) -> None:
        """Append the seq of each to `stored`, as far as that is known, or raise.

        Raises
        ------
        LogCut
            One that is new to the stream was stored before what was known of it.
        """
        loop = asyncio.get_running_loop()
        known_seq = continuity.known_seq
        acks: list[asyncio.Future[tuple[int, bool]]] = []
        replies: list[str] = []
        try:
            for envelope in envelopes:
                reply = f"{self._inbox}.{next(self._numbers)}"
                ack: asyncio.Future[tuple[int, bool]] = loop.create_future()
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
                seq, known_before = ack.result()
                if not known_before:
                    continuity.stored(seq, behind=known_seq)
                stored.append(seq)
        finally:
            for reply, ack in zip(replies, acks, strict=True):
                self._waiting.pop(reply, None)
                if not ack.done():
                    ack.cancel()
                elif not ack.cancelled():
                    ack.exception()  # retrieved, lest the loop complains

    async def _refuse_gaps(self, later: Sequence[asyncio.Future[tuple[int, bool]]]) -> None:
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
            ack.set_result((int(answer["seq"]), bool(answer.get("duplicate"))))

    def _give_up(self) -> None:
        for ack in self._waiting.values():
            if not ack.done():
                ack.set_exception(nats.errors.ConnectionClosedError())
