"""A file of SQLite with a schema of its own: opened once, used in whole transactions."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spotline.adapters.write_ahead import write_ahead
from spotline.contracts.errors import ConfigError


class SqliteFile:
    """Opens or makes the file, and hands out transactions to one thread at a time.

    Parameters
    ----------
    schema
        Statements that make what is not there yet.
    version
        Of the schema.
    name
        What the file is, for people.
    outlives_power
        Whether what was committed is there after a power failure, too.

    Raises
    ------
    ConfigError
        The file was written by another version of the schema.
    """

    def __init__(
        self, path: Path, schema: str, *, version: int, name: str, outlives_power: bool
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(
            path, isolation_level=None, timeout=10.0, check_same_thread=False
        )
        try:
            self._connection.row_factory = sqlite3.Row
            write_ahead(self._connection)
            safety = "FULL" if outlives_power else "NORMAL"
            self._connection.execute(f"PRAGMA synchronous={safety}")
            self._check(path, version, name)
            with self.transaction() as connection:
                for statement in schema.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={version}")
        except BaseException:
            self._connection.close()
            raise

    def _check(self, path: Path, version: int, name: str) -> None:
        written = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if written not in (0, version):
            raise ConfigError(
                f"{path}: {name} has schema {written}, this version reads {version}; use another "
                "store directory"
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, against every other thread and process on the file."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                # SQLite has rolled back by itself where that was all it could do, as on a full disk.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """What a query finds."""
        with self._lock:
            return self._connection.execute(query, parameters).fetchall()
