"""The events of the local cloud: kept in its store, with a bell for those who wait for them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress

from spotline.adapters.clouds.local.store import LocalStore, instance_of
from spotline.application.cloud_actuator.ports import CloudEvent, CloudEventKind, InstanceState
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.capacity import InterruptionKind


class News:
    """Events by the token that they were taken with; those without one are new."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    def noticed(
        self, connection: sqlite3.Connection, instance_id: str, at_ns: int, lead_s: int
    ) -> str:
        """Record that an instance will be taken back; returns the id of its notice."""
        notice_id = f"notice-{at_ns}-{instance_id}"
        kind, reason = CloudEventKind.NOTICE, InterruptionKind.CAPACITY_RECLAIMED
        running = InstanceState.RUNNING
        _add(connection, notice_id, instance_id, kind, running, at_ns, reason, lead_s)
        return notice_id

    def withdrawn(
        self, connection: sqlite3.Connection, instance_id: str, noticed_ns: int, at_ns: int
    ) -> None:
        """Tell that an instance stays after all."""
        event_id = f"withdrawn-{noticed_ns}-{instance_id}"
        kind, running = CloudEventKind.WITHDRAWN, InstanceState.RUNNING
        _add(connection, event_id, instance_id, kind, running, at_ns, None)

    def ended(
        self,
        connection: sqlite3.Connection,
        instance_id: str,
        at_ns: int,
        interruption: InterruptionKind | None,
    ) -> None:
        """Tell that an instance has ended."""
        kind, ended = CloudEventKind.STATE, InstanceState.ENDED
        event_id = f"ended-{instance_id}"
        _add(connection, event_id, instance_id, kind, ended, at_ns, interruption)

    def take(self, token: str) -> Sequence[CloudEvent]:
        """Take what is new with a token, or what was taken with it."""
        with self._store.transaction() as connection:
            fresh = connection.execute("INSERT OR IGNORE INTO takings VALUES (?)", (token,))
            if fresh.rowcount:
                connection.execute("UPDATE events SET token = ? WHERE token = ''", (token,))
            rows = connection.execute(
                "SELECT tagged.*, event_id, kind, events.state AS state_then, at_ns, lead_s, "
                "interruption FROM events JOIN tagged USING (instance_id) "
                "WHERE events.token = ? ORDER BY event_order",
                (token,),
            ).fetchall()
        return tuple(_event_of(row) for row in rows)

    def fail(self, error: Exception) -> None:
        """Raise in all who wait: no thread sees to instances any more."""
        self._failure = error
        self.ring()

    @property
    def any(self) -> bool:
        """Whether something is new."""
        return bool(self._store.rows("SELECT 1 FROM events WHERE token = '' LIMIT 1"))

    def ring(self) -> None:
        """Wake all who wait, from any thread."""
        with self._lock:
            waiting = list(self._waiting)
        for loop, bell in waiting:
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(bell.set)

    async def wait(self) -> None:
        """Return when something is new."""
        waiting = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._waiting.add(waiting)
        try:
            while self._failure is not None or not self.any:
                if self._failure is not None:
                    raise InvariantViolation("the local cloud's thread ended") from self._failure
                await waiting[1].wait()
                waiting[1].clear()
        finally:
            with self._lock:
                self._waiting.discard(waiting)


def _add(
    connection: sqlite3.Connection,
    event_id: str,
    instance_id: str,
    kind: CloudEventKind,
    state: InstanceState,
    at_ns: int,
    interruption: InterruptionKind | None,
    lead_s: int = 0,
) -> None:
    reason = None if interruption is None else interruption.value
    connection.execute(
        "INSERT OR IGNORE INTO events (event_id, instance_id, kind, state, at_ns, lead_s, "
        "interruption) VALUES (?,?,?,?,?,?,?)",
        (event_id, instance_id, kind.value, state.value, at_ns, lead_s, reason),
    )


def _event_of(row: sqlite3.Row) -> CloudEvent:
    state = InstanceState(row["state_then"])
    reason = row["interruption"]
    return CloudEvent(
        event_id=row["event_id"],
        instance=instance_of(row, state),
        kind=CloudEventKind(row["kind"]),
        state=state,
        at_ns=row["at_ns"],
        lead_s=row["lead_s"],
        interruption=None if reason is None else InterruptionKind(reason),
    )
