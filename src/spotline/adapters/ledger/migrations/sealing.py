"""Checksums for tables as they are in the database, whatever the schema."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, MetaData, Table, bindparam, select, text, update

from spotline.adapters.ledger.checksums import CHECKSUM, checksum, verified


def add_checksums(connection: Connection, tables: Iterable[str]) -> None:
    """Give tables that have none the column of the checksum."""
    for name in tables:
        connection.execute(
            text(f"ALTER TABLE {name} ADD COLUMN {CHECKSUM} VARCHAR(32) DEFAULT '' NOT NULL")
        )


def check_all(connection: Connection, tables: Iterable[str]) -> None:
    """Look at every row's checksum, before a step changes rows and seals them again.

    Raises
    ------
    LedgerDamaged
        A row is not what was written: a step must not seal that.
    """
    for table in _reflected(connection, tables):
        for _ in verified(table, connection.execute(select(table))):
            pass


def seal_all(connection: Connection, tables: Iterable[str]) -> None:
    """Write every row's checksum, of the columns that the table has now."""
    for table in _reflected(connection, tables):
        keys = [column.name for column in table.primary_key.columns]
        changed = [
            {f"key_{name}": row._mapping[name] for name in keys}
            | {"sum": checksum(table.name, row._asdict())}
            for row in connection.execute(select(table))
        ]
        if changed:
            statement = update(table).where(
                *(table.c[name] == bindparam(f"key_{name}") for name in keys)
            )
            connection.execute(statement.values({CHECKSUM: bindparam("sum")}), changed)


def _reflected(connection: Connection, tables: Iterable[str]) -> list[Table]:
    metadata = MetaData()
    return [Table(name, metadata, autoload_with=connection) for name in tables]
