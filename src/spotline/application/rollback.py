"""The way back out of a turn that failed: a copy of the state, and what was applied since.

Nobody can foresee where a handler fails, so nothing is asked of it: the state before the turn is
the kept copy with the same events applied again. The copy is taken anew so rarely that it costs
next to nothing per event; a failure, which is rare, pays for it.
"""

from __future__ import annotations

import copy
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import is_dataclass, make_dataclass
from enum import Enum
from functools import partial
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from spotline.domain.events.event import Event

StateT = TypeVar("StateT")

# A copy of a small state is taken so often at most: applied events between two.
LEAST_EVENTS = 256
# However large the state, no more events than these have to be applied again (or kept).
MOST_EVENTS = 1 << 16
# Copying one value takes some 0.1 us, applying an event and storing what follows at least 100 us:
# with so many values per event, copies take about one part in a hundred.
VALUES_PER_EVENT = 10

_CPYTHON_HEAP_TYPE = 1 << 9


class Copying:
    """Copies a state, and counts the values that it looked at.

    What cannot change is shared: numbers, text, frozen dataclasses (events among them, so that
    `is` holds of them in the copy too) and arrays that are read-only.
    """

    def __init__(self) -> None:
        self.values = 0
        self._memo: dict[int, Any] = {}

    def copied(self, value: Any) -> Any:
        """A copy of `value`, which shares with it only what cannot change."""
        self.values += 1
        how = _ways[type(value)]
        return value if how is None else self._made(how, value)

    def all_of(self, values: Collection[Any]) -> list[Any]:
        """Copies of several values."""
        self.values += len(values)
        ways = _ways
        # Nearly all are shared: to call something for each takes longer than the rest.
        return [
            value if (how := ways[type(value)]) is None else self._made(how, value)
            for value in values
        ]

    def _made(self, how: _Way, value: Any) -> Any:
        known = self._memo.get(id(value))
        return known if known is not None else how(self, value)

    def noted(self, value: Any, made: Any) -> Any:
        """Remember that `made` is the copy of `value`."""
        self._memo[id(value)] = made
        return made

    def deeply(self, value: Any) -> Any:
        """Copy what nothing is known of, as `copy.deepcopy` does."""
        before = len(self._memo)
        made = copy.deepcopy(value, self._memo)
        # It keeps containers and not what they hold: a handful of values for each.
        self.values += 10 * (len(self._memo) - before + 1)
        return made


_Way = Callable[[Copying, Any], Any]


def _list(copying: Copying, value: list[Any]) -> Any:
    made: list[Any] = copying.noted(value, [])
    made.extend(copying.all_of(value))
    return made


def _dict(copying: Copying, value: dict[Any, Any]) -> Any:
    return _filled(copying, copying.noted(value, type(value)()), value)


def _defaultdict(copying: Copying, value: defaultdict[Any, Any]) -> Any:
    return _filled(copying, copying.noted(value, defaultdict(value.default_factory)), value)


def _filled(copying: Copying, made: dict[Any, Any], value: dict[Any, Any]) -> Any:
    if not value:
        return made
    pairs = zip(copying.all_of(value.keys()), copying.all_of(value.values()), strict=True)
    if isinstance(made, Counter):
        # Its own update adds.
        dict.update(made, pairs)
    else:
        made.update(pairs)
    return made


def _set(copying: Copying, value: set[Any]) -> Any:
    # What can be in a set cannot change.
    copying.values += len(value)
    return copying.noted(value, set(value))


def _deque(copying: Copying, value: deque[Any]) -> Any:
    made: deque[Any] = copying.noted(value, deque(maxlen=value.maxlen))
    made.extend(copying.all_of(value))
    return made


def _tuple(copying: Copying, value: tuple[Any, ...]) -> Any:
    ways = _ways
    for item in value:
        if ways[type(item)] is not None:
            break
    else:
        copying.values += len(value)
        return value
    items = copying.all_of(value)
    if all(item is before for item, before in zip(items, value, strict=True)):
        return value
    return copying.noted(value, tuple(items))


def _numbers(copying: Copying, value: array[Any]) -> Any:
    copying.values += len(value) // 100
    return copying.noted(value, value[:])


def _array(copying: Copying, value: np.ndarray[Any, Any]) -> Any:
    if value.dtype.hasobject:
        return copying.deeply(value)
    if not value.flags.writeable and value.base is None:
        return value
    copying.values += value.size // 100
    return copying.noted(value, value.copy())


def _instance(copying: Copying, value: Any) -> Any:
    kind = type(value)
    made = copying.noted(value, object.__new__(kind))
    slots = _slots[kind]
    try:
        items = slots.read(value)
    except AttributeError:
        # One was never set.
        for name in slots.names:
            if hasattr(value, name):
                object.__setattr__(made, name, copying.copied(getattr(value, name)))
    else:
        slots.write(made, *copying.all_of(items))
    held = getattr(value, "__dict__", None)
    if held:
        _filled(copying, made.__dict__, held)
    return made


class _Slots(NamedTuple):
    """The slots of a type: their names, all of them read at once, and each written."""

    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    write: Callable[..., None]


class _Ways(dict[type, _Way | None]):
    """How values of a type are copied; None: they are shared."""

    def __missing__(self, kind: type) -> _Way | None:
        way = self[kind] = _found_way(kind)
        return way


class _KnownSlots(dict[type, _Slots]):
    """The slots of each type that was copied."""

    def __missing__(self, kind: type) -> _Slots:
        found = self[kind] = _found_slots(kind)
        return found


_ways = _Ways()
_slots = _KnownSlots()


def _found_way(kind: type) -> _Way | None:
    if kind in _SHARED or issubclass(kind, (Enum, type)) or _is_frozen(kind):
        return None
    way = _WAYS.get(kind)
    if way is not None:
        return way
    return _instance if _is_plain(kind) else Copying.deeply


def _is_frozen(kind: type) -> bool:
    return is_dataclass(kind) and bool(cast(Any, kind).__dataclass_params__.frozen)


def _is_plain(kind: type) -> bool:
    """Whether an instance is its attributes and nothing more."""
    written_in_python = all(
        base.__flags__ & _CPYTHON_HEAP_TYPE for base in kind.__mro__ if base is not object
    )
    if not written_in_python or hasattr(kind, "__deepcopy__"):
        return False
    # Dataclasses with slots have a state for pickling that is their attributes, too.
    own_state = not is_dataclass(kind) and any(
        getattr(kind, name, None) is not getattr(object, name, None)
        for name in ("__getstate__", "__setstate__")
    )
    return not own_state and all(
        getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__")
    )


def _found_slots(kind: type) -> _Slots:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    kept = tuple(
        name for name in names if name not in ("__dict__", "__weakref__") and hasattr(kind, name)
    )
    return _Slots(
        kept,
        # Of one name it gives no tuple.
        attrgetter(*kept) if len(kept) > 1 else partial(_read_each, kept),
        _writer(kind, kept),
    )


def _writer(kind: type, names: Sequence[str]) -> Callable[..., None]:
    """A function that writes all these slots of a value, in order."""
    if any("__setattr__" in base.__dict__ for base in kind.__mro__ if base is not object):
        return partial(_write_each, names)
    # What a dataclass with these fields does as it begins, of whatever has them: a call for each takes
    # three times as long.
    alike = make_dataclass("Alike", names, eq=False, repr=False)
    written: Callable[..., None] = vars(alike)["__init__"]
    return written


def _write_each(names: Sequence[str], made: Any, *items: Any) -> None:
    for name, item in zip(names, items, strict=True):
        object.__setattr__(made, name, item)


def _read_each(names: Sequence[str], value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, name) for name in names)


_SHARED = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range, frozenset),
        *(FunctionType, BuiltinFunctionType, MappingProxyType),
    }
)
_WAYS: dict[type, _Way] = {
    list: _list,
    dict: _dict,
    OrderedDict: _dict,
    Counter: _dict,
    defaultdict: _defaultdict,
    set: _set,
    deque: _deque,
    tuple: _tuple,
    array: _numbers,
    np.ndarray: _array,
}


class Rollback(Generic[StateT]):
    """Keeps what the state before the next turn can be made from again.

    Parameters
    ----------
    weight
        How long an event takes to be applied, in units of 100 us.
    """

    def __init__(self, state: StateT, weight: int = 1) -> None:
        self._weight = weight
        self._tail: list[Event] = []
        self.copies = 0
        self._keep(state)

    def _keep(self, state: StateT) -> None:
        copying = Copying()
        self._kept: StateT = copying.copied(state)
        self._tail.clear()
        self.copies += 1
        events = max(LEAST_EVENTS, copying.values // VALUES_PER_EVENT)
        self._room = max(1, min(events, MOST_EVENTS) // self._weight)

    def note(self, state: StateT, events: Iterable[Event]) -> None:
        """Take note of a turn that succeeded: `events` led to `state`."""
        self._tail.extend(events)
        if len(self._tail) >= self._room:
            self._keep(state)

    def restart(self, state: StateT) -> None:
        """Go on from a state that no turn led to."""
        self._keep(state)

    def back(self, evolve: Callable[[StateT, Event], None]) -> StateT:
        """The state after the last turn that was noted; it shares nothing that can change.

        Parameters
        ----------
        evolve
            Applies an event to a state: the same event to an equal state gives an equal state.
        """
        state = self._kept
        for event in self._tail:
            evolve(state, event)
        self._keep(state)
        return state
