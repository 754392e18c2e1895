"""Faust's own decoding of keys and values, compiled for one channel.

The same codecs and the same results; what is left out is looking them up for every message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faust
from faust.exceptions import KeyDecodeError, ValueDecodeError
from faust.serializers.codecs import get_codec
from faust.serializers.registry import Registry
from faust.types import Message

Decode = Callable[[Message], Any]

_CACHED_KEYS = 65_536
_IMMUTABLE = frozenset({int, float, str, bytes, bool, type(None)})


def compiled_decoder(channel: Any) -> Decode | None:
    """What makes an event of a message for `channel`, None if it decodes in a way of its own.

    Raises, like Faust's, `KeyDecodeError` and `ValueDecodeError`.
    """
    app, schema = channel.app, channel.schema
    registry = app.serializers
    if (
        type(schema) is not faust.Schema
        or type(registry) is not Registry
        or type(app).create_event is not faust.App.create_event
    ):
        return None
    event_type = app.conf.Event
    key_of = _key_decoder(registry, schema)
    value_of = _value_decoder(registry, schema)

    def decode(message: Message) -> Any:
        return event_type(
            app, key_of(message.key), value_of(message.value), message.headers, message
        )

    return decode


def _key_decoder(registry: Registry, schema: Any) -> Callable[[bytes | None], Any]:
    key_type, serializer = schema.key_type, schema.key_serializer
    loads_key = registry.loads_key
    # Keys come again and again, and most are immutable.
    known: dict[bytes, Any] = {}

    def key_of(raw: bytes | None) -> Any:
        if raw is None:
            return loads_key(key_type, raw, serializer=serializer)
        try:
            return known[raw]
        except KeyError:
            key = loads_key(key_type, raw, serializer=serializer)
            if type(key) in _IMMUTABLE:
                if len(known) >= _CACHED_KEYS:
                    known.clear()
                known[raw] = key
            return key

    return key_of


def _value_decoder(registry: Registry, schema: Any) -> Callable[[bytes | None], Any]:
    value_type, allow_empty = schema.value_type, schema.allow_empty
    serializer = registry._serializer(
        value_type, schema.value_serializer, registry.value_serializer
    )
    loads = get_codec(serializer).loads if serializer else _as_it_is
    prepare = registry._prepare_payload
    exact = value_type if value_type in (int, float, str, bytes) else None

    def value_of(raw: bytes | None) -> Any:
        if raw is None:
            if allow_empty:
                return None
            return registry.loads_value(value_type, raw, serializer=schema.value_serializer)
        try:
            payload = loads(raw)
            if type(payload) is exact:
                return payload
            return prepare(value_type, payload)
        except MemoryError:
            raise
        except Exception as error:
            raise ValueDecodeError(str(error)) from error

    return value_of


def _as_it_is(raw: bytes) -> bytes:
    return raw


__all__ = ["Decode", "KeyDecodeError", "ValueDecodeError", "compiled_decoder"]
