"""Value tables of this machine: kept in one folder, for all that run here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spotline.adapters.files.table_store import machine_tables
from spotline.domain.solvers.table_store import keep_tables_in


@contextmanager
def tables_of_this_machine() -> Iterator[None]:
    """Look tables up in the machine's folder; in memory where it has no room for one."""
    store = machine_tables()
    if store is None:
        yield
        return
    before = keep_tables_in(store)
    try:
        yield
    finally:
        keep_tables_in(before)
