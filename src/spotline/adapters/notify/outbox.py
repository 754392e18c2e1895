"""What each receiver was told and is still to be told, in a file that outlives a kill.

A message is here before it is sent and marked when it was taken, each in a transaction of its own:
whoever is killed between the two sends it again, with the same id, and no other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from spotline.adapters.notify.message import alert_fields
from spotline.adapters.sqlite_file import SqliteFile
from spotline.application.notify.alerts import Alert
from spotline.application.notify.target import NotifyTarget
from spotline.domain.units import NS_PER_S

OUTBOX_FILE = "notify.sqlite"
GIVEN_UP_S = 86_400
"""A message that nobody took for so long is given up."""

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS target (
    name TEXT PRIMARY KEY,
    since_ns INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS letter (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    target TEXT NOT NULL,
    alert_id TEXT NOT NULL,
    state TEXT NOT NULL,
    fields TEXT NOT NULL,
    put_ns INTEGER NOT NULL,
    due_ns INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    detail TEXT NOT NULL DEFAULT '',
    UNIQUE (target, alert_id)
);
CREATE INDEX IF NOT EXISTS letter_due ON letter (target, state, due_ns)
"""


class LetterState(Enum):
    """What became of a message; `OLD` ones were of before anybody was to be told."""

    WAITING = "waiting"
    TAKEN = "taken"
    GIVEN_UP = "given_up"
    OLD = "old"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message to a receiver, put in at `put_ns` of wall time and tried `tries` times."""

    number: int
    alert_id: str
    fields: dict[str, Any]
    put_ns: int
    tries: int


class Outbox:
    """The file of a store.

    Raises
    ------
    ConfigError
        It is of another release.
    """

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(
            path, _SCHEMA, version=_VERSION, name="the outbox of notifications", outlives_power=True
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def begin(self, targets: Sequence[NotifyTarget], now_ns: int) -> None:
        """Note from when on receivers that are new are told; of others nothing changes."""
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO target (name, since_ns) VALUES (?, ?)",
                [(target.name, now_ns) for target in targets],
            )

    def put(self, targets: Sequence[NotifyTarget], alerts: Sequence[Alert], now_ns: int) -> int:
        """Put in what each receiver wants of the alerts of an entry; how many are new and to be sent.

        What is there already stays as it is. Nothing is told of what was before a receiver was
        there, of what is more than a day old, nor that something is over whose beginning was not
        told.
        """
        added = 0
        with self._file.transaction() as connection:
            for target in targets:
                (since_ns,) = connection.execute(
                    "SELECT since_ns FROM target WHERE name = ?", (target.name,)
                ).fetchone()
                oldest_ns = max(int(since_ns), now_ns - GIVEN_UP_S * NS_PER_S)
                for alert in filter(target.wants, alerts):
                    told = alert.logged_ns >= oldest_ns
                    if told and alert.began_id:
                        began = connection.execute(
                            "SELECT state FROM letter WHERE target = ? AND alert_id = ?",
                            (target.name, alert.began_id),
                        ).fetchone()
                        told = began is not None and began[0] != LetterState.OLD.value
                    state = LetterState.WAITING if told else LetterState.OLD
                    fields = json.dumps(alert_fields(alert)) if told else ""
                    done = connection.execute(
                        "INSERT OR IGNORE INTO letter (target, alert_id, state, fields, put_ns, "
                        "due_ns) VALUES (?, ?, ?, ?, ?, ?)",
                        (target.name, alert.alert_id, state.value, fields, now_ns, now_ns),
                    )
                    added += told and done.rowcount == 1
        return added

    def due(self, target: str, now_ns: int) -> Letter | None:
        """The message that is to be sent next, None where none is yet."""
        rows = self._file.rows(
            "SELECT number, alert_id, fields, put_ns, tries FROM letter WHERE target = ? AND "
            "state = 'waiting' AND due_ns <= ? ORDER BY due_ns, number LIMIT 1",
            (target, now_ns),
        )
        if not rows:
            return None
        row = rows[0]
        return Letter(
            number=row["number"],
            alert_id=row["alert_id"],
            fields=json.loads(row["fields"]),
            put_ns=row["put_ns"],
            tries=row["tries"],
        )

    def next_due_ns(self, target: str) -> int | None:
        """When the next message is due, None where none waits."""
        rows = self._file.rows(
            "SELECT min(due_ns) AS due_ns FROM letter WHERE target = ? AND state = 'waiting'",
            (target,),
        )
        due_ns = rows[0]["due_ns"]
        return None if due_ns is None else int(due_ns)

    def end(self, letter: Letter, state: LetterState, detail: str) -> None:
        """Note that a message was taken or given up; its content is no longer kept."""
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE letter SET state = ?, detail = ?, tries = tries + 1, fields = '' "
                "WHERE number = ?",
                (state.value, detail, letter.number),
            )

    def again(self, letter: Letter, due_ns: int, detail: str) -> None:
        """Note that a message was not taken, and when it is sent again."""
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE letter SET tries = tries + 1, due_ns = ?, detail = ? WHERE number = ?",
                (due_ns, detail, letter.number),
            )

    def hold(self, target: str, until_ns: int) -> None:
        """Send a receiver nothing before a moment: it has asked for that."""
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE letter SET due_ns = max(due_ns, ?) WHERE target = ? AND state = 'waiting'",
                (until_ns, target),
            )

    def counts(self, target: str) -> dict[str, int]:
        """How many messages of a receiver are in which state."""
        rows = self._file.rows(
            "SELECT state, count(*) AS n FROM letter WHERE target = ? GROUP BY state", (target,)
        )
        return {row["state"]: int(row["n"]) for row in rows}
