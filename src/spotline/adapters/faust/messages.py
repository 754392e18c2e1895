"""From a stream's record to Faust's message."""

from __future__ import annotations

from faust.types import TP, ConsumerMessage

from spotline.adapters.faust import headers as wire
from spotline.adapters.faust.names import KeyInHeader, key_in
from spotline.adapters.faust.reader import Record

_STORED_TIME = 1
_SENDERS_TIME = 0
_NS_PER_S = 1e9
_ID_ALONE = b"NATS/1.0\r\nNats-Msg-Id:"


class StreamMessage(ConsumerMessage):
    """Faust's message, and the exact time it was stored at (`timestamp` is a float of seconds)."""

    __slots__ = ("stored_ns",)

    stored_ns: int


def message_of(tp: TP, record: Record, *, foreign: bool, generation_id: int) -> StreamMessage:
    """The message of a record.

    Parameters
    ----------
    foreign
        The stream is not a topic of this transport: its key is the subject.

    Raises
    ------
    ValueError
        A header of the transport, or the key in the subject, is malformed.
    """
    value: bytes | None = record.payload
    stamp_s, stamp_type = record.stored_ns / _NS_PER_S, _STORED_TIME
    headers: list[tuple[str, bytes]] = []
    block = record.block
    # Most have no header but the id that a publisher gave them.
    if block is not None and not (block.startswith(_ID_ALONE) and block.count(b"\r\n") == 3):
        pairs = wire.parse_block(block)
        headers = wire.decode_headers(pairs)
        for name, text in pairs:
            if name == wire.NO_VALUE:
                value = None
            elif name == wire.TIMESTAMP:
                stamp_s, stamp_type = float(text), _SENDERS_TIME
    message = StreamMessage(
        tp.topic,
        tp.partition,
        record.offset,
        stamp_s,
        stamp_type,
        headers,
        record.subject if foreign else _key_of(record),
        value,
        None,
        None,
        None,
        tp,
        generation_id=generation_id,
    )
    message.stored_ns = record.stored_ns
    return message


def _key_of(record: Record) -> bytes | None:
    try:
        return key_in(record.subject)
    except KeyInHeader:
        return wire.long_key(record.block or b"")
