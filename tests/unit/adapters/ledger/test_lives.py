"""Lives, transitions, cool-downs and taken events in the ledger."""

from dataclasses import replace

import pytest

from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEntry
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.ledger.cooldowns import CoolingScope
from spotline.domain.ledger.instance_life import LifeInput, LifeState
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import became, cooldown, intent, life

PENDING, RUNNING, ENDED = LifeState.PENDING, LifeState.RUNNING, LifeState.ENDED


@pytest.fixture
def ledger(ledger_database):
    opened = SqlLedger(ledger_database, OWNER)
    yield opened
    opened.close()


def test_the_last_transition_of_a_subject_is_its_life(ledger):
    first = life("i1", absent_ns=3, asked_ns=4, ours=False, instances=2)
    second, launch = life("i2"), life("", LifeState.UNKNOWN, token="asked")
    running = replace(first, state=RUNNING, shown=True, since_ns=9, absent_ns=None)
    ledger.record(
        LedgerEntry(
            slot=4,
            transitions=(
                became(first, LifeState.REQUESTED, LifeInput.GRANTED),
                became(second, LifeState.REQUESTED, LifeInput.GRANTED),
                became(launch, LifeState.REQUESTED, LifeInput.OUTCOME_UNKNOWN),
                became(running, PENDING, LifeInput.SEEN_RUNNING, at_ns=9),
            ),
        )
    )
    over = replace(second, state=ENDED, since_ns=20)
    ledger.record(LedgerEntry(transitions=(became(over, PENDING, LifeInput.SEEN_ENDED, 20),)))

    assert ledger.lives() == [running, launch]
    assert ledger.lives_of(["i1", "i2", "asked", "never"]) == {
        "i1": running,
        "i2": over,
        "asked": launch,
    }
    assert ledger.transitions_of("i1") == [
        (LifeState.REQUESTED, LifeInput.GRANTED, PENDING, 5),
        (PENDING, LifeInput.SEEN_RUNNING, RUNNING, 9),
    ]
    ledger.audit()


def test_lives_keep_the_order_in_which_they_came(ledger):
    for name in ("z", "a", "m", "z"):
        change = became(life(name), LifeState.REQUESTED, LifeInput.GRANTED)
        ledger.record(LedgerEntry(transitions=(change,)))

    assert [each.subject for each in ledger.lives()] == ["z", "a", "m"]


def test_the_latest_time_is_that_of_any_transition_or_intent(ledger):
    assert ledger.latest_ns() == 0
    ledger.write_intents([intent("c1", ts_ns=70), intent("c2", ts_ns=60)])
    assert ledger.latest_ns() == 70
    for at_ns in (90, 80):
        change = became(life(), LifeState.REQUESTED, LifeInput.GRANTED, at_ns)
        ledger.record(LedgerEntry(transitions=(change,)))
    assert ledger.latest_ns() == 90


def test_cooldowns_are_replaced_and_taken_away_by_scope_and_key(ledger):
    spot, zone = cooldown(), cooldown("zone-1", scope=CoolingScope.ZONE, until_ns=None)
    pool = cooldown("spot/p", scope=CoolingScope.POOL, refusal_class=RefusalClass.QUOTA, epoch=3)
    ledger.record(LedgerEntry(cooldowns=(zone, spot, pool)))
    longer = replace(spot, refusals=2, until_ns=400, detail="still none")

    ledger.record(LedgerEntry(cooldowns=(longer,), warmed=((CoolingScope.ZONE, "zone-1"),)))

    assert ledger.cooldowns() == [longer, pool]
    ledger.record(LedgerEntry(warmed=((CoolingScope.POOL, "other"), (CoolingScope.POOL, "spot/p"))))
    assert ledger.cooldowns() == [longer]
    ledger.audit()


def test_events_are_taken_once(ledger):
    ledger.record(LedgerEntry(taken=("a", "b", "a")))
    ledger.record(LedgerEntry(taken=("b", "c")))

    assert ledger.taken(["a", "c", "d"]) == {"a", "c"}
    assert ledger.taken([]) == frozenset()


def test_a_call_that_is_recorded_moves_no_life_again(ledger):
    change = became(life(), LifeState.REQUESTED, LifeInput.GRANTED)
    for _ in range(2):
        ledger.record(LedgerEntry(call_key="k", transitions=(change,)))

    assert len(ledger.transitions_of("i1")) == 1


def test_the_latest_slot_is_that_of_the_latest_command_or_answer(ledger):
    assert ledger.latest_slot() == -1

    ledger.write_intents([intent("c1", slot=3)])
    assert ledger.latest_slot() == 3

    ledger.record(LedgerEntry(call_key="opened", slot=5))
    assert ledger.latest_slot() == 5
