"""Values as text from which ids are hashed: equal values, equal text, in every release.

Ids of tables, laws, calls and configurations outlive a process: they stand in logs and ledgers. They
must not change when a class is renamed or moved, and must differ wherever values differ. So a
class states its name and the order of its fields once, and this text is made of what is stated.

Version 1 is the text that `repr` gave in v0.1.0, under the class names of v0.1.0. Where an array
was too long for `repr`, which leaves out the middle above 1,000 elements, version 1 writes all
of it: the short text was no name, as two arrays could share it. No id of v0.1.0 held an array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

AnyClass = TypeVar("AnyClass", bound=type)

# Their `repr` is the same in every release of Python that is supported.
_PLAIN = frozenset((bool, bytes, float, int, str, type(None)))


@dataclass(frozen=True, slots=True)
class _Stated:
    """What a class is called in the text; by field, its attribute and the default it is left out at."""

    name: str
    fields: tuple[tuple[str, str], ...]
    later: tuple[tuple[str, object], ...]


_STATED: dict[type, _Stated] = {}


def canonical_as(
    name: str, attributes: str = "", *, later: str = ""
) -> Callable[[AnyClass], AnyClass]:
    """State a class's name and fields in the canonical text; decorates a dataclass or an enum.

    Parameters
    ----------
    name
        What the class was called when it was first encoded; it stays when the class is renamed.
    attributes
        All fields of a dataclass in the order of the text, with spaces between; none for an enum. A
        field that was renamed is `old=new`.
    later
        Fields, with spaces between, that came after values had been encoded. They are written only
        where they differ from their default, so ids of older values stay.

    Raises
    ------
    TypeError
        A field is not stated, one that is stated does not exist, or a later one has no default.
    """

    def state(cls: AnyClass) -> AnyClass:
        pairs = []
        for attribute in attributes.split():
            old, _, new = attribute.partition("=")
            pairs.append((old, new or old))
        added = later.split()
        defaults = {field.name: field.default for field in fields(cls)} if is_dataclass(cls) else {}
        named = {attribute for _, attribute in pairs} | set(added)
        if named != defaults.keys():
            raise TypeError(
                f"{cls.__qualname__}: the canonical text must state each field, "
                f"differs in {', '.join(sorted(named ^ defaults.keys()))}"
            )
        without = [attribute for attribute in added if defaults[attribute] is MISSING]
        if without:
            raise TypeError(f"{cls.__qualname__}: later fields need a default: {without}")
        _STATED[cls] = _Stated(
            name=name,
            fields=tuple(pairs),
            later=tuple((attribute, defaults[attribute]) for attribute in added),
        )
        return cls

    return state


def canonical_v1(value: object) -> str:
    """Encode a value as text, version 1: the `repr` of v0.1.0.

    Raises
    ------
    TypeError
        The value, or one inside it, is of a class that states no name, or cannot be told apart by
        text: a number of numpy's, a set, a mapping, an array of floats.
    """
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if isinstance(value, tuple) and kind is tuple:
        # Long tuples of numbers are most of a law; `repr` writes them a hundred times faster.
        if _PLAIN.issuperset(map(type, value)):
            return repr(value)
        inner = ", ".join(map(canonical_v1, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, np.ndarray):
        return _array(value)
    stated = _STATED.get(kind)
    if stated is None:
        raise TypeError(f"no canonical text for {kind.__qualname__}: decorate it with canonical_as")
    if isinstance(value, Enum):
        return f"<{stated.name}.{value.name}: {canonical_v1(value.value)}>"
    return f"{stated.name}({', '.join(_written(value, stated))})"


def _written(value: Any, stated: _Stated) -> list[str]:
    written = [f"{name}={canonical_v1(getattr(value, at))}" for name, at in stated.fields]
    for attribute, default in stated.later:
        held = getattr(value, attribute)
        if held != default:
            written.append(f"{attribute}={canonical_v1(held)}")
    return written


def _array(value: np.ndarray[Any, Any]) -> str:
    if value.dtype.kind not in "biu":
        raise TypeError(f"an array must be of integers or booleans, was {value.dtype}")
    with np.printoptions(threshold=sys.maxsize, linewidth=75, formatter=None, legacy=False):
        return repr(value)
