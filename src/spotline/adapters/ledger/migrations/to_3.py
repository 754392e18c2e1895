"""From schema 2 to 3: checksums, each job's spend, each instance's bill, admissions."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
)

from spotline.adapters.ledger.bills import instance_shares
from spotline.adapters.ledger.migrations import to_2
from spotline.adapters.ledger.migrations.sealing import add_checksums, seal_all
from spotline.adapters.ledger.rows import value_of
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.bills import HeldSpan

_WORK = ("job_id", "tenant", "quota_pool", "offering_id")
_SEALED = ("owners", "intents", "results", "instances", "charges", "answers")
_NEW = (
    "spend",
    "bills",
    "settlements",
    "admissions",
    "lives",
    "transitions",
    "cooldowns",
    "taken_events",
)


def migrate(connection: Connection) -> None:
    """Add the new tables and columns, reckon sums and shares from the charges, seal every row."""
    # A ledger of schema 1 that release 0.2.0 went on with keeps its old answers under the number 2.
    to_2.migrate(connection)
    _new_tables(connection)
    add_checksums(connection, _SEALED)
    _reckon(connection)
    _live(connection)
    seal_all(connection, (*_SEALED, *_NEW))


def _new_tables(connection: Connection) -> None:
    new = MetaData()

    Table(
        "ledger_migrations",
        new,
        Column("version", Integer, primary_key=True, autoincrement=False),
        *_text("release"),
    )
    Table(*_keyed(new, "spend", "owner", "job_id"), *_count("charges", "micro_usd"), _checksum())
    Table(
        *_keyed(new, "bills", "owner", "instance_id"),
        *_text(*_WORK, "capacity_type"),
        *_count("estimate_micro_usd"),
        _checksum(),
        Index("bills_job", "owner", "job_id"),
    )
    Table(
        *_keyed(new, "settlements", "owner", "instance_id"),
        Column("source", String(20), primary_key=True),
        *_count("micro_usd", "ts_ns"),
        _checksum(),
    )
    Table(
        *_keyed(new, "admissions", "owner", "job_id"),
        *_text("tenant", "digest"),
        *_count("slot", "ts_ns"),
        _checksum(),
    )
    _new_tables_of_lives(new)
    new.create_all(connection)


def _new_tables_of_lives(new: MetaData) -> None:
    Table(
        *_keyed(new, "lives", "owner", "subject"),
        *_count("position"),
        *_text("instance_id", "token", "command_id"),
        *_count("attempt"),
        *_text(*_WORK, "capacity_type"),
        Column("state", String(20), nullable=False),
        *_count("since_ns", "instances"),
        Column("shown", Boolean, nullable=False),
        Column("absent_ns", BigInteger),
        Column("asked_ns", BigInteger),
        Column("ours", Boolean, nullable=False),
        _checksum(),
        UniqueConstraint("owner", "position", name="lives_position"),
        Index("lives_state", "owner", "state"),
    )
    Table(
        *_keyed(new, "transitions", "owner"),
        Column("position", BigInteger, primary_key=True, autoincrement=False),
        Column("subject", String(200), nullable=False),
        *_text("token", *_WORK, "before", "state", "what"),
        *_count("at_ns", "slot", "epoch"),
        _checksum(),
        Index("transitions_subject", "owner", "subject"),
        Index("transitions_at", "owner", "at_ns"),
    )
    Table(
        *_keyed(new, "cooldowns", "owner"),
        Column("scope", String(20), primary_key=True),
        Column("key", String(200), primary_key=True),
        *_text("refusal_class"),
        *_count("refusals", "refused_ns"),
        Column("until_ns", BigInteger),
        *_count("epoch"),
        *_text("detail"),
        _checksum(),
    )
    Table(*_keyed(new, "taken_events", "owner", "event_id"), *_count("slot"), _checksum())


def _text(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


def _count(*names: str) -> list[Column[Any]]:
    return [Column(name, BigInteger, nullable=False) for name in names]


def _keyed(new: MetaData, table: str, *key: str) -> list[Any]:
    return [table, new, *(Column(name, String(200), primary_key=True) for name in key)]


def _checksum() -> Column[Any]:
    return Column("checksum", String(32), nullable=False, server_default="")


def _live(connection: Connection) -> None:
    """Give every instance its life: what is held runs, and what is not has ended."""
    old = MetaData()
    instances, lives = (
        Table(name, old, autoload_with=connection) for name in ("instances", "lives")
    )
    rows = [
        {column.name: row._mapping.get(column.name) for column in lives.columns}
        | {
            "subject": row.instance_id,
            "position": row.launch_order,
            "state": "running" if row.end_slot is None else "ended",
            "since_ns": 0,
            "instances": 1,
            "shown": True,
            "ours": True,
            "checksum": "",
        }
        for row in connection.execute(select(instances))
    ]
    if rows:
        connection.execute(insert(lives), rows)


def _reckon(connection: Connection) -> None:
    old = MetaData()
    names = ("charges", "instances", "spend", "bills")
    charges, instances, spend, bills = (
        Table(name, old, autoload_with=connection) for name in names
    )
    by_owner: dict[str, list[Charge]] = defaultdict(list)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in connection.execute(select(charges)):
        by_owner[row.owner].append(
            Charge(start_s=row.start_s, cost=value_of(CostAccrued, row, estimated=False))
        )
        sums[row.owner, row.job_id][0] += 1
        sums[row.owner, row.job_id][1] += row.cost_micro_usd
    if sums:
        connection.execute(
            insert(spend),
            [
                {"owner": owner, "job_id": job_id, "charges": count, "micro_usd": total}
                for (owner, job_id), (count, total) in sorted(sums.items())
            ],
        )
    for owner, charged in sorted(by_owner.items()):
        query = select(instances).where(instances.c.owner == owner)
        rows = connection.execute(query.order_by(instances.c.launch_order)).all()
        spans = [value_of(HeldSpan, row) for row in rows]
        billed = [charge for charge in charged if charge.cost.instances]
        billed.sort(key=lambda charge: (charge.cost.slot, charge.start_s, charge.cost.job_id))
        shares = instance_shares(billed, spans)
        taken = [
            {column.name: row._mapping.get(column.name, "") for column in bills.columns}
            | {"estimate_micro_usd": shares[row.instance_id]}
            for row in rows
            if row.instance_id in shares
        ]
        if taken:
            connection.execute(insert(bills), taken)
