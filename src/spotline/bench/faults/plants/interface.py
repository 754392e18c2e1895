"""Bugs to plant: each replaces something of the product, and is to be caught by an oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What stands in for an attribute of a class or a module while the bug is planted."""

    where: Any
    name: str
    value: Any

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Replace it inside `with`."""
        # Of a class: not what it inherits.
        before = vars(self.where)[self.name]
        setattr(self.where, self.name, self.value)
        try:
            yield
        finally:
            setattr(self.where, self.name, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A bug that somebody could write: `what` it is, and what it replaces.

    Seeds are tried from `seed` on: one that brings it out, where that is known, saves the others.
    """

    name: str
    what: str
    replacements: Callable[[], Sequence[Replacement]]
    seed: int = 0

    def planted(self) -> AbstractContextManager[object]:
        """Have the bug inside `with`."""
        stack = ExitStack()
        for replacement in self.replacements():
            stack.enter_context(replacement.planted())
        return stack
