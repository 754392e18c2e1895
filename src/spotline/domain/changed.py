"""Frozen values with some fields changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")


def changed(value: ValueT, **changes: Any) -> ValueT:
    """The value with other fields, as `dataclasses.replace` makes it, in half the time.

    For dataclasses of several fields, all of which their constructor takes.

    Raises
    ------
    TypeError
        There is no such field.
    ValueError
        Its type refuses what it is changed to.
    """
    kind: Any = type(value)
    names, read = _fields_of(kind)
    made: ValueT = kind(**{**dict(zip(names, read(value), strict=True)), **changes})
    return made


@lru_cache(maxsize=256)
def _fields_of(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(each.name for each in fields(kind))
    return names, attrgetter(*names)
