"""A row that is not what was written is not believed."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text, update

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.checksums import CHECKSUM, Flag, checksum
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEntry
from spotline.contracts.errors import LedgerDamaged
from spotline.domain.ledger.billing import Charge
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import cost, fill, raw

VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
ROWS = st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1)

# Who reads a table, past its key.
READERS = {
    "owners": lambda ledger: ledger.check_epoch(),
    "intents": lambda ledger: ledger.intents(["c"]),
    "results": lambda ledger: ledger.intents(["c"]),
    "instances": lambda ledger: ledger.intervals(0, 3600),
    "charges": lambda ledger: ledger.comparable(),
    "answers": lambda ledger: ledger.answers("k"),
    "spend": lambda ledger: ledger.spend_by_job(),
    "bills": lambda ledger: ledger.bills(),
    "settlements": lambda ledger: ledger.bills("j"),
    "admissions": lambda ledger: ledger.admitted(["j"]),
    "job_records": lambda ledger: ledger.job_records(),
    "meta": lambda ledger: ledger.installation_id,
    "lives": lambda ledger: ledger.lives(),
    "transitions": lambda ledger: ledger.transitions_of("i1"),
    "cooldowns": lambda ledger: ledger.cooldowns(),
    "taken_events": lambda ledger: ledger.taken(["event-1"]),
}


@given(ROWS, ROWS)
def test_two_rows_have_one_checksum_only_if_they_are_equal(first, second):
    same = {name: (type(value), value) for name, value in first.items()}
    other = {name: (type(value), value) for name, value in second.items()}

    assert (checksum("t", first) == checksum("t", second)) == (same == other)
    assert checksum("t", first) == checksum("t", dict(reversed(first.items())))
    assert checksum("t", first) != checksum("u", first)


def test_a_truth_value_that_is_none_is_told_from_one():
    sqlite = SimpleNamespace(supports_native_boolean=False)

    read = Flag().result_processor(sqlite, None)

    assert [read(0), read(1), read(3), read(None)] == [False, True, 3, None]


def test_every_table_but_those_of_the_schema_is_sealed():
    unsealed = set(t.METADATA.tables.values()) - set(t.SEALED)

    assert {table.name for table in unsealed} == {"ledger_schema", "ledger_migrations"}
    assert READERS.keys() == {table.name for table in t.SEALED}


@pytest.fixture
def ledger(ledger_database):
    opened = SqlLedger(ledger_database, OWNER)
    fill(opened)
    yield opened
    opened.close()


def another(value):
    if isinstance(value, bool):
        return not value
    return f"{value}x" if isinstance(value, str) else (value or 0) + 1


@pytest.mark.parametrize("table", t.SEALED, ids=lambda table: table.name)
def test_the_reader_of_a_damaged_row_is_told_table_and_key(ledger, ledger_database, table):
    last = [column for column in table.columns if column.name != CHECKSUM][-1]
    read = READERS[table.name]
    read(ledger)
    with raw(ledger_database) as connection:
        value = connection.execute(select(last).limit(1)).scalar()
        connection.execute(update(table).values({last.name: another(value)}))

    with pytest.raises(LedgerDamaged, match=rf"{table.name} \(owner='test'") as raised:
        read(ledger)

    assert raised.value.table == table.name
    assert "restore" in str(raised.value)


def test_what_is_written_over_a_row_is_sealed_again(ledger):
    later = cost(5, slot=1)
    ledger.record(LedgerEntry(call_key="k2", slot=2, charges=(Charge(start_s=0, cost=later),)))

    ledger.audit()

    assert ledger.spend_by_job() == {"j": 12}


def test_bytes_that_are_no_text_are_damage_with_a_key(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    ledger = SqlLedger(url, OWNER)
    fill(ledger)
    with raw(url) as connection:
        connection.execute(text("UPDATE spend SET job_id = CAST(x'ff6a' AS TEXT)"))

    with pytest.raises(LedgerDamaged, match=r"spend \(owner='test', job_id='.*xffj'\)"):
        ledger.spend_by_job()

    ledger.close()
