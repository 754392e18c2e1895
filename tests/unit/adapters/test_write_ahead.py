"""A new SQLite file that several open at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from spotline.adapters.clouds.local.store import LocalStore
from spotline.adapters.clouds.simulated.store import CloudStore
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.write_ahead import write_ahead
from tests.fakes.actuator import OWNER


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process that has just made the file and writes to it."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writing:
        writing.execute("BEGIN IMMEDIATE")
        yield writing


@pytest.mark.parametrize(
    "opened",
    [lambda path: SqlLedger(ledger_url(path), OWNER), LocalStore, CloudStore],
    ids=["ledger", "local", "simulated"],
)
def test_who_opens_a_store_that_another_one_makes_waits_for_it(path, writer, opened) -> None:
    with ThreadPoolExecutor() as pool:
        opening = pool.submit(opened, path)
        wait([opening], timeout=0.3)
        waited = not opening.done()
        writer.execute("COMMIT")

        opening.result(timeout=60).close()

    assert waited


def test_a_file_that_stays_locked_is_an_error(path, writer) -> None:
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        write_ahead(connection, patience_s=0.05)


def test_a_file_that_cannot_be_written_is_an_error_at_once(path) -> None:
    sqlite3.connect(path).close()
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        write_ahead(connection, patience_s=1000)
