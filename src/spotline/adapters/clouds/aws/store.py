"""What the adapter must not forget: a SQLite file beside the ledger.

Launches before they are sent, the instances that it knows, the events that were told, and messages
that nobody could read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spotline.adapters.clouds.aws import ended_lives
from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.parse import Shown, interruption_by
from spotline.adapters.clouds.aws.plan_use import Bought
from spotline.adapters.sqlite_file import SqliteFile
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudEventKind,
    Instance,
    InstanceState,
)
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS launches (
    owner TEXT NOT NULL, token TEXT NOT NULL, payload TEXT NOT NULL, fleet TEXT NOT NULL,
    sent_ns INTEGER NOT NULL, tries INTEGER NOT NULL DEFAULT 0, answer TEXT,
    PRIMARY KEY (owner, token));
CREATE TABLE IF NOT EXISTS instances (
    launch_order INTEGER PRIMARY KEY AUTOINCREMENT, instance_id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL, account TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL,
    stated TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    noticed INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0,
    seen_ns INTEGER NOT NULL, shown INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS instances_owner ON instances (owner, state);
CREATE TABLE IF NOT EXISTS events (
    event_order INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE,
    instance_id TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, at_ns INTEGER NOT NULL,
    lead_s INTEGER NOT NULL, heard_ns INTEGER NOT NULL, token TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS events_token ON events (token);
CREATE TABLE IF NOT EXISTS takings (
    taking INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, told TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS unread (
    message_id TEXT PRIMARY KEY, body TEXT NOT NULL, problem TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS never_ran (instance_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL);
"""
# A taking is asked for again right after a crash, if at all; unread messages are for a person.
_MOST_TAKINGS = 10_000
_ENDED = InstanceState.ENDED.value
_FORGET = (
    "DELETE FROM events WHERE token != '' AND heard_ns < :before",
    "DELETE FROM launches WHERE answer IS NOT NULL AND sent_ns < :before",
    "DELETE FROM instances WHERE state = :ended AND seen_ns < :before",
    "DELETE FROM never_ran WHERE instance_id NOT IN (SELECT instance_id FROM instances)",
    "DELETE FROM ran WHERE instance_id NOT IN (SELECT instance_id FROM instances)",
)
_MOST_UNREAD = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SentLaunch:
    """A launch that was sent, or was about to be; `answer` is None while nobody knows it."""

    payload: str
    fleet: Mapping[str, Any]
    sent_ns: int
    tries: int
    answer: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownInstance:
    """An instance as it was last seen, and where it is."""

    instance: Instance
    owner: str
    place: AwsPlace
    zone: str
    reason: str
    noticed: bool
    asked: bool
    seen_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldEvent:
    """What was told of an instance, ours or not, under an id that is the same each time."""

    event_id: str
    instance_id: str
    kind: CloudEventKind
    state: InstanceState
    at_ns: int
    lead_s: int = 0


class AwsStore(SqliteFile):
    """Opens the file; errors as `SqliteFile`."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            _SCHEMA + ended_lives.SCHEMA,
            version=SCHEMA_VERSION,
            name="the store of the cloud aws",
            # A launch that was sent must be known after a power failure.
            outlives_power=True,
        )

    # --- launches -----------------------------------------------------------------------------

    def launch(self, owner: str, token: str) -> SentLaunch | None:
        """What is known of a token; None if it was never sent."""
        rows = self.rows("SELECT * FROM launches WHERE owner = ? AND token = ?", (owner, token))
        if not rows:
            return None
        row = rows[0]
        return SentLaunch(
            payload=row["payload"],
            fleet=json.loads(row["fleet"]),
            sent_ns=row["sent_ns"],
            tries=row["tries"],
            answer=None if row["answer"] is None else json.loads(row["answer"]),
        )

    def sending(
        self, owner: str, token: str, payload: str, fleet: Mapping[str, Any], now_ns: int
    ) -> None:
        """Note what is about to be sent."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO launches (owner, token, payload, fleet, sent_ns) "
                "VALUES (?, ?, ?, ?, ?)",
                (owner, token, payload, json.dumps(fleet), now_ns),
            )

    def sending_anew(self, owner: str, token: str, fleet: Mapping[str, Any], now_ns: int) -> None:
        """Note that the next try is another fleet: the one before launched nothing, and said so."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE launches SET fleet = ?, sent_ns = ?, tries = tries + 1 "
                "WHERE owner = ? AND token = ?",
                (json.dumps(fleet), now_ns, owner, token),
            )

    def answered(
        self,
        owner: str,
        token: str,
        answer: Mapping[str, Any],
        launched: Iterable[Shown],
        now_ns: int,
    ) -> None:
        """Note an answer, and the instances that it names."""
        with self.transaction() as connection:
            for shown in launched:
                _know(connection, shown, now_ns, seen=False)
            connection.execute(
                "UPDATE launches SET answer = ? WHERE owner = ? AND token = ?",
                (json.dumps(answer), owner, token),
            )

    # --- instances ----------------------------------------------------------------------------

    def seen(self, shown: Iterable[Shown], now_ns: int) -> None:
        """Note what a listing showed."""
        with self.transaction() as connection:
            for one in (shown := tuple(shown)):
                _know(connection, one, now_ns, seen=True)
            ended_lives.note_ended(connection, shown)
            ended_lives.note_ran(
                connection,
                (
                    one.instance.instance_id
                    for one in shown
                    if one.instance.state is InstanceState.RUNNING
                ),
            )

    def asked(self, instance_ids: Iterable[str]) -> None:
        """Note that we asked for their end."""
        with self.transaction() as connection:
            for instance_id in instance_ids:
                connection.execute(
                    "UPDATE instances SET asked = 1 WHERE instance_id = ?", (instance_id,)
                )

    def note_never_ran(self, instance_ids: Iterable[str]) -> None:
        """Note what was still pending as it was ended: it is not billed."""
        with self.transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO never_ran VALUES (?)", [(one,) for one in instance_ids]
            )

    def never_ran(self, instance_ids: Iterable[str]) -> set[str]:
        """Those of these instances that were still pending as they were ended."""
        query = "SELECT instance_id FROM never_ran WHERE instance_id = ?"
        return {one for one in instance_ids if self.rows(query, (one,))}

    def note_ran(self, instance_ids: Iterable[str]) -> None:
        """Note what was running as it was ended."""
        with self.transaction() as connection:
            ended_lives.note_ran(connection, instance_ids)

    def ran(self, instance_ids: Iterable[str]) -> set[str]:
        """Those of these instances that were seen running."""
        query = "SELECT instance_id FROM ran WHERE instance_id = ?"
        return {one for one in instance_ids if self.rows(query, (one,))}

    def bought_on_demand(self) -> list[Bought]:
        """All instances on demand that are known, but for those that never ran."""
        with self.transaction() as connection:
            return ended_lives.bought_on_demand(connection)

    def ended_lives(self, instance_ids: Iterable[str]) -> dict[str, BilledLife]:
        """From when until when these ran, of those that were shown as they ended."""
        query = "SELECT * FROM ended_lives WHERE instance_id = ?"
        rows = [row for one in instance_ids for row in self.rows(query, (one,))]
        return {row["instance_id"]: ended_lives.life_of(row) for row in rows}

    def known(self, instance_ids: Iterable[str]) -> dict[str, KnownInstance]:
        """Those of these instances that were ever granted or shown."""
        found = {}
        for instance_id in instance_ids:
            rows = self.rows("SELECT * FROM instances WHERE instance_id = ?", (instance_id,))
            found.update({row["instance_id"]: _known_of(row) for row in rows})
        return found

    def living_in(
        self, owner: str, place: AwsPlace, *, shown_only: bool = True
    ) -> list[KnownInstance]:
        """What was last seen of an owner's instances in a place and had not ended, in launch order.

        Of those that were granted, only what was shown since, or all of them.
        """
        rows = self.rows(
            "SELECT * FROM instances WHERE owner = ? AND account = ? AND region = ? AND shown >= ? "
            "AND state != ? ORDER BY launch_order",
            (owner, place.account, place.region, int(shown_only), InstanceState.ENDED.value),
        )
        return [_known_of(row) for row in rows]

    def places(self) -> list[AwsPlace]:
        """Where instances were granted or shown that were not seen to end."""
        rows = self.rows(
            "SELECT DISTINCT account, region FROM instances WHERE state != ? ORDER BY 1, 2",
            (InstanceState.ENDED.value,),
        )
        return [AwsPlace(row["account"], row["region"]) for row in rows]

    def owners(self) -> list[str]:
        """All owners of instances that are known."""
        return [
            row["owner"] for row in self.rows("SELECT DISTINCT owner FROM instances ORDER BY 1")
        ]

    def order_of(self, instance_ids: Iterable[str]) -> dict[str, int]:
        """The launch order of known instances."""
        query = "SELECT launch_order FROM instances WHERE instance_id = ?"
        found = {one: self.rows(query, (one,)) for one in instance_ids}
        return {one: int(rows[0]["launch_order"]) for one, rows in found.items() if rows}

    # --- events -------------------------------------------------------------------------------

    def heard(self, events: Iterable[ToldEvent], now_ns: int) -> None:
        """Note what was told of instances: the first word on an event counts."""
        with self.transaction() as connection:
            for event in events:
                connection.execute(
                    "INSERT OR IGNORE INTO events (event_id, instance_id, kind, state, at_ns, "
                    "lead_s, heard_ns) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(event.event_id, event.instance_id, event.kind.value),
                        *(event.state.value, event.at_ns, event.lead_s, now_ns),
                    ),
                )
                if event.kind is CloudEventKind.STATE and event.state is InstanceState.RUNNING:
                    ended_lives.note_ran(connection, (event.instance_id,))
                if event.kind is CloudEventKind.NOTICE:
                    connection.execute(
                        "UPDATE instances SET noticed = 1 WHERE instance_id = ?",
                        (event.instance_id,),
                    )

    @property
    def any_news(self) -> bool:
        """Whether something was told of an instance of ours that nobody has taken."""
        return bool(
            self.rows(
                "SELECT 1 FROM events JOIN instances USING (instance_id) WHERE token = '' LIMIT 1"
            )
        )

    def unexplained(self) -> list[str]:
        """Instances whose end was told, is not taken, and of whose reason nothing is known."""
        rows = self.rows(
            "SELECT DISTINCT instance_id FROM events JOIN instances USING (instance_id) "
            "WHERE token = '' AND events.state = ? AND reason = '' AND noticed = 0 AND asked = 0 "
            "ORDER BY instance_id",
            (InstanceState.ENDED.value,),
        )
        return [row["instance_id"] for row in rows]

    def take(self, token: str) -> Sequence[CloudEvent]:
        """Take what is new of known instances with a token, or what was taken with it."""
        with self.transaction() as connection:
            again = connection.execute("SELECT told FROM takings WHERE token = ?", (token,))
            row = again.fetchone()
            if row is not None:
                return tuple(_event_read(stated) for stated in json.loads(row["told"]))
            rows = connection.execute(
                "SELECT instances.*, event_id, kind, events.state AS state_then, at_ns, lead_s "
                "FROM events JOIN instances USING (instance_id) WHERE token = '' "
                "ORDER BY event_order"
            ).fetchall()
            told = tuple(_event_of(row) for row in rows)
            for event in told:
                connection.execute(
                    "UPDATE events SET token = ? WHERE event_id = ?", (token, event.event_id)
                )
            connection.execute(
                "INSERT INTO takings (token, told) VALUES (?, ?)",
                (token, json.dumps([_event_stated(event) for event in told])),
            )
            connection.execute(
                "DELETE FROM takings WHERE taking <= (SELECT max(taking) FROM takings) - ?",
                (_MOST_TAKINGS,),
            )
        return told

    def forget_strangers(self, before_ns: int) -> int:
        """Drop what was told of instances that never showed as ours; how many it was."""
        with self.transaction() as connection:
            gone = connection.execute(
                "DELETE FROM events WHERE token = '' AND heard_ns < ? "
                "AND instance_id NOT IN (SELECT instance_id FROM instances)",
                (before_ns,),
            )
        return gone.rowcount

    def forget_over(self, before_ns: int) -> None:
        """Drop launches that were answered, instances that ended and what was told of them by then."""
        with self.transaction() as connection:
            for statement in _FORGET:
                connection.execute(statement, {"before": before_ns, "ended": _ENDED})
            connection.execute("DELETE FROM ended_lives WHERE end_s < ?", (before_ns // NS_PER_S,))

    def keep_aside(self, message_id: str, body: str, problem: str) -> None:
        """Keep a message that cannot be read, for a person."""
        # Not all that JSON calls text can be stored as such.
        body = body.encode("utf-8", "backslashreplace").decode()
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO unread VALUES (?, ?, ?)", (message_id, body, problem)
            )
            connection.execute(
                "DELETE FROM unread WHERE rowid <= (SELECT max(rowid) FROM unread) - ?",
                (_MOST_UNREAD,),
            )

    def unread(self) -> list[tuple[str, str]]:
        """Messages that could not be read, and why."""
        rows = self.rows("SELECT body, problem FROM unread ORDER BY rowid")
        return [(row["body"], row["problem"]) for row in rows]

    def count(self, name: str, more: int = 1) -> None:
        """Count something that happened, for people."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO counts VALUES (?, ?) ON CONFLICT (name) "
                "DO UPDATE SET count = count + excluded.count",
                (name, more),
            )

    def counts(self) -> dict[str, int]:
        """All that was counted."""
        return {row["name"]: row["count"] for row in self.rows("SELECT * FROM counts")}


def _know(connection: sqlite3.Connection, shown: Shown, now_ns: int, *, seen: bool) -> None:
    instance = shown.instance
    stated = json.dumps(_stated(instance))
    connection.execute(
        "INSERT OR IGNORE INTO instances (instance_id, owner, account, region, zone, stated, "
        "state, reason, seen_ns, shown, noticed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "EXISTS (SELECT 1 FROM events WHERE instance_id = ? AND kind = ?))",
        (
            *(instance.instance_id, shown.owner, shown.place.account, shown.place.region),
            *(shown.zone, stated, instance.state.value, shown.reason, now_ns, int(seen)),
            *(instance.instance_id, CloudEventKind.NOTICE.value),
        ),
    )
    if seen:
        connection.execute(
            "UPDATE instances SET stated = ?, state = CASE state WHEN ? THEN state ELSE ? END, "
            "reason = ?, zone = ?, seen_ns = ?, shown = 1 WHERE instance_id = ?",
            (
                # What has ended never comes back, even if a listing lags behind.
                *(stated, InstanceState.ENDED.value, instance.state.value),
                *(shown.reason, shown.zone, now_ns, instance.instance_id),
            ),
        )


def _stated(instance: Instance) -> dict[str, Any]:
    return {
        **asdict(instance),
        "capacity_type": instance.capacity_type.value,
        "state": instance.state.value,
    }


def _read(stated: Mapping[str, Any]) -> Instance:
    return Instance(
        **{
            **stated,
            "capacity_type": CapacityType(stated["capacity_type"]),
            "state": InstanceState(stated["state"]),
        }
    )


def _known_of(row: sqlite3.Row) -> KnownInstance:
    return KnownInstance(
        instance=replace(_read(json.loads(row["stated"])), state=InstanceState(row["state"])),
        owner=row["owner"],
        place=AwsPlace(row["account"], row["region"]),
        zone=row["zone"],
        reason=row["reason"],
        noticed=bool(row["noticed"]),
        asked=bool(row["asked"]),
        seen_ns=row["seen_ns"],
    )


def _event_of(row: sqlite3.Row) -> CloudEvent:
    state = InstanceState(row["state_then"])
    kind = CloudEventKind(row["kind"])
    interruption = None
    if kind is CloudEventKind.NOTICE:
        interruption = InterruptionKind.CAPACITY_RECLAIMED
    elif state is InstanceState.ENDED and not row["asked"]:
        interruption = interruption_by(row["reason"])
        if interruption is None and row["noticed"]:
            interruption = InterruptionKind.CAPACITY_RECLAIMED
    return CloudEvent(
        event_id=row["event_id"],
        instance=replace(_read(json.loads(row["stated"])), state=state),
        kind=kind,
        state=state,
        at_ns=row["at_ns"],
        lead_s=row["lead_s"],
        interruption=interruption,
    )


def _event_stated(event: CloudEvent) -> dict[str, Any]:
    why = event.interruption
    return {
        "event_id": event.event_id,
        "instance": _stated(event.instance),
        "kind": event.kind.value,
        "state": event.state.value,
        "at_ns": event.at_ns,
        "lead_s": event.lead_s,
        "interruption": None if why is None else why.value,
    }


def _event_read(stated: Mapping[str, Any]) -> CloudEvent:
    why = stated["interruption"]
    return CloudEvent(
        event_id=stated["event_id"],
        instance=_read(stated["instance"]),
        kind=CloudEventKind(stated["kind"]),
        state=InstanceState(stated["state"]),
        at_ns=stated["at_ns"],
        lead_s=stated["lead_s"],
        interruption=None if why is None else InterruptionKind(why),
    )
