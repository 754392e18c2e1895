"""Let SQLite write ahead of its file, also where another process is just about to do the same."""

from __future__ import annotations

import sqlite3
import time

_AGAIN_S = 0.01
# The lower byte of an error code is its kind.
_KIND = 0xFF


def write_ahead(connection: sqlite3.Connection, *, patience_s: float = 10.0) -> None:
    """Set `journal_mode=WAL`, which stays with the file.

    SQLite's own `busy_timeout` does not count here: a connection that would turn a new file while
    another one writes to it is refused at once.

    Raises
    ------
    sqlite3.OperationalError
        The file stayed locked for `patience_s`, or cannot be written.
    """
    give_up_s = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            locked = error.sqlite_errorcode & _KIND == sqlite3.SQLITE_BUSY
            if not locked or time.monotonic() > give_up_s:
                raise
        time.sleep(_AGAIN_S)
