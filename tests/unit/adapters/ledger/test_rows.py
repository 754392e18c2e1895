"""One owner at a time, and many rows in one transaction."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import delete

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEntry, OwnerFenced
from spotline.contracts.errors import LedgerDamaged
from spotline.domain.ledger.instance_life import LifeInput, LifeState
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import became, fill, instance_launch, intent, life, raw


def test_a_takeover_waits_for_the_transaction_under_way_and_fences_the_next(ledger_database):
    older = SqlLedger(ledger_database, OWNER)
    newer = []
    taking = threading.Thread(target=lambda: newer.append(SqlLedger(ledger_database, OWNER)))
    with older._writing() as transaction:
        taking.start()
        transaction.add(t.taken_events, [{"event_id": "e", "slot": 1}])
        taking.join(timeout=0.5)
        assert taking.is_alive(), "the owner's row was not locked"
    taking.join(timeout=30)

    assert newer[0].owner.epoch == older.owner.epoch + 1
    assert newer[0].taken(["e"]) == {"e"}
    for write in (
        lambda: older.write_intents([intent()]),
        lambda: older.record(LedgerEntry(call_key="k", launched=(instance_launch("i"),))),
        lambda: older.settle([]),
        lambda: older.admit([]),
        older.check_epoch,
    ):
        with pytest.raises(OwnerFenced, match="epoch 1 is over, epoch 2"):
            write()
    newer[0].check_epoch()
    assert newer[0].held() == newer[0].pending() == []
    older.close()
    newer[0].close()


def test_two_owners_write_at_once_and_see_their_own(ledger_database):
    ledgers = [SqlLedger(ledger_database, name) for name in ("one", "two")]

    def work(ledger):
        for number in range(10):
            ledger.write_intents([intent(f"c{number}", job_id=ledger.owner.name)])
            launched = (instance_launch(f"i{number}", job_id=ledger.owner.name),)
            ledger.record(LedgerEntry(call_key=f"k{number}", launched=launched))

    with ThreadPoolExecutor() as pool:
        list(pool.map(work, ledgers))

    for ledger in ledgers:
        assert len(ledger.held()) == len(ledger.pending()) == 10
        assert {held.job_id for held in ledger.held()} == {ledger.owner.name}
        assert [held.order for held in ledger.held()] == list(range(1, 11))
        ledger.audit()
        ledger.close()


def test_those_who_open_a_new_database_at_once_get_epochs_of_their_own(ledger_database):
    with ThreadPoolExecutor() as pool:
        ledgers = list(pool.map(lambda _: SqlLedger(ledger_database, OWNER), range(4)))

    assert sorted(ledger.owner.epoch for ledger in ledgers) == [1, 2, 3, 4]
    for ledger in ledgers:
        ledger.close()


def test_an_owner_whose_row_is_gone_does_not_write(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    with raw(ledger_database) as connection:
        connection.execute(delete(t.owners))

    with pytest.raises(LedgerDamaged, match="no longer there"):
        ledger.write_intents([intent()])
    ledger.close()


def test_thousands_of_keys_are_read_in_parts(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    fill(ledger)
    lives = [life(f"n{number}") for number in range(1200)]
    ledger.record(
        LedgerEntry(
            transitions=tuple(
                became(each, LifeState.REQUESTED, LifeInput.GRANTED) for each in lives
            )
        )
    )

    found = ledger.lives_of([each.subject for each in lives])

    assert found == {each.subject: each for each in lives}
    ledger.close()


def test_any_text_that_a_tenant_may_be_called_is_stored(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    names = ["a\0b", "\N{SNOWMAN}", "'; DROP TABLE owners; --", "x" * 5000, "\x7f\n\t"]
    ledger.write_intents([intent(f"c{n}", tenant=name) for n, name in enumerate(names)])

    assert [each.tenant for each in ledger.pending()] == ["a\N{REPLACEMENT CHARACTER}b", *names[1:]]
    ledger.audit()
    ledger.close()
