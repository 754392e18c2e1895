"""Events and dead letters as payloads and as text.

The one list of events, with the kinds they are known by, is `subjects.ROUTES`; `mapping.py` turns
values into messages and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import decode_value, encode_value, mapping_of
from spotline.contracts.subjects import DEAD_LETTER_KIND, EVENT_TYPES
from spotline.domain.events.event import Event

# --- what could not be read -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One header of a message."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """A message that breaks the contract, untouched, and what is wrong with it."""

    original_subject: str
    original_headers: tuple[Header, ...]
    payload: bytes
    service: str
    error: str


# --- events -----------------------------------------------------------------------------------


def encode(event: Event) -> bytes:
    """Encode an event; equal events give equal bytes.

    Raises
    ------
    InvariantViolation
        A field holds what the wire cannot carry, such as an integer beyond 64 bits.
    """
    return encode_value(event)


def decode(kind: str, payload: bytes) -> Event:
    """Decode the payload of an event of `kind`.

    Raises
    ------
    ContractError
        No such kind, bytes that are no such message, or a value its type refuses.
    """
    return _decoded(kind, payload)


def decode_told(kind: str, payload: bytes, event_id: str) -> Event:
    """Decode as `decode`; an event that is read again is the same object, its like is another.

    Handlers tell an event by itself from one with the same content and another id.
    """
    if len(payload) <= _REMEMBERED_BYTES:
        return _remembered(kind, payload, event_id)
    return _decoded(kind, payload)


def _decoded(kind: str, payload: bytes) -> Event:
    event_type = EVENT_TYPES.get(kind)
    if event_type is None:
        raise ContractError(
            kind, f"unknown kind of event; expected one of {', '.join(EVENT_TYPES)}"
        )
    event: Event = decode_value(event_type, kind, payload)
    return event


# Services in one process read the same entries one after the other. Events are frozen through and
# through, so they may share them. At most 4 MiB of payloads are kept.
_REMEMBERED_BYTES, _REMEMBERED_EVENTS = 4096, 1024


@lru_cache(maxsize=_REMEMBERED_EVENTS)
def _remembered(kind: str, payload: bytes, event_id: str) -> Event:
    return _decoded(kind, payload)


def encode_dead_letter(entry: StoredEntry, service: str, error: ContractError) -> bytes:
    """Encode what `service` could not read."""
    return encode_value(
        DeadLettered(
            original_subject=entry.subject,
            original_headers=tuple(
                Header(name=name, value=value) for name, value in sorted(entry.headers.items())
            ),
            payload=entry.payload,
            service=service,
            error=str(error),
        )
    )


def decode_dead_letter(payload: bytes) -> DeadLettered:
    """Decode a dead letter; `ContractError` as in `decode`."""
    return decode_value(DeadLettered, DEAD_LETTER_KIND, payload)


# --- text -------------------------------------------------------------------------------------

# What protobuf raises beside its own errors: for an infinite enum, for half of a character in the
# name of one, for lists within lists within lists.
_STRANGE_JSON = (
    ArithmeticError,
    AttributeError,
    RecursionError,
    SystemError,
    TypeError,
    ValueError,
)


def json_of(kind: str, payload: bytes) -> dict[str, Any] | None:
    """Write a payload as proto3 JSON with the protos' field names, None where that loses anything.

    Lossless means that `payload_of_json` gives the same bytes again. What is not of a known kind,
    not readable or newer than this code is lost.
    """
    message_type = message_type_of_kind(kind)
    if message_type is None:
        return None
    try:
        message = message_type.FromString(payload)
        text = json_format.MessageToDict(message, preserving_proto_field_name=True)
        again = payload_of_json(kind, text)
    except (DecodeError, json_format.Error, ContractError):
        return None
    return text if again == payload else None


def payload_of_json(kind: str, text: Mapping[str, Any]) -> bytes:
    """Turn what `json_of` wrote, or a person edited, into a payload.

    Raises
    ------
    ContractError
        No such kind, or not the JSON of such a message.
    """
    message_type = message_type_of_kind(kind)
    if message_type is None:
        raise ContractError(kind, "unknown kind of event")
    message = message_type()
    try:
        json_format.ParseDict(dict(text), message)
    except (json_format.ParseError, *_STRANGE_JSON) as error:
        raise ContractError(kind, str(error)) from error
    return message.SerializeToString(deterministic=True)


def message_type_of_kind(kind: str) -> type[Message] | None:
    """The message that payloads of `kind` are; None for a kind that is not known here."""
    if kind == DEAD_LETTER_KIND:
        return mapping_of(DeadLettered).message_type
    event_type = EVENT_TYPES.get(kind)
    return None if event_type is None else mapping_of(event_type).message_type
