"""Events of any kind, made up from what their types say: what a forger would write.

What the log holds of a kind is altered; of other kinds an event is made of small numbers and names.
A kind that is added to the contracts is tried without a line here.
"""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from spotline.domain.events.event import Event

Names = Mapping[str, str]
"""Values for fields of these names, wherever they are."""

_COMMON: Names = {"unit": "gpu_hours", "source": "here", "destination": "there"}

# A deadline lies behind a start, and work gets done.
_NUMBERS: Mapping[str, int] = {"at_ns": 2_000_000_000, "expires_ns": 2_000_000_000, "alpha": 1}

_DEEPEST = 6


class Unforgeable(Exception):
    """No value of that type could be made."""


def forged(event_type: type[Event], names: Names) -> Event:
    """An event of a type.

    Raises
    ------
    Unforgeable
        Its type, or one within it, refuses all that is tried.
    """
    event: Event = _instance(event_type, {**_COMMON, **names}, 0)
    return event


def altered(event: Event, names: Names, rng: random.Random) -> Event:
    """The event with other counts, amounts or names; itself where it refuses them all."""
    changes = [field for field in dataclasses.fields(event) if field.init]
    rng.shuffle(changes)
    for field in changes:
        value = getattr(event, field.name)
        other = names.get(field.name) if isinstance(value, str) else _other(value)
        if other is None or other == value:
            continue
        try:
            changed: Event = dataclasses.replace(cast("Any", event), **{field.name: other})
            return changed
        except (TypeError, ValueError):
            continue
    return event


def _other(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 3 + 1
        case _:
            return None


@lru_cache(maxsize=512)
def _hints(made: Hashable) -> Mapping[str, Any]:
    return typing.get_type_hints(cast("type[Any]", made))


def _instance(made: type[Any], names: Names, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Unforgeable(f"{made.__name__} holds itself")
    hints = _hints(cast("Hashable", made))
    # Defaults are as good as any, and fit each other.
    plain = [
        field
        for field in dataclasses.fields(made)
        if field.init
        and (
            field.name in names
            or field.name in _NUMBERS
            or (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            )
        )
    ]
    problem: Exception = Unforgeable(made.__name__)
    for number in (1, 0, 2):
        try:
            values = {
                field.name: _value(hints[field.name], field.name, names, number, depth)
                for field in plain
            }
            return made(**values)
        except (TypeError, ValueError) as error:
            problem = error
    raise Unforgeable(f"{made.__name__}: {problem}") from problem


def _value(hint: Any, name: str, names: Names, number: int, depth: int) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments:
            return None
        return _value(arguments[0], name, names, number, depth)
    if origin is tuple:
        return (_value(arguments[0], name, names, number, depth + 1),)
    if hint is str:
        return names.get(name, "forged")
    if hint in (int, float, bool):
        return hint(_NUMBERS.get(name, number))
    if hint is bytes:
        return b"forged"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _instance(hint, names, depth + 1)
    raise Unforgeable(f"{name}: {hint}")


def latest(events: Sequence[Event], event_type: type[Event]) -> Event | None:
    """The last event of a type, None for none."""
    return next((event for event in reversed(events) if type(event) is event_type), None)
