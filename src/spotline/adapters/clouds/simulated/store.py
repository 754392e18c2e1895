"""The simulated cloud's own memory: a SQLite file that outlives the process that launched from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from spotline.adapters.sqlite_file import SqliteFile
from spotline.application.cloud_actuator.ports import Instance, InstanceState
from spotline.domain.market.offering import CapacityType

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS clock (only INTEGER PRIMARY KEY CHECK (only = 1), slot INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS stock (
    offering_id TEXT NOT NULL, capacity_type TEXT NOT NULL, instances INTEGER,
    PRIMARY KEY (offering_id, capacity_type));
CREATE TABLE IF NOT EXISTS fences (owner TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS grants (token TEXT PRIMARY KEY, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS requests (token TEXT PRIMARY KEY, stated TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS instances (
    launch_order INTEGER PRIMARY KEY AUTOINCREMENT, instance_id TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL, owner TEXT NOT NULL, job_id TEXT NOT NULL, tenant TEXT NOT NULL,
    quota_pool TEXT NOT NULL, offering_id TEXT NOT NULL, capacity_type TEXT NOT NULL,
    ready_ns INTEGER NOT NULL, state TEXT NOT NULL, noticed_slot INTEGER NOT NULL DEFAULT -1,
    signal_token TEXT NOT NULL DEFAULT '', noticed_s INTEGER, lost_s INTEGER,
    announced INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS instances_running ON instances (state, offering_id, capacity_type);
CREATE INDEX IF NOT EXISTS instances_token ON instances (token);
CREATE INDEX IF NOT EXISTS instances_signal ON instances (signal_token);
CREATE TABLE IF NOT EXISTS played (
    only INTEGER PRIMARY KEY CHECK (only = 1), ts_ns INTEGER NOT NULL, pace INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ends (instance_id TEXT PRIMARY KEY, slot INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS ends_slot ON ends (slot);
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


class CloudStore(SqliteFile):
    """Opens the file; errors as `SqliteFile`."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            _SCHEMA,
            version=SCHEMA_VERSION,
            name="the simulated cloud's store",
            # A cloud of this machine need survive the end of a process, not of the machine.
            outlives_power=False,
        )

    def select(self, condition: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Instances that satisfy a condition (a constant of this package), in launch order."""
        query = f"SELECT * FROM tagged WHERE {condition} ORDER BY launch_order"  # noqa: S608
        return self.rows(query, parameters)


def instance_from_row(row: sqlite3.Row, state: InstanceState = InstanceState.RUNNING) -> Instance:
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
