"""Event patterns of EventBridge: which events a rule is for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any


class PatternError(ValueError):
    """An event pattern is none, or needs a filter that is not rehearsed."""


Leaf = Callable[[Any, bool], bool]


def read_pattern(text: str) -> Mapping[str, Any]:
    """A pattern, once it is known to be one.

    Raises
    ------
    PatternError
        It is no JSON object of fields, lists and known filters.
    """
    try:
        pattern = json.loads(text)
    except ValueError as error:
        raise PatternError(f"Event pattern is not valid. Reason: {error}") from error
    if not isinstance(pattern, dict) or not pattern:
        raise PatternError("Event pattern is not valid. Reason: it must be an object with fields")
    _check(pattern, "")
    return pattern


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether an event has, in each field of the pattern, one of the values that are listed."""
    for name, wanted in pattern.items():
        there = name in event
        value = event.get(name)
        if isinstance(wanted, Mapping):
            if not matches(wanted, value if isinstance(value, Mapping) else {}):
                return False
        elif not any(_fits(one, value, there=there) for one in wanted):
            return False
    return True


def _check(pattern: Mapping[str, Any], path: str) -> None:
    for name, wanted in pattern.items():
        where = f"{path}.{name}" if path else name
        if isinstance(wanted, dict):
            _check(wanted, where)
        elif not isinstance(wanted, list) or not wanted:
            raise PatternError(
                f'Event pattern is not valid. Reason: "{where}" must be an object or an array'
            )
        else:
            for one in wanted:
                _check_filter(one, where)


def _check_filter(wanted: Any, path: str) -> None:
    if isinstance(wanted, list):
        raise PatternError(
            f'Event pattern is not valid. Reason: "{path}" holds an array in an array'
        )
    if not isinstance(wanted, dict):
        return
    kind = next(iter(wanted), "")
    if len(wanted) != 1 or kind not in _FILTERS:
        raise PatternError(
            f'Event pattern is not valid. Reason: unrecognized match type {kind} in "{path}"; '
            f"rehearsed are {', '.join(_FILTERS)}"
        )
    given = wanted[kind]
    if kind == "exists" and not isinstance(given, bool):
        raise PatternError(
            f'Event pattern is not valid. Reason: exists in "{path}" must be a boolean'
        )
    if kind in ("prefix", "suffix", "equals-ignore-case") and not isinstance(given, str):
        raise PatternError(
            f'Event pattern is not valid. Reason: {kind} in "{path}" must be a string'
        )


def _fits(wanted: Any, value: Any, *, there: bool) -> bool:
    if isinstance(wanted, Mapping):
        kind, given = next(iter(wanted.items()))
        return _FILTERS[kind](given, value, there)
    # A field with a list fits if one of its values does, as `resources` do.
    values = value if isinstance(value, list | tuple) else [value]
    return there and any(type(one) is type(wanted) and one == wanted for one in values)


def _strings(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [one for one in values if isinstance(one, str)]


_FILTERS: Mapping[str, Callable[[Any, Any, bool], bool]] = {
    "prefix": lambda given, value, _: any(one.startswith(given) for one in _strings(value)),
    "suffix": lambda given, value, _: any(one.endswith(given) for one in _strings(value)),
    "equals-ignore-case": lambda given, value, _: any(
        one.lower() == given.lower() for one in _strings(value)
    ),
    "exists": lambda given, _, there: there is given,
    "anything-but": lambda given, value, there: (
        there and value not in (given if isinstance(given, list) else [given])
    ),
}
