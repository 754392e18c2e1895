"""The ledger's tables: tenant and quota pool in every row of work, money in integer micro-USD."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION = 2

# These need no change of a table: from 2 on answers are payloads, and the older ones still read.
EARLIER_VERSIONS = (1,)

METADATA = MetaData()


def _key(name: str) -> Column[str]:
    return Column(name, String(200), primary_key=True)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _work() -> tuple[Column[str], ...]:
    return _text("job_id"), _text("tenant"), _text("quota_pool"), _text("offering_id")


schema = Table(
    "ledger_schema",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
)

owners = Table("owners", METADATA, _key("owner"), _count("epoch"))

intents = Table(
    "intents",
    METADATA,
    _key("owner"),
    _key("command_id"),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    _count("position"),
    *_work(),
    _count("slot"),
    _count("revision"),
    _count("offset_s"),
    _count("ts_ns"),
    _count("target_spot"),
    _count("target_on_demand"),
    _count("launching"),
    _text("launches"),
    _text("release"),
    Column("dropped", Boolean, nullable=False),
    _count("epoch"),
    Index("intents_ts", "owner", "ts_ns"),
)

results = Table(
    "results",
    METADATA,
    _key("owner"),
    _key("command_id"),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    *_work(),
    _count("slot"),
    _count("granted_spot"),
    _count("granted_on_demand"),
    _count("refused"),
    _text("detail"),
)

instances = Table(
    "instances",
    METADATA,
    _key("owner"),
    _key("instance_id"),
    _text("token"),
    _text("command_id"),
    _count("attempt"),
    *_work(),
    _text("capacity_type"),
    _count("launch_order"),
    _count("start_slot"),
    _count("start_offset_s"),
    Column("end_slot", BigInteger),
    Column("end_offset_s", BigInteger),
    _text("end_reason"),
    _count("noticed_slot"),
    UniqueConstraint("owner", "launch_order", name="instances_launch_order"),
    Index("instances_end", "owner", "end_slot"),
)

charges = Table(
    "charges",
    METADATA,
    _key("owner"),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("job_id", String(200), primary_key=True),
    Column("offering_id", String(200), primary_key=True),
    Column("capacity_type", String(20), primary_key=True),
    Column("start_s", BigInteger, primary_key=True, autoincrement=False),
    _text("tenant"),
    _text("quota_pool"),
    _count("instances"),
    _count("held_s"),
    _count("price_micro_usd"),
    _count("cost_micro_usd"),
    Index("charges_job", "owner", "job_id"),
)

answers = Table(
    "answers", METADATA, _key("owner"), _key("call_key"), _count("slot"), _text("events")
)
