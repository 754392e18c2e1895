"""Events as bytes and states as copies: how the book keeps what was, with nothing in it that runs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, MutableMapping, MutableSequence, MutableSet
from copy import copy, deepcopy
from dataclasses import fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any, TypeVar

from spotline.application.page.applied import Applied
from spotline.contracts.codec import decode, encode

T = TypeVar("T")

_ATOMS = (
    *(type(None), bool, int, float, complex, str, bytes, frozenset, Enum, type, range),
    *(FunctionType, BuiltinFunctionType, MappingProxyType),
)


def written(told: Iterable[Applied]) -> bytes:
    """Events as bytes: a line of JSON that says where each is, then their payloads."""
    heads, payloads = [], []
    for one in told:
        payload = one.payload or encode(one.event)
        heads.append([one.seq, one.kind, one.event_id, one.cause_id, one.wall_ns, len(payload)])
        payloads.append(payload)
    return b"".join((json.dumps(heads).encode(), b"\n", *payloads))


def read(content: bytes) -> list[Applied]:
    """What `written` wrote."""
    line, _, rest = content.partition(b"\n")
    found, at = [], 0
    for seq, kind, event_id, cause_id, wall_ns, size in json.loads(line):
        found.append(
            Applied(
                event=decode(kind, rest[at : at + size]),
                seq=seq,
                kind=kind,
                event_id=event_id,
                cause_id=cause_id,
                wall_ns=wall_ns,
            )
        )
        at += size
    return found


def copied(value: T) -> T:
    """A copy that shares what cannot change: folding into one leaves the other as it was.

    Frozen dataclasses are taken at their word. What is shared within `value` is shared within the
    copy.
    """
    made: T = _Copier().of(value)
    return made


class _Copier:
    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        # Whose id is in the map must not be freed meanwhile.
        self._alive: list[Any] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, _ATOMS) or _is_frozen(value):
            return value
        known = self._known.get(id(value))
        if known is not None:
            return known
        if isinstance(value, tuple):
            return self._note(value, self._tuple(value))
        made = self._empty(value)
        self._note(value, made)
        self._fill(value, made)
        return made

    def _note(self, value: Any, made: Any) -> Any:
        self._known[id(value)] = made
        self._alive.append(value)
        return made

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        parts = [self.of(part) for part in value]
        if all(part is own for part, own in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)

    def _empty(self, value: Any) -> Any:
        if isinstance(value, MutableMapping | MutableSet | list | deque):
            made = copy(value)
            made.clear()
            return made
        if is_dataclass(value):
            return object.__new__(type(value))
        return deepcopy(value)

    def _fill(self, value: Any, made: Any) -> None:
        match value:
            case MutableMapping():
                for key, part in value.items():
                    made[key] = self.of(part)
            case MutableSet():
                # What is in a set can be hashed: it does not change.
                for part in value:
                    made.add(part)
            case MutableSequence() | deque():
                made.extend(self.of(part) for part in value)
            case _ if is_dataclass(value):
                for part in fields(value):
                    object.__setattr__(made, part.name, self.of(getattr(value, part.name)))
            case _:
                pass


def _is_frozen(value: Any) -> bool:
    told = getattr(type(value), "__dataclass_params__", None)
    return told is not None and bool(told.frozen)
