"""Whatever changes in a ledger's database behind its back is found when it is opened."""

import shutil
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import BigInteger, and_, delete, select, update

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.audit import audit
from spotline.adapters.ledger.opening import ledger_url, reading
from spotline.adapters.ledger.sql import SqlLedger
from spotline.contracts.errors import ConfigError, LedgerDamaged
from tests.depth import examples
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import fill, raw, rows_by_table


def flipped(column, value, dice: Random):
    """A value that `column` can hold, in whose stored form one bit is another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value ^ (1 << dice.randrange(62 if isinstance(column.type, BigInteger) else 31))
    if not value:
        return "\x01" if value == "" else 0
    place = dice.randrange(len(value))
    # Within the printable characters, which both databases take.
    other = chr(32 + ((ord(value[place]) - 32) ^ (1 << dice.randrange(6))))
    return value[:place] + other + value[place + 1 :]


def of_key(table, row):
    return and_(*(column == row._mapping[column.name] for column in table.primary_key.columns))


@pytest.fixture
def filled(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    fill(ledger)
    yield ledger, ledger_database
    ledger.close()


@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(dice=st.randoms(use_true_random=False))
def test_a_flipped_bit_in_any_column_of_any_row_is_found(filled, dice):
    flips = 0
    # Nothing is committed: each flip is taken back.
    with reading(filled[0]._engine) as connection:
        audit(connection)
        everything = [(table, connection.execute(select(table)).all()) for table in t.SEALED]
        connection.rollback()
        for table, rows in everything:
            row = dice.choice(rows)
            for column in table.columns:
                other = flipped(column, row._mapping[column.name], dice)
                change = update(table).where(of_key(table, row)).values({column.name: other})
                connection.execute(change)
                with pytest.raises(LedgerDamaged) as raised:
                    audit(connection)
                assert raised.value.table == table.name
                connection.rollback()
                flips += 1
        audit(connection)
    assert flips == sum(len(table.columns) for table in t.SEALED)


@pytest.mark.parametrize("name", ["charges", "spend", "bills"])
def test_a_row_of_money_that_is_gone_is_found(filled, name):
    ledger, url = filled
    with raw(url) as connection:
        connection.execute(delete(t.METADATA.tables[name]))

    with pytest.raises(LedgerDamaged, match="number and sum of charges"):
        ledger.audit()


def test_a_damaged_ledger_is_not_opened(filled):
    _, url = filled
    with raw(url) as connection:
        connection.execute(update(t.instances).values(owner="tesu"))

    with pytest.raises(LedgerDamaged, match="instances"):
        SqlLedger(url, OWNER)


def test_a_flipped_byte_in_the_file_is_found_or_changes_nothing(tmp_path):
    original = tmp_path / "ledger.sqlite"
    ledger = SqlLedger(ledger_url(original), OWNER)
    fill(ledger)
    ledger.close()
    before = rows_by_table(ledger_url(original))
    before["owners"] = []
    dice, stored = Random(7), original.read_bytes()
    found = 0
    for turn in range(30):
        place = dice.randrange(len(stored))
        # Every second one where something is written.
        while turn % 2 and not stored[place]:
            place = dice.randrange(len(stored))
        damaged = tmp_path / f"{turn}.sqlite"
        shutil.copy(original, damaged)
        with damaged.open("r+b") as file:
            file.seek(place)
            file.write(bytes([stored[place] ^ (1 << dice.randrange(8))]))
        try:
            SqlLedger(ledger_url(damaged), OWNER).close()
        except (ConfigError, LedgerDamaged):
            found += 1
            continue
        after = rows_by_table(ledger_url(damaged))
        after["owners"] = []
        assert after == before, f"byte {place} of {len(stored)}"
    assert found > 5
