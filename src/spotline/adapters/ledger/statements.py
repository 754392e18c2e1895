"""Statements on the ledger's tables, made and compiled once in a process.

SQLAlchemy writes them, for either database. In SQLite they then run on the driver's own cursor:
SQLAlchemy's way through a statement takes several times what SQLite takes for it, and an actuator
asks some fifty questions a slot. The rows are the same as SQLAlchemy's: columns by name and place.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Protocol, cast

from sqlalchemy import Connection, Executable, Select, Table, bindparam, insert, select, update
from sqlalchemy.sql import ClauseElement

from spotline.adapters.ledger.checksums import Flag, flag_of_sqlite, names_of, verified

OWNER = "of_owner"
_SQLITE = "sqlite"


class StoredRow(Protocol):
    """A row as a database gave it: its columns by name, and by their place in the table."""

    @property
    def _mapping(self) -> Mapping[str, Any]: ...

    def __getattr__(self, name: str, /) -> Any: ...

    def __getitem__(self, place: int, /) -> Any: ...


class Statement:
    """A statement with parameters, to be run on any connection.

    Parameters
    ----------
    written
        What SQLAlchemy makes of it.
    columns
        Those that are set, where it writes rows.
    """

    def __init__(self, written: Executable, columns: Sequence[str] = ()) -> None:
        self.written = written
        self._columns = list(columns) or None
        self._in_sqlite: tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]] | None = None

    def cursor(self, connection: Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Run it in SQLite."""
        text, ordered = self._compiled(connection)
        return _driver(connection).execute(text, ordered(values))

    def run_many(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each of these."""
        if connection.dialect.name != _SQLITE:
            connection.execute(self.written, rows)
            return
        text, ordered = self._compiled(connection)
        _driver(connection).executemany(text, map(ordered, rows))

    def first_number(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """The first column of its first row, 0 where that is null."""
        if connection.dialect.name != _SQLITE:
            return int(connection.execute(self.written, values).scalar() or 0)
        found = self.cursor(connection, values).fetchone()
        return int(found[0] or 0)

    def _compiled(
        self, connection: Connection
    ) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
        """Its text, and what puts its parameters into the order of the text."""
        if self._in_sqlite is None:
            compiled: Any = cast("ClauseElement", self.written).compile(
                dialect=connection.dialect, column_keys=self._columns
            )
            self._in_sqlite = str(compiled), _ordering(compiled.positiontup, compiled.params)
        return self._in_sqlite


class Query(Statement):
    """Reads whole rows of `table`, each with a look at its checksum."""

    def __init__(self, table: Table, written: Select[Any]) -> None:
        super().__init__(written)
        self.table, self.selected = table, written

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[StoredRow]:
        """What it finds.

        Raises
        ------
        LedgerDamaged
            A row is not what was written.
        """
        if connection.dialect.name == _SQLITE:
            made = map(_row_of(self.table), self.cursor(connection, values).fetchall())
            return list(verified(self.table, made))
        found: Iterable[Any] = connection.execute(self.written, values)
        return list(verified(self.table, found))


def owned(
    table: Table, *conditions: Any, order: Sequence[Any] = (), limit: int | None = None
) -> Query:
    """The owner's rows that meet all conditions, by primary key where no order is given.

    What differs from call to call stands in `conditions` as `bindparam`.
    """
    statement = select(table).where(table.c.owner == bindparam(OWNER), *conditions)
    if limit is not None:
        statement = statement.limit(limit)
    return Query(table, statement.order_by(*(order or table.primary_key.columns)))


@cache
def insertion(table: Table) -> Statement:
    """A new row."""
    return Statement(insert(table), names_of(table))


@cache
def overwriting(table: Table, others: tuple[str, ...]) -> Statement:
    """The update of the columns `others` by `new_<column>`, where the keys are `key_<column>`."""
    keys = [column.name for column in table.primary_key.columns]
    written = (
        update(table)
        .where(*(table.c[name] == bindparam(f"key_{name}") for name in keys))
        .values({name: bindparam(f"new_{name}") for name in others})
    )
    return Statement(written)


def _driver(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection, in the transaction that SQLAlchemy has begun."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)


def _ordering(
    names: Sequence[str], defaults: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What puts values into the order of `names`; constants of the statement are its defaults."""
    constants = {name: defaults[name] for name in names if defaults.get(name) is not None}
    if constants:
        return lambda values: tuple(
            [values[name] if name in values else constants[name] for name in names]
        )
    if len(names) == 1:
        (name,) = names
        return lambda values: (values[name],)
    return itemgetter(*names)


@cache
def _row_of(table: Table) -> Callable[[Sequence[Any]], Any]:
    """What makes a row of what SQLite gives, as SQLAlchemy reads it."""
    names = names_of(table)
    # Its columns are not known before it is there.
    plain: Any = namedtuple(f"{table.name}_row", names)  # type: ignore[misc]
    made = type(plain.__name__, (plain,), {"__slots__": (), "_mapping": property(plain._asdict)})
    flags = [place for place, column in enumerate(table.columns) if isinstance(column.type, Flag)]
    make: Callable[[Iterable[Any]], Any] = made._make  # type: ignore[attr-defined]
    if not flags:
        return make

    def with_flags(values: Sequence[Any]) -> Any:
        read = list(values)
        for place in flags:
            read[place] = flag_of_sqlite(read[place])
        return make(read)

    return with_flags
