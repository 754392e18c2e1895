"""Value tables at hand: a job's own in memory, those of classes where a machine keeps them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from spotline.domain.solvers.table_stage import TableArray
from spotline.domain.solvers.table_terms import TableTerms, class_id, class_terms
from spotline.domain.solvers.value_table import (
    ValueTable,
    build_table,
    seen_by,
    shape_of,
    solve,
    solved,
)

# Running jobs' own tables that are kept, of 6 to 8 MB, at most 18; with fewer, every slot would
# build all. Where homes go by laws a crowd of a thousand has one for each job that runs.
MOST_TABLES = 160
FEWER_TABLES = 96
# Beside those: as many as a slot asks for again, and on the way, before the old ones are looked into last; for
# feedback, rehearsals and plans. With 16 a slot built tables again that it had let go of (0.4 for 0.3 s).
_SPARE_TABLES = 32
# What is kept of classes where no store was named: as much as a job's own tables may take.
_MOST_BYTES = 1 << 30


class TableStore(Protocol):
    """Keeps what solving a table took, by the table's name.

    Which tables it still has changes no decision: a table is the same however it came. It is asked
    by several threads at a time.
    """

    def array(
        self, name: str, shape: tuple[int, ...], build: Callable[[], TableArray]
    ) -> TableArray:
        """Return `ValueTable.after` of this name and shape, built by `build` where it is not kept."""
        ...

    def has(self, name: str) -> bool:
        """Whether a table of this name is at hand: asking for it builds nothing."""
        ...


class HeldTables:
    """Keeps tables in memory, up to `most_bytes` of them, those used last."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: dict[str, TableArray] = {}

    def array(
        self, name: str, shape: tuple[int, ...], build: Callable[[], TableArray]
    ) -> TableArray:
        """Return the table of this name, the last to be let go of from now on."""
        # Threads meet here: each step is one operation of the dict.
        held = self._held.pop(name, None)
        after = build() if held is None else held
        self._held[name] = after
        if held is None:
            self._let_go()
        return after

    def has(self, name: str) -> bool:
        """Whether it is held."""
        return name in self._held

    def _let_go(self) -> None:
        held = list(self._held.items())
        too_many = sum(after.nbytes for _, after in held) - self._most_bytes
        for name, after in held[:-1]:
            if too_many <= 0:
                break
            too_many -= after.nbytes
            self._held.pop(name, None)


class _Shelf:
    """The store of this process."""

    def __init__(self) -> None:
        self.store: TableStore = HeldTables()

    def table(self, terms: TableTerms) -> ValueTable:
        """The table of a class, whose terms these are."""
        after = self.store.array(class_id(terms), shape_of(terms), lambda: solve(terms).after)
        return solved(terms, after)


_SHELF = _Shelf()


def keep_tables_in(store: TableStore) -> TableStore:
    """Keep the tables of classes in `store` from now on; returns the store before."""
    before, _SHELF.store = _SHELF.store, store
    return before


def at_hand(terms: TableTerms) -> bool:
    """Whether `table_of` has nothing to solve; of a job's own table nobody knows."""
    return terms.shared and _SHELF.store.has(class_id(class_terms(terms)))


def table_of(terms: TableTerms) -> ValueTable:
    """Return the table of `terms`, built where it is not at hand."""
    if not terms.shared:
        return _own_table(terms)
    return seen_by(terms, _SHELF.table(class_terms(terms)))


@lru_cache(maxsize=MOST_TABLES + _SPARE_TABLES)
def _own_table(terms: TableTerms) -> ValueTable:
    return build_table(terms)
