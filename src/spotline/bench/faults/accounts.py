"""Reads what a run left behind: the log's events, the ledger's rows, the cloud's own memory.

Plain SQL and the log's codec: nothing of what keeps these books is used to read them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotline.bench.faults.outcome import FaultOutcome
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.units import NS_PER_S

Row = dict[str, Any]

# Two runs are compared by these; epochs count starts of the process, and checksums follow them.
COMPARED = ("intents", "results", "instances", "charges")
_UNCOMPARED = ("epoch", "checksum")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event of the log that counts: the first of its id."""

    event_id: str
    source: str
    seq: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInstance:
    """An instance as the cloud remembers it, in market time; `end_ns` is None while it runs.

    One that `failed` ended by itself.
    """

    instance_id: str
    job_id: str
    offering_id: str
    capacity_type: str
    start_ns: int
    end_ns: int | None
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Everything that the oracles look at. `lost` was logged and is not in the log any more."""

    outcome: FaultOutcome
    logged: Sequence[LoggedEvent]
    lost: Sequence[LoggedEvent]
    ledger: dict[str, list[Row]]
    instances: Sequence[CloudInstance]

    def events(self, *kinds: type) -> Iterator[Any]:
        """Events of these kinds, in order."""
        return (logged.event for logged in self.logged if isinstance(logged.event, kinds))

    def ever(self, *kinds: type) -> Iterator[Any]:
        """As `events`, those that were lost among them: in the order of their places in the log."""
        ordered = sorted((*self.lost, *self.logged), key=lambda logged: logged.seq)
        return (logged.event for logged in ordered if isinstance(logged.event, kinds))

    @property
    def slots(self) -> dict[int, SlotOpened]:
        """Every slot as it was first opened."""
        found: dict[int, SlotOpened] = {}
        for opened in self.events(SlotOpened):
            found.setdefault(opened.slot, opened)
        return found


def accounts_of(outcome: FaultOutcome) -> Accounts:
    """Read what a run left behind."""
    delay_ns = outcome.scenario.cloud.launch_delay_s * NS_PER_S
    foreign: Any = outcome.notes.get("foreign", frozenset())
    logged = tuple(_logged(outcome.entries, foreign))
    return Accounts(
        outcome=outcome,
        logged=logged,
        lost=tuple(_logged(outcome.lost, foreign | {each.event_id for each in logged})),
        ledger=_rows_of(outcome.ledger),
        instances=tuple(_instances(outcome.cloud, delay_ns)),
    )


def comparable(ledger: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows that must be equal for equal runs."""
    return {
        table: [
            {name: value for name, value in row.items() if name not in _UNCOMPARED}
            for row in ledger[table]
        ]
        for table in COMPARED
    }


def _logged(entries: Sequence[StoredEntry], foreign: Set[str]) -> Iterator[LoggedEvent]:
    """What the system itself has logged: not what a fault wrote in its name."""
    seen: set[str] = set(foreign)
    for entry in entries:
        try:
            events = unpacked(entry)
        except ContractError:
            continue
        for stored in events:
            try:
                envelope, event = stored.envelope(), event_of(stored)
            except ContractError:
                continue
            if envelope.event_id not in seen:
                seen.add(envelope.event_id)
                yield LoggedEvent(
                    event_id=envelope.event_id,
                    source=envelope.source,
                    seq=entry.seq,
                    event=event,
                )


def _rows_of(file: Path) -> dict[str, list[Row]]:
    if not file.exists():
        return {table: [] for table in (*COMPARED, "spend", "admissions")}
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        ).fetchall()
        found: dict[str, list[Row]] = {}
        for (table,) in tables:
            keys = [
                row["name"]
                for row in connection.execute(f'PRAGMA table_info("{table}")')
                if row["pk"]
            ]
            order = ", ".join(f'"{key}"' for key in keys) or "rowid"
            rows = connection.execute(f'SELECT * FROM "{table}" ORDER BY {order}')  # noqa: S608
            found[table] = [dict(row) for row in rows]
    return found


def _instances(file: Path, delay_ns: int) -> Iterator[CloudInstance]:
    if not file.exists():
        return
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        ends = {
            row["instance_id"]: (row["at_ns"], row["interruption"])
            for row in connection.execute(
                "SELECT instance_id, min(at_ns) AS at_ns, interruption FROM events "
                "WHERE state = 'ended' GROUP BY instance_id"
            )
        }
        for row in connection.execute("SELECT * FROM instances ORDER BY launch_order"):
            end_ns, interruption = ends.get(row["instance_id"], (None, None))
            yield CloudInstance(
                instance_id=row["instance_id"],
                job_id=row["job_id"],
                offering_id=row["offering_id"],
                capacity_type=row["capacity_type"],
                start_ns=row["ready_ns"] - delay_ns,
                end_ns=None if row["state"] == "running" else end_ns,
                failed=interruption == "instance_failed",
            )


def slot_s_of(accounts: Accounts) -> int:
    """How long a slot is."""
    return next((opened.slot_s for opened in accounts.events(MarketOpened)), 1)
