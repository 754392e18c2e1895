"""Entries of one JetStream pull consumer, in order, or the news that order cannot be kept."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from typing import Self

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as CoreSubscription

from spotline.adapters.nats.connection import BrokerLink
from spotline.contracts.envelope import StoredEntry
from spotline.domain.units import NS_PER_S

# Bounds what is in memory, delivered but not handled.
PREFETCH = 512

_EXPIRES_S = 30.0
_HEARTBEAT_S = 2.0
# This many heartbeats missed in a row, and the consumer or the server is gone.
_SILENCE_S = 3 * _HEARTBEAT_S

_NO_MESSAGES = "404"
_EXPIRED = "408"
_HEARTBEAT = "100"


class Broken(Exception):
    """The consumer cannot go on; open another behind the last entry."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An entry, and the subject that acknowledges it."""

    entry: StoredEntry
    ack_subject: str


class Delivery:
    """Pulls from the consumer `consumer` of `stream`.

    One request is open at a time. `to_the_end` asks only for what is stored already.
    """

    def __init__(self, link: BrokerLink, stream: str, consumer: str, *, to_the_end: bool) -> None:
        self._link = link
        self._request_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._to_the_end = to_the_end
        request: dict[str, int | bool] = {"batch": PREFETCH}
        if to_the_end:
            request["no_wait"] = True
        else:
            request["expires"] = int(_EXPIRES_S * NS_PER_S)
            request["idle_heartbeat"] = int(_HEARTBEAT_S * NS_PER_S)
        self._request = json.dumps(request).encode()
        self._inbox = link.client.new_inbox()
        self._subscription: CoreSubscription | None = None
        self._ready: deque[Delivered] = deque()
        self._requested = 0
        self._next_consumer_seq = 1
        self._news = asyncio.Event()
        self._broken = ""
        self._ended = False
        self._pending = 0

    async def __aenter__(self) -> Self:
        self._link.when_lost(self._lose)
        self._subscription = await self._link.client.subscribe(self._inbox, cb=self._receive)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._link.forget(self._lose)
        self._break("closed")
        if self._subscription is not None and not self._link.client.is_closed:
            await self._subscription.unsubscribe()

    @property
    def ended(self) -> bool:
        """Whether everything stored has come."""
        return self._ended

    @property
    def waiting(self) -> int:
        """Entries not taken yet: those that came, and those the server said were behind the last."""
        return len(self._ready) + self._pending

    async def take(self, limit: int, deadline: float) -> list[Delivered]:
        """Return what has come, waiting for the first until `deadline` (loop time).

        Empty at the deadline, or at the end if it was opened `to_the_end`.

        Raises
        ------
        Broken
            Entries were lost between two that came, or the consumer is gone.
        """
        clock = asyncio.get_running_loop().time
        heard = clock()
        while True:
            if self._ready:
                count = min(limit, len(self._ready))
                return [self._ready.popleft() for _ in range(count)]
            if self._broken:
                raise Broken(self._broken)
            if self._ended:
                return []
            if not self._requested:
                self._requested = PREFETCH
                await self._link.client.publish(
                    self._request_subject, self._request, reply=self._inbox
                )
            now = clock()
            if now >= deadline:
                return []
            self._news.clear()
            try:
                async with asyncio.timeout_at(min(deadline, heard + _SILENCE_S)):
                    await self._news.wait()
                heard = clock()
            except TimeoutError:
                if clock() >= heard + _SILENCE_S:
                    self._break(f"nothing was heard for {_SILENCE_S} s")

    async def _receive(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers else None
        if status is not None and not message.reply.startswith("$JS.ACK."):
            self._note_status(status, message)
        else:
            self._note_entry(message)
        self._news.set()

    def _note_status(self, status: str, message: Msg) -> None:
        if status == _HEARTBEAT:
            return
        self._requested = 0
        if status == _NO_MESSAGES and self._to_the_end:
            self._ended = True
        elif status not in (_NO_MESSAGES, _EXPIRED):
            described = (message.headers or {}).get("Description", "")
            self._break(f"{status} {described}".strip())

    def _note_entry(self, message: Msg) -> None:
        # $JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<ns>.<pending>, or with
        # <domain>.<account> before the stream and a random token at the end.
        tokens = message.reply.split(".")
        if len(tokens) > 9:
            tokens = tokens[2:]
        self._requested = max(0, self._requested - 1)
        if self._broken:
            return
        if int(tokens[6]) != self._next_consumer_seq:
            self._break(f"delivery {self._next_consumer_seq} is missing")
            return
        self._next_consumer_seq += 1
        self._pending = int(tokens[8])
        entry = StoredEntry(
            seq=int(tokens[5]),
            stored_ns=int(tokens[7]),
            subject=message.subject,
            headers=message.headers or {},
            payload=message.data,
        )
        self._ready.append(Delivered(entry, message.reply))

    def _lose(self) -> None:
        self._break("the connection was lost")

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        self._news.set()
