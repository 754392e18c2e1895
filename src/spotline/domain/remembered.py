"""Keys of caches that stand for an object itself, not for its like.

To hash a job or a forecast takes longer than what it is a key to. Services hand the same frozen
objects on from slot to slot: to recognise them is enough, and what is not recognised is found anew.
"""

from __future__ import annotations

from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class Same(Generic[ValueT]):
    """A key that equals only keys of the very same frozen object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: ValueT) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value) >> 4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value
