"""From schema 3 to 4: what the log said of submitted jobs, and whose ledger it is."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)


def migrate(connection: Connection) -> None:
    """Add the two tables, empty: of jobs of before only the admissions are known."""
    new = MetaData()
    Table(
        "job_records",
        new,
        Column("owner", String(200), primary_key=True),
        Column("event_id", String(200), primary_key=True),
        Column("position", BigInteger, nullable=False),
        Column("job_id", String(200), nullable=False),
        *(Column(name, Text, nullable=False) for name in ("correlation_id", "kind", "payload")),
        _checksum(),
        UniqueConstraint("owner", "position", name="job_records_position"),
        Index("job_records_job", "owner", "job_id"),
    )
    Table(
        "meta",
        new,
        Column("owner", String(200), primary_key=True),
        Column("name", String(200), primary_key=True),
        Column("value", Text, nullable=False),
        _checksum(),
    )
    new.create_all(connection)


def _checksum() -> Column[str]:
    return Column("checksum", String(32), nullable=False, server_default="")
