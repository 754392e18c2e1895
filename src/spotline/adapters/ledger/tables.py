"""The ledger's tables: tenant and quota pool in every row of work, money in integer micro-USD.

These are the tables of the newest schema. To change one, raise `SCHEMA_VERSION` and write the step
that leads there from the version before (`migrations/`). Every table but the schema's own is
sealed: its rows carry a checksum.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from spotline.adapters.ledger.checksums import Flag, checksum_column

SCHEMA_VERSION = 5

METADATA = MetaData()


def _key(name: str) -> Column[str]:
    return Column(name, String(200), primary_key=True)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _moment(name: str) -> Column[int]:
    return Column(name, BigInteger)


def _work() -> tuple[Column[str], ...]:
    return _text("job_id"), _text("tenant"), _text("quota_pool"), _text("offering_id")


schema = Table(
    "ledger_schema",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
)

# Which steps led here, and which release took them. A ledger that was made new has none.
migrations = Table(
    "ledger_migrations",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    _text("release"),
)

owners = Table("owners", METADATA, _key("owner"), _count("epoch"), checksum_column())

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
    Column("dropped", Flag, nullable=False),
    _count("epoch"),
    checksum_column(),
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
    checksum_column(),
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
    checksum_column(),
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
    checksum_column(),
    Index("charges_job", "owner", "job_id"),
)

answers = Table(
    "answers",
    METADATA,
    _key("owner"),
    _key("call_key"),
    _count("slot"),
    _text("events"),
    checksum_column(),
)

# What each job was charged so far: the sum of its charges, kept so that nobody adds them all up.
spend = Table(
    "spend",
    METADATA,
    _key("owner"),
    _key("job_id"),
    _count("charges"),
    _count("micro_usd"),
    checksum_column(),
)

# Each instance's share of the charges; over a job's instances they sum to its charges for instances.
bills = Table(
    "bills",
    METADATA,
    _key("owner"),
    _key("instance_id"),
    *_work(),
    _text("capacity_type"),
    _count("estimate_micro_usd"),
    checksum_column(),
    Index("bills_job", "owner", "job_id"),
)

settlements = Table(
    "settlements",
    METADATA,
    _key("owner"),
    _key("instance_id"),
    Column("source", String(20), primary_key=True),
    _count("micro_usd"),
    _count("ts_ns"),
    # The part of it that is the instance's disks'.
    Column("disk_micro_usd", BigInteger, nullable=False, server_default="0"),
    checksum_column(),
)

admissions = Table(
    "admissions",
    METADATA,
    _key("owner"),
    _key("job_id"),
    _text("tenant"),
    _text("digest"),
    _count("slot"),
    _count("ts_ns"),
    checksum_column(),
)

# What the log said of submitted jobs, as it said it: so that a log that is lost can be told again.
job_records = Table(
    "job_records",
    METADATA,
    _key("owner"),
    _key("event_id"),
    _count("position"),
    Column("job_id", String(200), nullable=False),
    _text("correlation_id"),
    _text("kind"),
    _text("payload"),
    checksum_column(),
    UniqueConstraint("owner", "position", name="job_records_position"),
    Index("job_records_job", "owner", "job_id"),
)

# Whose ledger it is, and which log it was written by.
meta = Table("meta", METADATA, _key("owner"), _key("name"), _text("value"), checksum_column())

# Where every instance and every launch of unknown outcome stands, by instance id or token.
lives = Table(
    "lives",
    METADATA,
    _key("owner"),
    _key("subject"),
    _count("position"),
    _text("instance_id"),
    _text("token"),
    _text("command_id"),
    _count("attempt"),
    *_work(),
    _text("capacity_type"),
    Column("state", String(20), nullable=False),
    _count("since_ns"),
    _count("instances"),
    Column("shown", Flag, nullable=False),
    _moment("absent_ns"),
    _moment("asked_ns"),
    Column("ours", Flag, nullable=False),
    checksum_column(),
    UniqueConstraint("owner", "position", name="lives_position"),
    Index("lives_state", "owner", "state"),
)

# How they came there; nothing is ever taken away.
transitions = Table(
    "transitions",
    METADATA,
    _key("owner"),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("subject", String(200), nullable=False),
    _text("token"),
    *_work(),
    _text("before"),
    _text("state"),
    _text("what"),
    _count("at_ns"),
    _count("slot"),
    _count("epoch"),
    checksum_column(),
    Index("transitions_subject", "owner", "subject"),
    Index("transitions_at", "owner", "at_ns"),
)

cooldowns = Table(
    "cooldowns",
    METADATA,
    _key("owner"),
    Column("scope", String(20), primary_key=True),
    _key("key"),
    _text("refusal_class"),
    _count("refusals"),
    _count("refused_ns"),
    _moment("until_ns"),
    _count("epoch"),
    _text("detail"),
    checksum_column(),
)

taken_events = Table(
    "taken_events",
    METADATA,
    _key("owner"),
    _key("event_id"),
    _count("slot"),
    checksum_column(),
)

SEALED = tuple(table for table in METADATA.tables.values() if "checksum" in table.columns)
