"""Statements on SQLite's own cursor give what SQLAlchemy gives."""

import pytest
from sqlalchemy import bindparam, select, text

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.opening import ledger_url, reading, writing
from spotline.adapters.ledger.rows import OwnedRows, Transaction
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.statements import OWNER as OF_OWNER
from spotline.adapters.ledger.statements import owned
from spotline.contracts.errors import LedgerDamaged, ProviderUnavailable
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import fill


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    opened = SqlLedger(ledger_url(tmp_path_factory.mktemp("ledger") / "ledger.sqlite"), OWNER)
    fill(opened)
    yield opened
    opened.close()


@pytest.mark.parametrize("table", t.SEALED, ids=lambda table: table.name)
def test_rows_are_those_of_sqlalchemy(ledger, table):
    query = owned(table)
    with reading(ledger._engine) as connection:
        here = query.rows(connection, {OF_OWNER: OWNER})
        there = connection.execute(query.written, {OF_OWNER: OWNER}).all()

    assert [tuple(row) for row in here] == [tuple(row) for row in there]
    for ours, theirs in zip(here, there, strict=True):
        assert dict(ours._mapping) == dict(theirs._mapping)
        assert [type(value) for value in tuple(ours)] == [type(value) for value in tuple(theirs)]
        assert all(getattr(ours, name) == value for name, value in theirs._mapping.items())


def test_something_is_in_most_tables(ledger):
    with reading(ledger._engine) as connection:
        filled = [table for table in t.SEALED if connection.execute(select(table)).first()]

    assert len(filled) > len(t.SEALED) // 2


def test_constants_and_limits_of_a_statement_stand_beside_its_parameters(ledger):
    c = t.owners.c
    query = owned(t.owners, c.epoch >= bindparam("least"), c.owner != "nobody", limit=1)

    with reading(ledger._engine) as connection:
        found = query.rows(connection, {OF_OWNER: OWNER, "least": 1})
        none = query.rows(connection, {OF_OWNER: OWNER, "least": 2})

    assert ([row.owner for row in found], none) == ([OWNER], [])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 700])
def test_any_number_of_keys_finds_each_row_once(ledger, count):
    keys = ["i1", *(f"none-{number}" for number in range(count - 1))]

    lives = OwnedRows._read_keyed(ledger, t.instances, t.instances.c.instance_id, keys)

    assert [row.instance_id for row in lives] == ["i1"]


def test_a_table_that_is_gone_is_said_as_the_drivers_error_is(tmp_path):
    url = ledger_url(tmp_path / "ledger.sqlite")
    ledger = SqlLedger(url, OWNER)
    try:
        with writing(ledger._engine) as connection:
            connection.execute(text("DROP TABLE spend"))
        with pytest.raises(ProviderUnavailable, match="no such table: spend"):
            ledger.spend_by_job()
    finally:
        ledger.close()


def test_a_row_that_was_changed_is_not_believed(tmp_path):
    ledger = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), OWNER)
    try:
        with writing(ledger._engine) as connection:
            Transaction(connection, ledger.owner).add(
                t.spend, [{"job_id": "j", "charges": 1, "micro_usd": 5}]
            )
            connection.execute(text("UPDATE spend SET micro_usd = 4"))
        with pytest.raises(LedgerDamaged, match="job_id='j'"):
            ledger.spend_by_job()
    finally:
        ledger.close()
