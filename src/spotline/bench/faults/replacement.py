"""Something of the product that another thing stands in for, for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What stands in for an attribute of a class or a module."""

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


def replaced(replacements: Sequence[Replacement]) -> AbstractContextManager[object]:
    """Have all of these inside `with`."""
    stack = ExitStack()
    for replacement in replacements:
        stack.enter_context(replacement.planted())
    return stack
