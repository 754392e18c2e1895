"""From schema 4 to 5: which part of a settled amount is the instance's disks'."""

from __future__ import annotations

from sqlalchemy import Connection, text

from spotline.adapters.ledger.migrations.sealing import check_all, seal_all

_TABLES = ("settlements",)


def migrate(connection: Connection) -> None:
    """Add the column: what was settled before had no disks in it."""
    check_all(connection, _TABLES)
    connection.execute(
        text("ALTER TABLE settlements ADD COLUMN disk_micro_usd BIGINT DEFAULT '0' NOT NULL")
    )
    seal_all(connection, _TABLES)
