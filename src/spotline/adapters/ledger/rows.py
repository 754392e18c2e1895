"""The rows of one owner: read with a look at their checksums, written under the owner's lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Table,
    bindparam,
    delete,
    func,
    select,
)

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.checksums import CHECKSUM, names_of, sealed
from spotline.adapters.ledger.opening import reading, writing
from spotline.adapters.ledger.statements import (
    OWNER,
    Query,
    Statement,
    StoredRow,
    insertion,
    overwriting,
    owned,
)
from spotline.application.cloud_actuator.ports import Owner, OwnerFenced
from spotline.contracts.errors import LedgerDamaged
from spotline.domain.market.offering import CapacityType

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    ValueT = TypeVar("ValueT", bound=DataclassInstance)

# SQLite takes some tens of thousands of parameters a statement, older ones 999.
_AT_A_TIME = 512


class OwnedRows:
    """Reads and writes the rows of one owner in one database.

    All may raise `LedgerDamaged`, where a row is not what was written, and `ProviderUnavailable`,
    where the database does not answer: then the same may be asked again.
    """

    def __init__(self, engine: Engine, owner: Owner) -> None:
        self._engine = engine
        self._owner = owner

    @property
    def owner(self) -> Owner:
        """Whose ledger this is, at the epoch of this process."""
        return self._owner

    def _read(self, query: Query, **values: Any) -> Sequence[StoredRow]:
        """The rows of a query, with `values` for its parameters."""
        with reading(self._engine) as connection:
            return _rows(connection, self._owner, query, values)

    def _read_keyed(self, table: Table, column: Any, keys: Sequence[str]) -> Sequence[StoredRow]:
        """The rows whose `column` is one of many keys."""
        if not keys:
            return []
        with reading(self._engine) as connection:
            return _keyed(connection, self._owner, table, column, keys)

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        """A transaction that holds the owner's row, so that no other epoch can begin meanwhile.

        Raises
        ------
        OwnerFenced
            A newer epoch exists.
        """
        with writing(self._engine) as connection:
            # PostgreSQL waits here for one who holds the row; SQLite has waited already.
            self._look_at_epoch(connection, _THIS_OWNER_HELD)
            yield Transaction(connection, self._owner)

    def _check_epoch(self) -> None:
        with reading(self._engine) as connection:
            self._look_at_epoch(connection, _THIS_OWNER)

    def _look_at_epoch(self, connection: Connection, query: Query) -> None:
        rows = query.rows(connection, {OWNER: self._owner.name})
        if not rows:
            key = f"owner={self._owner.name!r}"
            raise LedgerDamaged(t.owners.name, key, "the row is no longer there")
        if rows[0].epoch != self._owner.epoch:
            raise OwnerFenced(self._owner, int(rows[0].epoch))


class Transaction:
    """Writes rows of an owner, all or none."""

    def __init__(self, connection: Connection, owner: Owner) -> None:
        self._connection = connection
        self._owner = owner

    @property
    def owner(self) -> Owner:
        """Whose rows these are."""
        return self._owner

    def read(self, query: Query, **values: Any) -> Sequence[StoredRow]:
        """The rows of a query, with `values` for its parameters."""
        return _rows(self._connection, self._owner, query, values)

    def read_keyed(self, table: Table, column: Any, keys: Sequence[str]) -> Sequence[StoredRow]:
        """Rows of the owner's whose `column` is one of many keys."""
        return _keyed(self._connection, self._owner, table, column, keys)

    def next(self, column: Any) -> int:
        """One more than the greatest number in a column, from 1."""
        return _greatest(column).first_number(self._connection, {OWNER: self._owner.name}) + 1

    def add(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows; they name every column but the owner and the checksum."""
        added = [sealed(table, {"owner": self._owner.name, **row}) for row in rows]
        if added:
            insertion(table).run_many(self._connection, added)

    def remove(self, table: Table, condition: Any) -> None:
        """Delete the owner's rows that meet a condition."""
        mine = table.c.owner == self._owner.name
        self._connection.execute(delete(table).where(mine, condition))

    def change(self, table: Table, rows: Iterable[StoredRow], **values: Any) -> None:
        """Give the same new values to rows that were read in this transaction."""
        self.rewrite(table, [{**row._mapping, **values} for row in rows], tuple(values))

    def rewrite(
        self, table: Table, rows: Iterable[Mapping[str, Any]], only: Sequence[str] = ()
    ) -> None:
        """Write whole rows over those of the same keys, with new checksums.

        `only` names the columns that can differ, where that is not all.
        """
        keys = _keys_of(table)
        changed = [sealed(table, {"owner": self._owner.name, **row}) for row in rows]
        if not changed:
            return
        others = (*only, CHECKSUM) if only else _others_of(table)
        overwriting(table, others).run_many(
            self._connection,
            [
                {f"key_{name}": row[name] for name in keys}
                | {f"new_{name}": row[name] for name in others}
                for row in changed
            ],
        )


def columns_of(table: Table, *values: DataclassInstance) -> dict[str, Any]:
    """The fields of `values` that are named as columns of a table; enums by their values."""
    names = names_of(table)
    return {
        field.name: stored.value if isinstance(stored, Enum) else stored
        for value in values
        for field in fields(value)
        if field.name in names
        for stored in (getattr(value, field.name),)
    }


def value_of(kind: type[ValueT], row: StoredRow | Row[Any], **others: Any) -> ValueT:
    """A value from the columns that are named as its fields, and what else is given."""
    read = {name: getattr(row, name) for name in _field_names(kind) if name not in others}
    if "capacity_type" in read:
        read["capacity_type"] = CapacityType(read["capacity_type"])
    return kind(**read, **others)


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _keys_of(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.primary_key.columns)


@cache
def _others_of(table: Table) -> tuple[str, ...]:
    return tuple(name for name in names_of(table) if name not in _keys_of(table))


def _rows(
    connection: Connection, owner: Owner, query: Query, values: Mapping[str, Any]
) -> list[StoredRow]:
    return query.rows(connection, {OWNER: owner.name, **values})


def _keyed(
    connection: Connection, owner: Owner, table: Table, column: Any, keys: Sequence[str]
) -> list[StoredRow]:
    found: list[StoredRow] = []
    for first in range(0, len(keys), _AT_A_TIME):
        some = keys[first : first + _AT_A_TIME]
        # Few statements for any number of keys: the last one is asked for again.
        count = 1 << (len(some) - 1).bit_length()
        asked = {f"key_{place}": some[min(place, len(some) - 1)] for place in range(count)}
        found += _rows(connection, owner, _one_of(table, column, count), asked)
    return found


# --- statements, made once: to make one takes longer than to run it ---------------------------


@cache
def _one_of(table: Table, column: Any, count: int) -> Query:
    """The owner's rows whose `column` is one of so many keys, by primary key."""
    return owned(table, column.in_([bindparam(f"key_{place}") for place in range(count)]))


@cache
def _greatest(column: Any) -> Statement:
    """The greatest number in a column of the owner's rows."""
    return Statement(select(func.max(column)).where(column.table.c.owner == bindparam(OWNER)))


_THIS_OWNER = owned(t.owners)
_THIS_OWNER_HELD = Query(t.owners, _THIS_OWNER.selected.with_for_update())
