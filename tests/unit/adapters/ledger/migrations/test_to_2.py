"""Answers of schema 1 are read after the step as the events they were."""

import json

from sqlalchemy import text

from spotline.adapters.ledger.answers import load_answers
from spotline.adapters.ledger.migrations import to_2
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEntry
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import raw
from tests.unit.adapters.ledger.test_sql import EVENTS

# What version 0.1.0 wrote of EVENTS.
ANSWERS_OF_SCHEMA_1 = [
    [
        "LaunchRefused",
        {
            "command_id": "c",
            "job_id": "j",
            "tenant": "acme",
            "offering_id": "a",
            "capacity_type": "on_demand",
            "slot": 1,
            "requested": 2,
            "granted": 1,
            "detail": "1 of 2 in stock",
        },
    ],
    [
        "InterruptionNoticed",
        {
            "job_id": "j",
            "tenant": "acme",
            "offering_id": "a",
            "instance_ids": ["i1", "i2"],
            "slot": 1,
            "offset_s": 0,
            "lead_s": 120,
            "kind": "capacity_reclaimed",
        },
    ],
    [
        "CapacityLost",
        {
            "job_id": "j",
            "tenant": "acme",
            "offering_id": "a",
            "instance_ids": ["i1"],
            "slot": 1,
            "offset_s": 120,
        },
    ],
    [
        "CapacityReported",
        {
            "slot": 1,
            "revision": 0,
            "offset_s": 120,
            "settled": False,
            "holdings": [
                {"job_id": "j", "lots": [{"offering_id": "a", "spot": 1, "on_demand": 2}]}
            ],
        },
    ],
    [
        "CostAccrued",
        {
            "job_id": "j",
            "tenant": "acme",
            "offering_id": "a",
            "quota_pool": "pool",
            "capacity_type": "spot",
            "slot": 1,
            "instances": 2,
            "held_s": 60,
            "price_micro_usd": 5,
            "cost_micro_usd": 7,
        },
    ],
]


def events_of(connection):
    return connection.execute(text("SELECT events FROM answers ORDER BY call_key")).scalars().all()


def test_answers_of_schema_1_become_payloads_and_payloads_stay(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    ledger.record(LedgerEntry(call_key="new", slot=1, answers=EVENTS))
    ledger.record(LedgerEntry(call_key="old", slot=1))
    ledger.close()

    with raw(ledger_database) as connection:
        connection.execute(
            text("UPDATE answers SET events = :events WHERE call_key = 'old'"),
            {"events": json.dumps(ANSWERS_OF_SCHEMA_1)},
        )
        to_2.migrate(connection)
        first = events_of(connection)
        to_2.migrate(connection)
        second = events_of(connection)

    assert [load_answers(events) for events in first] == [EVENTS, EVENTS]
    assert second == first
