"""nats-py's client, on which a task that is cancelled while it waits for an answer ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

ResultT = TypeVar("ResultT")


async def heeding_cancel(work: Awaitable[ResultT]) -> ResultT:
    """Await `work`; where it swallows a cancellation of this task meanwhile, raise that after all.

    `asyncio.wait_for`, with which nats-py waits for answers, returns the answer and drops the
    cancellation where both come in the same turn of the loop; so a loop that asks again and again
    goes on although it was cancelled, and a caller that awaits its end never returns. Only a
    cancellation that comes while `work` runs counts: a task that cleans up after an earlier one
    may ask.

    Python 3.12 has mended `wait_for`. When that is the least Python, this stays only if nats-py's
    `_flush_pending` still drops a cancellation while its queue is full.

    Raises
    ------
    asyncio.CancelledError
        The task was cancelled while `work` ran, whatever came of `work`.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await work
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


def _note_tls(client: Any) -> None:
    """Tell asyncio's streams that they are over TLS, as their own `start_tls` does.

    nats-py upgrades by hand, and the loop then complains of every connection that ends.
    """
    writer = getattr(client._transport, "_io_writer", None)
    if writer is not None and writer.get_extra_info("ssl_object") is not None:
        writer.transport.get_protocol()._over_ssl = True


class HeedfulClient(Client):
    """A `Client` none of whose exchanges with the server loses a cancellation.

    JetStream, its stores and its consumers ask through `request`.
    """

    async def connect(self, *args: Any, nkey: str = "", **options: Any) -> None:
        """Connect; cancelled, the caller closes what may be half open.

        `nkey` is the public key that goes with `signature_cb`: nats-py takes one from the package
        nkeys alone.
        """
        if nkey:
            self._public_nkey = nkey
        await heeding_cancel(super().connect(*args, **options))

    def abandon(self) -> None:
        """Let go of the socket and of what waits for messages, at once: safe to repeat.

        nats-py's `close` does so last, and never where it is cancelled or fails before; and where a
        greeting fails it does not close at all.
        """
        writer = getattr(self._transport, "_io_writer", None)
        # A TLS transport that was closed twice has let go itself; Python before 3.11.4 fails there.
        if writer is not None and getattr(writer.transport, "_ssl_protocol", writer) is not None:
            # `close` would wait for a peer that may not read, over TLS even for its farewell.
            writer.transport.abort()
        for subscription in list(self._subs.values()):
            subscription._stop_processing()
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()

    def _connect_command(self) -> bytes:
        # It is made between the handshake and whatever the server says to it.
        _note_tls(self)
        return super()._connect_command()

    async def request(self, *args: Any, **options: Any) -> Msg:
        """Ask, and return the answer."""
        return await heeding_cancel(super().request(*args, **options))

    async def publish(self, *args: Any, **options: Any) -> None:
        """Send."""
        await heeding_cancel(super().publish(*args, **options))

    async def subscribe(self, *args: Any, **options: Any) -> Subscription:
        """Receive from now on."""
        return await heeding_cancel(super().subscribe(*args, **options))
