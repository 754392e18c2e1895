"""Open a ledger's database: the one place where it matters which database it is.

SQLite and PostgreSQL differ in how they are opened, made safe and locked; the statements are the
same. All that goes wrong in a database leaves here as an error of ours, without the URL's password.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from spotline.adapters.write_ahead import write_ahead
from spotline.contracts.errors import ConfigError, LedgerDamaged, ProviderUnavailable

_SQLITE, _POSTGRESQL = "sqlite", "postgresql"
_DRIVER = "postgresql+psycopg"
_EXTRA = "pip install 'spotline[postgresql]'"
# Anyone who opens a ledger takes this lock first; a number of ours.
_OPENING_LOCK = 7_245_180_213
# SQLite says by these words that a file is no longer a database of its.
_MALFORMED = ("malformed", "not a database", "disk image")

# Bytes that are no text must not end the reading: their row's checksum tells.
_AS_TEXT = methodcaller("decode", "utf-8", "backslashreplace")


def ledger_url(path: Path) -> str:
    """The URL of a SQLite ledger file."""
    return f"sqlite:///{path}"


def shown_url(url: str | URL) -> str:
    """A URL as it may be shown: without its password and without its options, which may hold one."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return "(no URL)"
    return parsed.set(query={}).render_as_string(hide_password=True)


def open_engine(url: str) -> Engine:
    """Make what connects to a ledger's database; nothing is opened yet.

    Raises
    ------
    ConfigError
        The URL is malformed, or its driver is not installed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # What cannot be parsed cannot be shown without a password that it may hold.
        raise ConfigError(
            "the ledger URL cannot be used: it must read sqlite:///FILE or "
            "postgresql://USER:PASSWORD@HOST/DATABASE"
        ) from None
    if parsed.drivername == _POSTGRESQL:
        parsed = parsed.set(drivername=_DRIVER)
    try:
        if parsed.get_backend_name() == _SQLITE:
            if parsed.database:
                Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            engine = create_engine(parsed)
            event.listen(engine, "connect", _harden)
        else:
            # A connection may have died with a restart of the server; it is tried before it is used.
            engine = create_engine(parsed, pool_pre_ping=True)
    except ImportError as error:
        raise ConfigError(
            f"the ledger URL {shown_url(parsed)} needs a driver: {error}; for PostgreSQL: {_EXTRA}"
        ) from error
    except (ArgumentError, OSError) as error:
        raise ConfigError(f"the ledger URL {shown_url(parsed)} cannot be used: {error}") from error
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection to read by.

    Raises
    ------
    LedgerDamaged
        The database says that its file is damaged.
    ProviderUnavailable
        It does not answer for now.
    """
    with _told(engine), engine.connect() as connection:
        yield connection


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """As `reading`, but all statements see one moment."""
    with _told(engine), engine.connect() as connection:
        if _is_sqlite(connection):
            connection.exec_driver_sql("BEGIN")
        else:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction to write in; raises as `reading` does.

    In SQLite it is the only one from its begin. In PostgreSQL rows are locked `FOR UPDATE`.
    """
    with _told(engine), engine.begin() as connection:
        if _is_sqlite(connection):
            # The driver begins a transaction for rows only, not for tables, and not before reads.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


@contextmanager
def opening(engine: Engine) -> Iterator[Connection]:
    """As `writing`, but alone among those that open a ledger in this database."""
    with writing(engine) as connection:
        if not _is_sqlite(connection):
            lock = text("SELECT pg_advisory_xact_lock(:number)")
            connection.execute(lock, {"number": _OPENING_LOCK})
        yield connection


def check_file(connection: Connection) -> None:
    """Have SQLite look at its own pages; PostgreSQL checks its pages when it reads them.

    Raises
    ------
    LedgerDamaged
        A page is not what was written.
    """
    if not _is_sqlite(connection):
        return
    problems = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
    if problems != ["ok"]:
        raise LedgerDamaged("the file", "", "; ".join(str(problem) for problem in problems[:3]))


def without_secrets(engine: Engine, message: str) -> str:
    """A driver's message without the password and the options of the URL that it may quote."""
    values = engine.url.query.values()
    options = [
        value for given in values for value in (given if isinstance(given, tuple) else (given,))
    ]
    for secret in filter(None, (engine.url.password, *options)):
        message = message.replace(str(secret), "***")
    return message


@contextmanager
def _told(engine: Engine) -> Iterator[None]:
    """Say what the database has raised in words of ours."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        # Statements run on the driver's own cursor or through SQLAlchemy: `statements`.
        of_driver = error.orig if isinstance(error, DBAPIError) else error
        said = without_secrets(engine, str(of_driver))
        if _is_sqlite(engine) and any(words in said for words in _MALFORMED):
            raise LedgerDamaged("the file", "", said) from None
        lost = isinstance(error, DBAPIError) and error.connection_invalidated
        if isinstance(error, OperationalError | sqlite3.OperationalError) or lost:
            raise ProviderUnavailable(
                f"the ledger {shown_url(engine.url)} does not answer: {said}"
            ) from None
        raise


def _is_sqlite(engine: Engine | Connection) -> bool:
    return engine.dialect.name == _SQLITE


def _harden(connection: Any, _record: object) -> None:
    connection.text_factory = _AS_TEXT
    write_ahead(connection)
    cursor = connection.cursor()
    for pragma in ("synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
