"""What the clouds' files of SQLite have in common: whole transactions, also where one fails late."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from spotline.adapters.clouds.aws.store import AwsStore
from spotline.adapters.clouds.local.store import LocalStore
from spotline.adapters.clouds.simulated.store import CloudStore
from spotline.contracts.errors import ConfigError

OPENED = pytest.mark.parametrize("opened", [AwsStore, CloudStore, LocalStore])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "store.sqlite"


@OPENED
def test_what_sqlite_has_rolled_back_itself_is_told_as_it_was(path, opened):
    with closing(opened(path)) as store:
        with store.transaction() as connection:
            connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (1)")

        # A full disk may have it roll back so.
        with (
            pytest.raises(sqlite3.IntegrityError, match="UNIQUE"),
            store.transaction() as connection,
        ):
            connection.execute("INSERT OR ROLLBACK INTO t VALUES (1)")

        assert_whole(store)


@OPENED
def test_a_transaction_that_cannot_be_committed_keeps_no_other_from_it(path, opened):
    with closing(opened(path)) as store:
        with store.transaction() as connection:
            connection.execute("CREATE TABLE a (x INTEGER PRIMARY KEY)")
            connection.execute(
                "CREATE TABLE b (x INTEGER REFERENCES a (x) DEFERRABLE INITIALLY DEFERRED)"
            )
        connection.execute("PRAGMA foreign_keys=ON")

        with (
            pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"),
            store.transaction() as connection,
        ):
            connection.execute("INSERT INTO b VALUES (1)")

        assert_whole(store)


def assert_whole(store):
    with store.transaction() as connection:
        connection.execute("CREATE TABLE u (x INTEGER)")
        connection.execute("INSERT INTO u VALUES (7)")
    with store.transaction() as connection:
        assert [row["x"] for row in connection.execute("SELECT x FROM u")] == [7]


@OPENED
def test_threads_take_turns(path, opened):
    with closing(opened(path)) as store, ThreadPoolExecutor(4) as pool:
        with store.transaction() as connection:
            connection.execute("CREATE TABLE n (x INTEGER)")
            connection.execute("INSERT INTO n VALUES (0)")

        def add(_):
            with store.transaction() as connection:
                (count,) = connection.execute("SELECT x FROM n").fetchone()
                connection.execute("UPDATE n SET x = ?", (count + 1,))

        list(pool.map(add, range(40)))

        with store.transaction() as connection:
            assert connection.execute("SELECT x FROM n").fetchone()[0] == 40


@OPENED
def test_a_file_of_another_version_is_refused_and_left_as_it_is(path, opened):
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")

    with pytest.raises(ConfigError, match=r"has schema 99, this version reads 1; use another"):
        opened(path)

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 99
