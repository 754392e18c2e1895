"""Keys of caches that stand for an object itself, not for its like.

To hash a job or a forecast takes longer than what it is a key to. Services hand the same frozen
objects on from slot to slot: to recognise them is enough, and what is not recognised is found anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")


class Same(Generic[ValueT]):
    """A key that equals only keys of the very same frozen object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: ValueT) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value) >> 4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value


class BySelf(Generic[ValueT, ResultT]):
    """Results by the very frozen object that each is of, which stays alive as long as its result.

    Where `lru_cache` calls Python twice to know a `Same` again, this looks at an address. The older
    half of `most` results go when there are more.
    """

    def __init__(self, make: Callable[[ValueT], ResultT], most: int) -> None:
        self._make = make
        self._most = most
        self._found: dict[int, tuple[ValueT, ResultT]] = {}

    def of(self, value: ValueT) -> ResultT:
        """The result of a value, made where it is not remembered."""
        # Threads meet here: each step is one operation of the dict.
        found = self._found.get(id(value))
        if found is not None and found[0] is value:
            return found[1]
        made = self._make(value)
        self._found[id(value)] = value, made
        if len(self._found) > self._most:
            for key in list(self._found)[: self._most // 2]:
                self._found.pop(key, None)
        return made
