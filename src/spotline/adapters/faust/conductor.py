"""Hands messages to the channels of a topic, as Faust's conductor does, many in a row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from faust.exceptions import KeyDecodeError, ValueDecodeError
from faust.transport import base
from faust.types import TP, AppT, Message, TopicT

from spotline.adapters.faust.decoding import Decode, compiled_decoder

# Below this part of a queue's size, room is little.
_FEW = 8


class Conductor(base.Conductor):
    """Faust's conductor, with a way in that costs no lock and no task per message."""

    _decoders: WeakKeyDictionary[Any, Decode | None]

    # A stream that starts late (group_by, replies) waits this long, not 45 s.
    _resubscribe_sleep_lock_seconds = 1.0

    def __init__(self, app: AppT, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._decoders = WeakKeyDictionary()

    def add(self, topic: TopicT) -> None:
        """Let `topic` get messages, at once where they are read already."""
        super().add(topic)
        assigned = self.app.consumer.assignment() if self.started else None
        if assigned and not self._topic_contain_unsubscribed_topics(topic):
            self._update_tp_index(assigned)

    def channels(self, partition: TP) -> set[Any]:
        """The channels that want messages of `partition`."""
        found: Any = self._tp_index.get(partition)
        return found or set()

    def readers(self, partition: TP, on_room: Callable[[], None]) -> tuple[set[Any], int]:
        """The channels that streams read `partition` from, and how many messages they can take.

        That is 0 while there is little room; then it calls back when the queues are less than
        half full: streams take messages one by one, and a message handed over as soon as there is
        room for one is an expensive message. It is also 0 while a channel is named but nothing
        reads it yet, as Faust's for replies.
        """
        named = self.channels(partition)
        readers = {channel for channel in named if channel.is_iterator}
        room = sys.maxsize if readers or not named else 0
        for channel in readers:
            queue = channel.queue
            if queue.maxsize:
                left = queue.maxsize - queue.qsize()
                if left * _FEW < queue.maxsize:
                    queue._pending_pressure_drop_callbacks.add(on_room)
                    self.app.sensors.on_topic_buffer_full(partition)
                    return readers, 0
                room = min(room, left)
        return readers, room

    async def deliver(self, message: Message, channels: set[Any]) -> None:
        """Decode `message` and put it into the queues of `channels`, which have room."""
        message.refcount += len(channels)
        delivered: set[Any] = set()
        first: Any = None
        first_types: Any = None
        try:
            for channel in channels:
                types = (channel.key_type, channel.value_type)
                if first is None or types != first_types:
                    decode = self._decoder(channel)
                    if decode is None:
                        event = await channel.decode(message, propagate=True)
                    else:
                        event = decode(message)
                    if first is None:
                        first, first_types = event, types
                else:
                    event = first
                channel.queue.force_put_nowait(event)
                delivered.add(channel)
        except KeyDecodeError as error:
            remaining = channels - delivered
            message.ack(self.app.consumer, n=len(remaining))
            for channel in remaining:
                await channel.on_key_decode_error(error, message)
        except ValueDecodeError as error:
            remaining = channels - delivered
            message.ack(self.app.consumer, n=len(remaining))
            for channel in remaining:
                await channel.on_value_decode_error(error, message)

    def _decoder(self, channel: Any) -> Decode | None:
        try:
            return self._decoders[channel]
        except KeyError:
            decode = self._decoders[channel] = compiled_decoder(channel)
            return decode
