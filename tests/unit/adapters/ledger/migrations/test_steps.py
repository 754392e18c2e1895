"""Ledgers of v0.1.0 and v0.2.0 are opened: same rows, same bill, whatever happens on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from spotline import __version__
from spotline.adapters.ledger.migrations.steps import STEPS
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.tables import METADATA, SCHEMA_VERSION
from spotline.contracts.errors import ConfigError, LedgerDamaged
from spotline.domain.ledger.instance_life import LifeState
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import copied, raw, rows_by_table
from tests.samples.stored_ledgers import FOLDER
from tests.samples.stored_runs import STORED, unpack

ROOT = Path(__file__).resolve().parents[5]
EXPECTED = json.loads((FOLDER / "ledgers.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def old_ledgers(tmp_path_factory):
    """By name, files of schema 1 (v0.1.0 and killed) and 2."""
    folder = tmp_path_factory.mktemp("old")
    unpack(STORED / "actuator-stores.tar.xz", folder / "v0.1.0")
    unpack(FOLDER / "ledgers.tar.xz", folder / "v0.2.0")
    # "031" is what `continued` was before v0.2.0 opened it.
    found = {"v0.1.0": folder / "v0.1.0" / "031" / "ledger.sqlite"}
    return found | {name: folder / "v0.2.0" / name / "ledger.sqlite" for name in EXPECTED}


@pytest.fixture
def old(request, old_ledgers, tmp_path):
    """An old ledger's URL, of the name and in the database that the test's parameters say."""
    name, database = request.param
    # With what lies beside it: the newest rows of a killed process are in the write-ahead log.
    shutil.copytree(old_ledgers[name].parent, tmp_path / name)
    file = tmp_path / name / "ledger.sqlite"
    if database == "sqlite":
        return ledger_url(file)
    return copied(file, request.getfixturevalue("postgresql").fresh())


def both(*names):
    return [(name, database) for name in names for database in ("sqlite", "postgresql")]


def version_of(url):
    with raw(url) as connection:
        return connection.execute(text("SELECT version FROM ledger_schema")).scalars().all()


def shape(url):
    """Columns, keys and indexes of all tables."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    found = inspect(engine)
    shape = {
        table: (
            sorted(
                (column["name"], str(column["type"]), column["nullable"], column["default"])
                for column in found.get_columns(table)
            ),
            found.get_pk_constraint(table)["constrained_columns"],
            sorted((index["name"], index["column_names"]) for index in found.get_indexes(table)),
            sorted(unique["column_names"] for unique in found.get_unique_constraints(table)),
        )
        for table in found.get_table_names()
    }
    engine.dispose()
    return shape


def kill_while_migrating(url):
    """Open a ledger in a process that dies in the last step, when almost all is done."""
    program = """
import os, signal, sys
from spotline.adapters.ledger.migrations import to_3
from spotline.adapters.ledger.sql import SqlLedger
live = to_3._live
def killed(connection):
    live(connection)
    os.kill(os.getpid(), signal.SIGKILL)
to_3._live = killed
SqlLedger(sys.argv[1], sys.argv[2])
"""
    died = subprocess.run(
        [sys.executable, "-c", program, url, OWNER],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert died.returncode == -signal.SIGKILL


def test_there_is_a_step_to_every_schema():
    assert list(STEPS) == list(range(2, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("old", both(*EXPECTED), indirect=True, ids="-".join)
def test_rows_and_bill_of_an_old_ledger_stay(old, request):
    name, _ = request.node.callspec.params["old"]
    ledger = SqlLedger(old, OWNER)

    assert {"rows": ledger.comparable(), "spend": dict(ledger.spend_by_job())} == EXPECTED[name]
    ledger.audit()
    ledger.close()
    assert version_of(old) == [SCHEMA_VERSION]
    with raw(old) as connection:
        taken = connection.execute(text("SELECT version, release FROM ledger_migrations")).all()
    assert [tuple(row) for row in taken] == [
        (step, __version__) for step in range(3, SCHEMA_VERSION + 1)
    ]


@pytest.mark.parametrize("old", both("v0.1.0"), indirect=True, ids="-".join)
def test_a_ledger_of_v0_1_0_says_what_it_said(old):
    with raw(old) as connection:
        stored = connection.execute(text("SELECT events FROM answers ORDER BY call_key")).all()
        keys = connection.execute(text("SELECT call_key FROM answers ORDER BY call_key")).scalars()
        keys = keys.all()
    assert any(isinstance(fields, dict) for row in stored for _, fields in json.loads(row[0]))

    ledger = SqlLedger(old, OWNER)

    assert ledger.comparable() == EXPECTED["continued"]["rows"]
    for key, row in zip(keys, stored, strict=True):
        answers = ledger.answers(key)
        assert [type(answer).__name__ for answer in answers] == [
            name for name, _ in json.loads(row[0])
        ]
    ledger.close()


@pytest.mark.parametrize("old", both("end"), indirect=True, ids="-".join)
def test_instances_of_an_old_ledger_get_their_lives_and_their_bills(old):
    ledger = SqlLedger(old, OWNER)

    rows = ledger.comparable()
    states = {
        subject: life.state
        for subject, life in ledger.lives_of(
            [row["instance_id"] for row in rows["instances"]]
        ).items()
    }
    assert states == {
        row["instance_id"]: LifeState.RUNNING if row["end_slot"] is None else LifeState.ENDED
        for row in rows["instances"]
    }
    assert [life.subject for life in ledger.lives()] == [
        instance.instance_id for instance in ledger.held()
    ]
    charged = sum(row["cost_micro_usd"] for row in rows["charges"] if row["instances"])
    assert sum(bill.estimate_micro_usd for bill in ledger.bills()) == charged > 0
    ledger.close()


@pytest.mark.parametrize("old", both("v0.1.0"), indirect=True, ids="-".join)
def test_a_process_killed_while_it_migrates_leaves_the_old_ledger(old):
    kill_while_migrating(old)

    assert version_of(old) == [1]
    ledger = SqlLedger(old, OWNER)
    assert ledger.comparable() == EXPECTED["continued"]["rows"]
    ledger.close()


@pytest.mark.parametrize("old", both("end"), indirect=True, ids="-".join)
def test_a_migrated_ledger_has_the_tables_of_a_new_one(old, request, tmp_path):
    new = ledger_url(tmp_path / "new.sqlite")
    if old.startswith("postgresql"):
        new = request.getfixturevalue("postgresql").fresh()
    SqlLedger(old, OWNER).close()
    SqlLedger(new, OWNER).close()

    assert shape(old) == shape(new)
    assert shape(old).keys() == METADATA.tables.keys()


@pytest.mark.parametrize("old", both("end"), indirect=True, ids="-".join)
def test_a_step_that_is_run_again_changes_nothing(old):
    SqlLedger(old, OWNER).close()
    before = rows_by_table(old)
    before["owners"] = []

    SqlLedger(old, OWNER).close()

    after = rows_by_table(old)
    after["owners"] = []
    assert after == before


def test_a_newer_ledger_is_refused_with_both_versions(ledger_database):
    SqlLedger(ledger_database, OWNER).close()
    with raw(ledger_database) as connection:
        connection.execute(text("UPDATE ledger_schema SET version = 99"))

    with pytest.raises(ConfigError, match=rf"schema 99, this release .* up to {SCHEMA_VERSION}"):
        SqlLedger(ledger_database, OWNER)

    assert version_of(ledger_database) == [99]


@pytest.mark.parametrize("old", [("end", "sqlite")], indirect=True, ids="-".join)
def test_an_old_charge_for_instances_that_nobody_held_is_damage(old):
    with raw(old) as connection:
        connection.execute(text("UPDATE charges SET offering_id = 'elsewhere' WHERE instances > 0"))

    with pytest.raises(LedgerDamaged, match=r"charges .*'elsewhere'.* held none then"):
        SqlLedger(old, OWNER)

    assert version_of(old) == [2]
