"""From when until when instances were billed, and whether they ran: EC2 forgets it within an hour."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from spotline.adapters.clouds.aws.described_life import TAKEN_BACK
from spotline.adapters.clouds.aws.parse import Shown
from spotline.adapters.clouds.aws.plan_use import Bought
from spotline.application.cloud_actuator.ports import InstanceState
from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.market.offering import AWS_BILLING, CapacityType
from spotline.domain.units import NS_PER_S

SCHEMA = """
CREATE TABLE IF NOT EXISTS ended_lives (
    instance_id TEXT PRIMARY KEY, capacity_type TEXT NOT NULL, begin_s INTEGER NOT NULL,
    end_s INTEGER NOT NULL, taken_back INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ran (instance_id TEXT PRIMARY KEY);
"""

_ENDING = frozenset({InstanceState.STOPPING, InstanceState.ENDED})


def note_ended(connection: sqlite3.Connection, shown: Iterable[Shown]) -> None:
    """Keep the lives of those that EC2 shows shutting down or terminated, with the time of that."""
    for one in shown:
        instance, end_ns = one.instance, one.changed_ns
        if instance.state not in _ENDING or one.stopped or end_ns is None:
            continue
        begin_s = instance.ready_ns // NS_PER_S
        connection.execute(
            "INSERT OR REPLACE INTO ended_lives VALUES (?, ?, ?, ?, ?)",
            (
                *(instance.instance_id, instance.capacity_type.value, begin_s),
                *(max(begin_s, end_ns // NS_PER_S), int(one.reason in TAKEN_BACK)),
            ),
        )


def note_ran(connection: sqlite3.Connection, instance_ids: Iterable[str]) -> None:
    """Keep which were seen running: what never ran is not billed, and looks the same once it ended."""
    connection.executemany(
        "INSERT OR IGNORE INTO ran VALUES (?)", [(instance_id,) for instance_id in instance_ids]
    )


def bought_on_demand(connection: sqlite3.Connection) -> list[Bought]:
    """All instances on demand that are known, in order of launch, but for those that never ran."""
    rows = connection.execute(
        "SELECT instance_id, stated, state, seen_ns, begin_s, end_s FROM instances "
        "LEFT JOIN ended_lives USING (instance_id) "
        "WHERE instance_id NOT IN (SELECT instance_id FROM never_ran) ORDER BY launch_order"
    ).fetchall()
    found = []
    for row in rows:
        stated = json.loads(row["stated"])
        if stated["capacity_type"] != CapacityType.ON_DEMAND.value:
            continue
        ended, running = row["end_s"] is not None, row["state"] == InstanceState.RUNNING.value
        begin_s = row["begin_s"] if ended else stated["ready_ns"] // NS_PER_S
        found.append(
            Bought(
                instance_id=row["instance_id"],
                offering_id=stated["offering_id"],
                begin_s=begin_s,
                end_s=max(row["end_s"], begin_s + AWS_BILLING.least_s) if ended else None,
                running_s=row["seen_ns"] // NS_PER_S if running else 0,
            )
        )
    return found


def life_of(row: sqlite3.Row) -> BilledLife:
    """A life as it was kept."""
    return BilledLife(
        capacity_type=CapacityType(row["capacity_type"]),
        begin_s=row["begin_s"],
        end_s=row["end_s"],
        taken_back=bool(row["taken_back"]),
    )
