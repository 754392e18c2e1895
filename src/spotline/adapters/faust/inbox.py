"""Subscriptions without nats-py's work per message.

nats-py makes an object of every message, parses its headers, and hands it through a queue to a
task. At tens of thousands per second that is most of the cost, so a raw subscription gets the
bytes from the protocol parser directly, and the parser takes such messages from what was read in
one go. This touches nats-py's internals; the interface test says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.protocol.command import unsub_cmd
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

Sink = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Gets (subject, reply subject, payload, header block or None); must not raise."""

_LINE_END = b"\r\n"
_LINE_END_BYTES = 2
# A message that is larger and not there yet is left to nats-py, which does not look at it again
# with every piece that comes.
_LARGE_BYTES = 65_536

_parsers: WeakKeyDictionary[Client, _RawParser] = WeakKeyDictionary()


async def subscribe_raw(client: Client, subject: str, sink: Sink) -> Callable[[], None]:
    """Give `sink` every message on `subject`; the value returned ends that, at once."""
    parser = _parsers.get(client)
    if parser is None:
        parser = _parsers[client] = _RawParser.take_over(client)
    subscription = await client.subscribe(subject, cb=_unused)
    number = str(subscription._id).encode()
    parser.sinks[number] = sink

    def end() -> None:
        if parser.sinks.pop(number, None) is None or client.is_closed:
            return
        # What `Subscription.unsubscribe` does, without waiting for the socket.
        client._remove_sub(subscription._id)
        command = unsub_cmd(subscription._id, 0)
        client._pending.append(command)
        client._pending_data_size += len(command)
        task: Any = subscription._wait_for_msgs_task
        if task is not None:
            task.cancel()

    return end


class _RawParser(Parser):
    """nats-py's parser, which first takes what raw subscriptions get."""

    sinks: dict[bytes, Sink]

    @classmethod
    def take_over(cls, client: Client) -> _RawParser:
        """Become the parser of `client`, in whatever state it is."""
        parser: Any = client._ps
        parser.__class__ = cls
        parser.sinks = {}
        mine: _RawParser = parser
        dispatch = client._process_msg

        async def process(
            number: int, subject: bytes, reply: bytes, payload: bytes, block: Any
        ) -> None:
            sink = mine.sinks.get(str(number).encode())
            if sink is not None:
                sink(subject, reply, payload, block or None)
            else:
                await dispatch(number, subject, reply, payload, block)

        # For what nats-py parses because it came in pieces, or behind something of its own.
        client._process_msg = process  # type: ignore[method-assign, assignment]
        return mine

    async def parse(self, data: bytes = b"") -> None:
        """Dispatch what has been read so far."""
        self.buf.extend(data)
        if self.sinks and self.state == AWAITING_CONTROL_LINE:
            taken, is_whole = self._take(bytes(self.buf))
            del self.buf[:taken]
            if is_whole:
                return
        if self.buf:
            await super().parse()

    def _take(self, buffer: bytes) -> tuple[int, bool]:
        """Give messages at the front of `buffer` to their sinks.

        Returns
        -------
        tuple
            How many bytes were used, and whether the rest is the beginning of one more message
            (or nothing) rather than something for nats-py.
        """
        sinks = self.sinks
        start = 0
        size = len(buffer)
        while start < size:
            kind = buffer[start : start + 1]
            line_end = buffer.find(_LINE_END, start)
            if line_end < 0 or kind not in b"MH":
                return start, False
            words = buffer[start:line_end].split(b" ")
            sink = sinks.get(words[2]) if len(words) >= 4 else None
            if sink is None:
                return start, False
            body = line_end + _LINE_END_BYTES
            end = body + int(words[-1])
            if end + _LINE_END_BYTES > size:
                return start, end - start < _LARGE_BYTES
            if kind == b"M":
                reply = words[3] if len(words) == 5 else b""
                sink(words[1], reply, buffer[body:end], None)
            else:
                reply = words[3] if len(words) == 6 else b""
                payload = body + int(words[-2])
                sink(words[1], reply, buffer[payload:end], buffer[body:payload])
            start = end + _LINE_END_BYTES
        return start, True


async def _unused(message: Msg) -> None:
    """Only what comes between subscribing and having a sink, or after its end, gets here."""
