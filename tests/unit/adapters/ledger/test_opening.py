"""How a ledger's database is opened, and what is said where it cannot be."""

import sqlite3
import traceback

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from spotline.adapters.ledger.opening import (
    ledger_url,
    open_engine,
    reading,
    shown_url,
    snapshot,
    writing,
)
from spotline.adapters.ledger.sql import SqlLedger
from spotline.contracts.errors import ConfigError, LedgerDamaged, ProviderUnavailable
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import fill

SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://spotline:{SECRET}@127.0.0.1:1/ledger",
        f"postgresql://spotline:{SECRET}@127.0.0.1:1/ledger?application_name=x",
        f"postgresql://127.0.0.1:1/ledger?user=spotline&password={SECRET}",
        f"postgresql://spotline:{SECRET}@127.0.0.1:port/ledger",
        f"postgresql:/spotline:{SECRET}@127.0.0.1/ledger",
        f"nosuch://spotline:{SECRET}@127.0.0.1/ledger",
        f"postgresql+nosuch://spotline:{SECRET}@127.0.0.1/ledger",
        f"postgresql://spotline:{SECRET}@127.0.0.1:1/ledger?bogus={SECRET}",
        f"spotline:{SECRET}",
    ],
)
def test_no_error_shows_the_password_of_a_url(url):
    with pytest.raises(ConfigError, match="ledger") as raised:
        SqlLedger(url, OWNER)

    told = "".join(traceback.format_exception(raised.value))
    # The lines of this file, which a traceback quotes, are not what is looked for.
    assert SECRET not in told


def test_a_url_is_shown_without_secrets_and_otherwise_as_it_is():
    assert shown_url(f"postgresql://u:{SECRET}@h/d?password={SECRET}") == "postgresql://u:***@h/d"
    assert shown_url("sqlite:////var/lib/ledger.sqlite") == "sqlite:////var/lib/ledger.sqlite"
    assert shown_url(f"no url {SECRET}") == "(no URL)"


@pytest.mark.parametrize("url", ["not a url", "nosuch://host/db"])
def test_an_unusable_url_is_a_configuration_error(url):
    with pytest.raises(ConfigError, match="the ledger URL"):
        SqlLedger(url, OWNER)


def test_a_missing_driver_says_what_to_install(monkeypatch):
    def absent(*_, **__):
        raise ImportError("No module named 'psycopg'")

    monkeypatch.setattr("spotline.adapters.ledger.opening.create_engine", absent)

    with pytest.raises(ConfigError, match=r"psycopg.*pip install 'spotline\[postgresql\]'"):
        open_engine("postgresql://h/d")


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be used"):
        SqlLedger(ledger_url(tmp_path / "file" / "ledger.sqlite"), OWNER)


def test_a_file_that_is_no_database_is_damage(tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"no database at all, but long enough" * 100)

    with pytest.raises(LedgerDamaged, match="the file"):
        SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), OWNER)


def test_a_database_that_stays_locked_is_asked_again_later(tmp_path, monkeypatch):
    ledger = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), OWNER)
    holder = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with reading(ledger._engine) as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=1")

    with pytest.raises(ProviderUnavailable, match="does not answer: database is locked"):
        ledger.write_intents([])

    holder.execute("ROLLBACK")
    holder.close()
    ledger.write_intents([])
    ledger.close()


def test_a_lost_connection_is_asked_again_later_and_then_made_anew(postgresql):
    ledger = SqlLedger(postgresql.fresh(), OWNER)
    fill(ledger)
    end = text("SELECT pg_terminate_backend(pg_backend_pid())")
    with (
        pytest.raises(ProviderUnavailable, match="does not answer"),
        reading(ledger._engine) as connection,
    ):
        connection.execute(end)

    assert [held.instance_id for held in ledger.held()] == ["i2"]
    ledger.close()


def test_what_breaks_a_rule_of_the_tables_is_our_bug_and_nothing_is_written(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    insert = text("INSERT INTO ledger_schema (version) SELECT version FROM ledger_schema")

    with pytest.raises(IntegrityError), writing(ledger._engine) as connection:
        connection.execute(insert)

    with reading(ledger._engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM ledger_schema")).scalar() == 1
    ledger.close()


def test_a_snapshot_does_not_see_what_is_written_meanwhile(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    query = text("SELECT count(*) FROM instances")
    with snapshot(ledger._engine) as connection:
        assert connection.execute(query).scalar() == 0
        fill(ledger)
        assert connection.execute(query).scalar() == 0
    with snapshot(ledger._engine) as connection:
        assert connection.execute(query).scalar() == 2
    ledger.close()
