"""What the local cloud knows: a SQLite file that outlives the process that launched from it."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path

from spotline.adapters.clouds.local.processes import Process
from spotline.adapters.sqlite_file import SqliteFile
from spotline.application.cloud_actuator.ports import Instance, InstanceState
from spotline.domain.market.offering import CapacityType

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS clouds (only INTEGER PRIMARY KEY CHECK (only = 1), name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tenants (user TEXT PRIMARY KEY, tenant TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS anchors (
    only INTEGER PRIMARY KEY CHECK (only = 1), slot INTEGER NOT NULL, ends_ns INTEGER NOT NULL,
    market_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL, boot TEXT NOT NULL,
    market_s_per_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS stock (
    offering_id TEXT NOT NULL, capacity_type TEXT NOT NULL, instances INTEGER,
    PRIMARY KEY (offering_id, capacity_type));
CREATE TABLE IF NOT EXISTS fences (owner TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS grants (
    token TEXT PRIMARY KEY, stated TEXT NOT NULL, refusal_class TEXT, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS instances (
    launch_order INTEGER PRIMARY KEY AUTOINCREMENT, instance_id TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL, owner TEXT NOT NULL, job_id TEXT NOT NULL, tenant TEXT NOT NULL,
    quota_pool TEXT NOT NULL, offering_id TEXT NOT NULL, capacity_type TEXT NOT NULL,
    ready_ns INTEGER NOT NULL, state TEXT NOT NULL, user TEXT NOT NULL, gpus TEXT NOT NULL,
    boot TEXT NOT NULL, pid INTEGER, began INTEGER, starter_pid INTEGER NOT NULL,
    starter_began INTEGER NOT NULL, taken INTEGER NOT NULL DEFAULT 0,
    stop_by_ns INTEGER, ended_slot INTEGER);
CREATE INDEX IF NOT EXISTS instances_state ON instances (state);
CREATE INDEX IF NOT EXISTS instances_token ON instances (token);
CREATE TABLE IF NOT EXISTS reclaims (
    instance_id TEXT PRIMARY KEY, forced INTEGER NOT NULL, lead_s INTEGER NOT NULL,
    sudden INTEGER NOT NULL, due_ns INTEGER NOT NULL, noticed_ns INTEGER);
CREATE TABLE IF NOT EXISTS sold_out (offering_id TEXT PRIMARY KEY, until_ns INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS takings (token TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS events (
    event_order INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE,
    instance_id TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, at_ns INTEGER NOT NULL,
    lead_s INTEGER NOT NULL, interruption TEXT, token TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS events_token ON events (token);
CREATE TABLE IF NOT EXISTS tags (
    instance_id TEXT PRIMARY KEY, installation_id TEXT NOT NULL, hold INTEGER NOT NULL DEFAULT 0);
CREATE VIEW IF NOT EXISTS tagged AS SELECT instances.*,
    coalesce(tags.installation_id, '') AS installation_id, coalesce(tags.hold, 0) AS hold
    FROM instances LEFT JOIN tags USING (instance_id);
"""


class LocalStore(SqliteFile):
    """Opens the file; errors as `SqliteFile`."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            _SCHEMA,
            version=SCHEMA_VERSION,
            name="the local cloud's store",
            # Its instances do not survive the end of the machine either.
            outlives_power=False,
        )
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO clouds VALUES (1, ?)", (uuid.uuid4().hex[:8],)
            )
        self.name = str(self.rows("SELECT name FROM clouds")[0]["name"])

    def instances(self, condition: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Instances that satisfy a condition (a constant of this package), in launch order."""
        return self.rows(
            f"SELECT * FROM tagged WHERE {condition} ORDER BY launch_order",  # noqa: S608
            parameters,
        )


def instance_of(row: sqlite3.Row, state: InstanceState = InstanceState.RUNNING) -> Instance:
    """Read an instance back."""
    return Instance(
        instance_id=row["instance_id"],
        token=row["token"],
        job_id=row["job_id"],
        tenant=row["tenant"],
        quota_pool=row["quota_pool"],
        offering_id=row["offering_id"],
        capacity_type=CapacityType(row["capacity_type"]),
        ready_ns=row["ready_ns"],
        state=state,
        installation_id=row["installation_id"],
        hold=bool(row["hold"]),
    )


def process_of(row: sqlite3.Row) -> Process | None:
    """Its first process; None before it was started."""
    return None if row["pid"] is None else (row["pid"], row["began"])
