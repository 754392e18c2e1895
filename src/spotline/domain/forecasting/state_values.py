"""Plain values for a state, and a state from plain values.

What is written names nothing: the reader says by its own types what it expects, and gets that or
a `ValueError`. Numbers that come in rows are written beside the rest, as little-endian float64 or
int64.
"""

from __future__ import annotations

import array
import math
import sys
import types
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Protocol, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

Plain = Any
"""None, a bool, an int, a float, a str, or a list of these."""

_NUMBER_BYTES = 8
_FLOATS, _INTS = "d", "q"  # as the module `array` calls them
_LEAST_INT, _GREATEST_INT = -(2**63), 2**63 - 1
_MOST_DIMENSIONS = 8


class Rows:
    """Rows of float64 and int64, one behind the other, as little-endian bytes.

    Parameters
    ----------
    data
        What an earlier one held, to be taken out in the same order.
    """

    def __init__(self, data: bytes = b"") -> None:
        self._out: list[bytes] = []
        self._data = data
        self._taken = 0

    def put(self, row: bytes) -> None:
        """Append numbers of eight bytes each."""
        self._out.append(row)

    def take(self, count: Plain) -> bytes:
        """The next `count` numbers.

        Raises
        ------
        ValueError
            There are fewer, or `count` is none.
        """
        size = _checked_int(count) * _NUMBER_BYTES
        if not 0 <= size <= len(self._data) - self._taken:
            raise ValueError(
                f"a row must hold 0..{(len(self._data) - self._taken) // _NUMBER_BYTES} numbers, "
                f"was {count}"
            )
        self._taken += size
        return self._data[self._taken - size : self._taken]

    @property
    def bytes(self) -> bytes:
        """All that was put."""
        return b"".join(self._out)

    def check_empty(self) -> None:
        """Refuse numbers that no value took, by `ValueError`."""
        if self._taken != len(self._data):
            raise ValueError(f"{len(self._data) - self._taken} bytes of numbers belong to no value")


class Shape(Protocol):
    """Writes values of one type as plain ones, and reads them back."""

    def write(self, value: Any, rows: Rows) -> Plain:
        """The value as a plain one; its rows of numbers go to `rows`."""
        ...

    def read(self, plain: Plain, rows: Rows) -> Any:
        """The value of a plain one; `ValueError` where it is of another type."""
        ...


class AsPlain:
    """Annotates a type with two functions that make plain values of it and back.

    Parameters
    ----------
    plain_type
        What `to_plain` gives and `of_plain` takes; `of_plain` raises ValueError for a value of that
        type that means nothing.
    """

    def __init__(
        self, plain_type: object, to_plain: Callable[[Any], Any], of_plain: Callable[[Any], Any]
    ) -> None:
        self.plain_type = plain_type
        self.to_plain = to_plain
        self.of_plain = of_plain


class _Exactly:
    """Values that are plain already."""

    def __init__(self, *kinds: type) -> None:
        self._kinds = kinds

    def write(self, value: Any, rows: Rows) -> Plain:
        return self.read(value, rows)

    def read(self, plain: Plain, rows: Rows) -> Any:
        if type(plain) not in self._kinds:
            raise ValueError(f"{_named(self._kinds)} was expected, was {type(plain).__name__}")
        return plain


class _Int:
    def write(self, value: Any, rows: Rows) -> Plain:
        return _checked_int(int(value))

    def read(self, plain: Plain, rows: Rows) -> int:
        return _checked_int(plain)


class _Float:
    def write(self, value: Any, rows: Rows) -> Plain:
        return float(value)

    def read(self, plain: Plain, rows: Rows) -> float:
        if type(plain) is not float:
            raise ValueError(f"float was expected, was {type(plain).__name__}")
        return plain


class _Optional:
    def __init__(self, of: Shape) -> None:
        self._of = of

    def write(self, value: Any, rows: Rows) -> Plain:
        return None if value is None else [self._of.write(value, rows)]

    def read(self, plain: Plain, rows: Rows) -> Any:
        if plain is None:
            return None
        (inner,) = _checked_list(plain, 1)
        return self._of.read(inner, rows)


class _Sequence:
    """A list or tuple of any length, of one type."""

    def __init__(self, of: Shape, make: Callable[[list[Any]], Any]) -> None:
        self._of = of
        self._make = make

    def write(self, value: Any, rows: Rows) -> Plain:
        write = self._of.write
        return [write(each, rows) for each in value]

    def read(self, plain: Plain, rows: Rows) -> Any:
        read = self._of.read
        return self._make([read(each, rows) for each in _checked_list(plain)])


@dataclass(frozen=True, slots=True)
class _Flat:
    """A value that is a fixed number of floats or of ints: `width` of `code`, side by side."""

    code: str
    width: int
    flatten: Callable[[Any], tuple[Any, ...]]
    make: Callable[[tuple[Any, ...]], Any]


class _Packed:
    """A list or tuple of flat values, in a row."""

    def __init__(self, of: _Flat, make: Callable[[Any], Any]) -> None:
        self._of = of
        self._make = make

    def write(self, value: Any, rows: Rows) -> Plain:
        of = self._of
        numbers = value if of.width == 1 else chain.from_iterable(map(of.flatten, value))
        rows.put(_little_endian(array.array(of.code, numbers)).tobytes())
        return len(value)

    def read(self, plain: Plain, rows: Rows) -> Any:
        of = self._of
        row: array.array[Any] = array.array(of.code)
        row.frombytes(rows.take(_checked_int(plain) * of.width))
        numbers = _little_endian(row)
        if of.width == 1:
            return self._make(numbers)
        return self._make(map(of.make, zip(*[iter(numbers)] * of.width, strict=True)))


class _Tuple:
    """A tuple with a type for each place."""

    def __init__(self, of: tuple[Shape, ...]) -> None:
        self._of = of

    def write(self, value: Any, rows: Rows) -> Plain:
        return [of.write(each, rows) for of, each in zip(self._of, value, strict=True)]

    def read(self, plain: Plain, rows: Rows) -> Any:
        found = _checked_list(plain, len(self._of))
        return tuple(of.read(each, rows) for of, each in zip(self._of, found, strict=True))


class _Deque:
    def __init__(self, of: Shape) -> None:
        self._of = of

    def write(self, value: deque[Any], rows: Rows) -> Plain:
        return [value.maxlen, self._of.write(list(value), rows)]

    def read(self, plain: Plain, rows: Rows) -> deque[Any]:
        most, held = _checked_list(plain, 2)
        found = self._of.read(held, rows)
        if most is not None and not len(found) <= _checked_int(most):
            raise ValueError(f"at most {most} values were expected, were {len(found)}")
        return deque(found, maxlen=most)


class _Dict:
    """Keys and values apart, in the order of the mapping."""

    def __init__(self, keys: Shape, values: Shape) -> None:
        self._keys = keys
        self._values = values

    def write(self, value: Mapping[Any, Any], rows: Rows) -> Plain:
        return [
            self._keys.write(list(value), rows),
            self._values.write(list(value.values()), rows),
        ]

    def read(self, plain: Plain, rows: Rows) -> dict[Any, Any]:
        keys, values = _checked_list(plain, 2)
        names = self._keys.read(keys, rows)
        found = dict(zip(names, self._values.read(values, rows), strict=True))
        if len(found) != len(names):
            raise ValueError("a key stands twice in a mapping")
        return found


class _Array:
    """An array of float64, in the order of C."""

    def write(self, value: npt.NDArray[np.float64], rows: Rows) -> Plain:
        if value.dtype != np.float64:
            raise TypeError(f"arrays of float64 are written, was {value.dtype}")
        rows.put(np.ascontiguousarray(value, dtype="<f8").tobytes())
        return list(value.shape)

    def read(self, plain: Plain, rows: Rows) -> npt.NDArray[np.float64]:
        shape = [_checked_int(each) for each in _checked_list(plain)]
        if len(shape) > _MOST_DIMENSIONS or any(each < 0 for each in shape):
            raise ValueError(f"the shape of an array was expected, was {shape[:_MOST_DIMENSIONS]}")
        flat = np.frombuffer(rows.take(math.prod(shape)), dtype="<f8")
        return flat.astype(np.float64).reshape(shape)


class _Record:
    """The fields of a dataclass, in their order."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        hints = get_type_hints(kind, include_extras=True)
        self._names = tuple(each.name for each in fields(kind))
        self._shapes = tuple(shape_of(hints[name]) for name in self._names)

    def write(self, value: Any, rows: Rows) -> Plain:
        if type(value) is not self._kind:
            raise TypeError(f"{self._kind.__name__} was expected, was {type(value).__name__}")
        return [
            shape.write(getattr(value, name), rows)
            for name, shape in zip(self._names, self._shapes, strict=True)
        ]

    def read(self, plain: Plain, rows: Rows) -> Any:
        found = _checked_list(plain, len(self._names))
        return self._kind(
            **{
                name: shape.read(each, rows)
                for name, shape, each in zip(self._names, self._shapes, found, strict=True)
            }
        )


class _Converted:
    def __init__(self, annotation: AsPlain) -> None:
        self._of = shape_of(annotation.plain_type)
        self._to_plain = annotation.to_plain
        self._of_plain = annotation.of_plain

    def write(self, value: Any, rows: Rows) -> Plain:
        return self._of.write(self._to_plain(value), rows)

    def read(self, plain: Plain, rows: Rows) -> Any:
        return self._of_plain(self._of.read(plain, rows))


@cache
def shape_of(kind: Any) -> Shape:
    """How values of a type are written: one of the plain ones, or put together from them.

    Raises
    ------
    TypeError
        The type cannot be written: annotate it with `AsPlain`.
    """
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found = [each for each in of[1:] if isinstance(each, AsPlain)]
        return _Converted(found[0]) if found else shape_of(of[0])
    plain = {int: _Int(), float: _Float(), bool: _Exactly(bool), str: _Exactly(str)}
    if kind in plain:
        return cast("Shape", plain[kind])
    if origin is np.ndarray:
        return _Array()
    if origin in (list, tuple, deque, dict, set):
        return _collection_of(origin, of)
    if origin is types.UnionType and len(of) == 2 and of[1] is type(None):
        return _Optional(shape_of(of[0]))
    if isinstance(kind, type) and is_dataclass(kind):
        return _Record(kind)
    raise TypeError(f"values of {kind} cannot be written")


def _collection_of(origin: Any, of: tuple[Any, ...]) -> Shape:
    if origin is dict:
        return _Dict(_list_of(of[0], list), _list_of(of[1], list))
    if origin is deque:
        return _Deque(_list_of(of[0], list))
    if origin is set:
        return _Converted(AsPlain(list[of[0]], sorted, set))  # type: ignore[valid-type]
    if origin is tuple and of[1:] != (...,):
        return _Tuple(tuple(shape_of(each) for each in of))
    return _list_of(of[0], origin)


def _list_of(kind: Any, make: Callable[[Any], Any]) -> Shape:
    flat = _flat_of(kind)
    return _Sequence(shape_of(kind), make) if flat is None else _Packed(flat, make)


def _flat_of(kind: Any) -> _Flat | None:
    """How a value of this type stands in a row, None where it is not flat."""
    if kind is float or kind is int:
        return _Flat(
            _FLOATS if kind is float else _INTS, 1, lambda value: (value,), lambda of: of[0]
        )
    parts = get_args(kind) if get_origin(kind) is tuple else ()
    if parts and parts in ((int,) * len(parts), (float,) * len(parts)):
        return _Flat(_INTS if parts[0] is int else _FLOATS, len(parts), tuple, tuple)
    if isinstance(kind, type) and is_dataclass(kind):
        names = [each.name for each in fields(kind)]
        hints = get_type_hints(kind)
        if len(names) > 1 and all(hints[name] is int for name in names):
            return _Flat(
                _INTS,
                len(names),
                attrgetter(*names),
                lambda of: kind(**dict(zip(names, of, strict=True))),
            )
    return None


def _checked_int(value: Any) -> int:
    if type(value) is not int or not _LEAST_INT <= value <= _GREATEST_INT:
        raise ValueError(f"an int of 64 bits was expected, was {type(value).__name__}")
    return value


def _checked_list(value: Any, length: int | None = None) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"a list was expected, was {type(value).__name__}")
    if length is not None and len(value) != length:
        raise ValueError(f"a list of {length} was expected, was of {len(value)}")
    return value


def _little_endian(row: array.array[float]) -> array.array[float]:
    if sys.byteorder == "big":
        row.byteswap()
    return row


def _named(kinds: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)
