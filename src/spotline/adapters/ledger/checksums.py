"""A checksum in every row that bears money, so that what changed on the disk is not believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Boolean, Column, String, Table
from sqlalchemy.engine import Dialect

from spotline.contracts.errors import LedgerDamaged

CHECKSUM = "checksum"
_BYTES = 16
_JSON = json.JSONEncoder(separators=(",", ":"), default=repr)


def checksum_column() -> Column[str]:
    """The column of a table whose rows are sealed. Its default is no checksum of any row."""
    return Column(CHECKSUM, String(2 * _BYTES), nullable=False, server_default="")


class Flag(Boolean):
    """A truth value; what is stored in SQLite and is neither 0 nor 1 is read as it is."""

    inherit_cache = True
    __visit_name__ = "boolean"

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Tell 0 and 1 from other numbers, which SQLAlchemy's own takes for true."""
        if dialect.supports_native_boolean:
            return None
        return flag_of_sqlite


def flag_of_sqlite(value: Any) -> Any:
    """What a stored number means as a truth value; what is neither 0 nor 1 is left as it is."""
    return bool(value) if value in (0, 1) else value


def checksum(table: str, row: Mapping[str, Any]) -> str:
    """Hash a row's canonical content: its table, and every other column by name.

    The text is JSON with the columns in the order of their names, so that a row has one checksum in
    every database.
    """
    return _hashed(table, tuple(row), tuple(row.values()))


def sealed(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """A whole row with its checksum; columns that it leaves out are null.

    PostgreSQL stores no NUL characters: in names that others give, they are replaced.
    """
    content = {name: row.get(name) for name in names_of(table)}
    for name, value in content.items():
        if isinstance(value, str) and "\0" in value:
            content[name] = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    content[CHECKSUM] = checksum(table.name, content)
    return content


def verified(table: Table, rows: Iterable[Any]) -> Iterator[Any]:
    """Pass on rows with all columns of `table`, in its order, each after a look at its checksum.

    Raises
    ------
    LedgerDamaged
        A row is not what was written.
    """
    columns = names_of(table)
    place = columns.index(CHECKSUM)
    for row in rows:
        if row[place] != _hashed(table.name, columns, row):
            raise LedgerDamaged(table.name, key_of(table, row), "the row is not what was written")
        yield row


@cache
def names_of(table: Table) -> tuple[str, ...]:
    """The columns of a table, in its order."""
    return tuple(column.name for column in table.columns)


def _hashed(table: str, columns: tuple[str, ...], values: Sequence[Any]) -> str:
    head, picked = _layout(table, columns)
    text = head + _JSON.encode(picked(values))
    return hashlib.blake2b(text.encode("ascii"), digest_size=_BYTES).hexdigest()


@cache
def _layout(table: str, columns: tuple[str, ...]) -> tuple[str, Callable[[Any], Any]]:
    """What is the same for all rows of a table: the text that begins theirs, and the columns' order."""
    names = sorted(name for name in columns if name != CHECKSUM)
    places = [columns.index(name) for name in names]
    return _JSON.encode([table, *names]), lambda values: [values[place] for place in places]


def key_of(table: Table, row: Any) -> str:
    """A row's primary key, to be read by a person."""
    return ", ".join(
        f"{column.name}={row._mapping[column.name]!r}" for column in table.primary_key.columns
    )
