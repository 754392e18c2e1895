import base64
import json
from dataclasses import replace

import pytest
from sqlalchemy import text

from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEnd, LedgerEntry, OwnerFenced
from spotline.contracts.codec import decode
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionKind,
    InterruptionNoticed,
    LaunchRefused,
)
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.intents import Intent, IntentResult, Launch
from spotline.domain.market.offering import CapacityType
from tests.fakes.actuator import OWNER, ledger_launch

INTENT = Intent(
    command_id="c",
    attempt=0,
    job_id="j",
    tenant="acme",
    quota_pool="pool",
    offering_id="a",
    slot=1,
    revision=0,
    offset_s=0,
    ts_ns=60,
    target=Lot(offering_id="a", spot=2),
    release=("x",),
    launches=(Launch(capacity_type=CapacityType.SPOT, requested=3, permitted=2, token="t"),),
)
COST = CostAccrued(
    job_id="j",
    tenant="acme",
    offering_id="a",
    quota_pool="pool",
    capacity_type=CapacityType.SPOT,
    slot=1,
    instances=2,
    held_s=60,
    price_micro_usd=5,
    cost_micro_usd=7,
)
EVENTS = (
    LaunchRefused(
        command_id="c",
        job_id="j",
        tenant="acme",
        offering_id="a",
        capacity_type=CapacityType.ON_DEMAND,
        slot=1,
        requested=2,
        granted=1,
        detail="1 of 2 in stock",
    ),
    InterruptionNoticed(
        job_id="j",
        tenant="acme",
        offering_id="a",
        instance_ids=("i1", "i2"),
        slot=1,
        offset_s=0,
        lead_s=120,
        kind=InterruptionKind.CAPACITY_RECLAIMED,
    ),
    CapacityLost(
        job_id="j", tenant="acme", offering_id="a", instance_ids=("i1",), slot=1, offset_s=120
    ),
    CapacityReported(
        slot=1,
        revision=0,
        offset_s=120,
        settled=False,
        holdings=(JobHolding(job_id="j", lots=(Lot(offering_id="a", spot=1, on_demand=2),)),),
    ),
    COST,
)


@pytest.fixture
def ledger(ledger_database):
    opened = SqlLedger(ledger_database, OWNER)
    yield opened
    opened.close()


@pytest.fixture
def reopen(ledger_database):
    opened = []

    def again(owner=OWNER):
        opened.append(SqlLedger(ledger_database, owner))
        return opened[-1]

    yield again
    for reopened in opened:
        reopened.close()


def test_recorded_answers_come_back_equal_in_another_process(ledger, reopen):
    ledger.record(LedgerEntry(call_key="k", slot=1, answers=EVENTS))

    assert reopen().answers("k") == EVENTS
    assert ledger.answers("other") is None


def test_answers_are_stored_by_the_kinds_of_the_log(ledger):
    ledger.record(LedgerEntry(call_key="k", slot=1, answers=EVENTS))

    with ledger._engine.connect() as connection:
        stored = json.loads(connection.execute(text("SELECT events FROM answers")).scalar())

    assert [decode(kind, base64.b64decode(payload)) for kind, payload in stored] == list(EVENTS)


def test_a_call_is_recorded_once(ledger):
    entry = LedgerEntry(
        call_key="k",
        slot=1,
        launched=(ledger_launch("i1"),),
        charges=(Charge(start_s=0, cost=COST),),
    )

    ledger.record(entry)
    ledger.record(entry)

    assert ledger.spend_micro_usd("j") == ledger.total_micro_usd() == 7


def test_an_intent_is_pending_until_its_result(ledger, reopen):
    ledger.write_intents([INTENT])
    ledger.write_intents([replace(INTENT, ts_ns=99)])
    other = reopen()

    assert list(other.pending()) == [INTENT]
    result = IntentResult(intent=INTENT, granted_spot=1, granted_on_demand=0, refused=2)
    other.record(LedgerEntry(results=(result,)))
    assert other.pending() == []
    assert other.intents(["c", "none"])["c"].result == result


def test_launches_are_counted_in_market_time(ledger):
    ledger.write_intents([INTENT])

    assert (ledger.launches_since(59), ledger.launches_since(60)) == (2, 0)


def test_intervals_cut_instances_at_the_edges_of_a_slot(ledger):
    ledger.record(
        LedgerEntry(
            launched=(ledger_launch("i1", slot=1, offset_s=600), ledger_launch("i2", slot=1)),
            ended=(LedgerEnd(instance_id="i1", slot=2, offset_s=30, reason="lost"),),
        )
    )

    def cut(slot):
        return [(held.start_s, held.end_s) for held in ledger.intervals(slot, 3600)]

    assert (cut(0), cut(1)) == ([], [(600, 3600), (0, 3600)])
    assert (cut(2), cut(3)) == ([(0, 30), (0, 3600)], [(0, 3600)])
    assert [held.instance_id for held in ledger.held()] == ["i2"]


def test_a_newer_epoch_fences_the_older_one(ledger, reopen):
    newer = reopen()

    assert newer.owner.epoch == ledger.owner.epoch + 1
    with pytest.raises(OwnerFenced, match="epoch 1 is over, epoch 2"):
        ledger.write_intents([INTENT])
    with pytest.raises(OwnerFenced):
        ledger.record(LedgerEntry(call_key="k"))
    assert newer.pending() == []


def test_owners_share_a_database_without_seeing_each_other(ledger, reopen):
    other = reopen("other")
    ledger.write_intents([INTENT])

    other.write_intents([INTENT])

    assert len(other.pending()) == len(ledger.pending()) == 1
    assert other.owner.epoch == 1


def test_the_epoch_does_not_count_in_comparisons(ledger, reopen):
    ledger.write_intents([INTENT])
    before = ledger.comparable()

    assert reopen().comparable() == before


def test_every_row_of_work_names_tenant_and_quota_pool(ledger):
    ledger.write_intents([INTENT])
    result = IntentResult(intent=INTENT, granted_spot=1, granted_on_demand=0, refused=0)
    ledger.record(
        LedgerEntry(
            results=(result,),
            launched=(ledger_launch("i1"),),
            charges=(Charge(start_s=0, cost=COST),),
        )
    )

    tables = ledger.comparable()

    assert set(tables) == {"intents", "results", "instances", "charges"}
    for rows in tables.values():
        assert rows
        assert {(row["tenant"], row["quota_pool"]) for row in rows} == {("acme", "pool")}


def test_sqlite_writes_ahead_and_syncs_fully(tmp_path):
    ledger = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), OWNER)
    with ledger._engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
    ledger.close()
