"""Bugs to plant: each replaces something of the product, and is to be caught by an oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from spotline.bench.faults.replacement import Replacement as Replacement
from spotline.bench.faults.replacement import replaced


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
        return replaced(self.replacements())
