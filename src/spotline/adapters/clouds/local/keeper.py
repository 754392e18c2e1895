"""Sees to instances in wall time: notices their ends, takes them back when that is due.

It has a thread of its own: what is due comes on time whatever the process does else, and instances
that end are seen at once.
"""

from __future__ import annotations

import os
import select
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.clock import LocalClock
from spotline.adapters.clouds.local.machine import Machine
from spotline.adapters.clouds.local.news import News
from spotline.adapters.clouds.local.reclaims import Reclaims
from spotline.adapters.clouds.local.store import LocalStore, process_of
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

# What another process did to the store is seen after this long.
_POLL_S = 0.5
_LIVE = "state != 'ended'"


class Keeper:
    """Keeps instances, until closed.

    Parameters
    ----------
    boot
        This start of the machine.
    start
        Starts the processes of an instance whose starter died before it could.
    """

    def __init__(
        self,
        store: LocalStore,
        machine: Machine,
        clock: LocalClock,
        news: News,
        reclaims: Reclaims,
        *,
        boot: str,
        start: Callable[[sqlite3.Row], None],
    ) -> None:
        self._store, self._machine, self._clock = store, machine, clock
        self._news, self._reclaims, self._boot, self._start = news, reclaims, boot, start
        self._busy = threading.RLock()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closed = False
        self._watched: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="local_cloud", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop seeing to instances, which go on."""
        self._closed = True
        self.wake()
        self._thread.join()
        for descriptor in (*self._watched.values(), self._woken, self._wake):
            os.close(descriptor)

    def wake(self) -> None:
        """Look at once."""
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def settle(self) -> None:
        """See to everything that is due now."""
        with self._busy:
            for row in self._store.instances(_LIVE):
                self._look(row)
            for row in self._reclaims.advance():
                self.end(row, process_of(row))

    def end(self, row: sqlite3.Row, process: processes.Process | None) -> None:
        """Kill an instance at once, and tell that it has ended."""
        self._machine.kill(row["instance_id"], process)
        self._finish(row)

    # --- one look -------------------------------------------------------------------------------

    def _look(self, row: sqlite3.Row) -> None:
        process = process_of(row)
        if row["boot"] != self._boot:
            self._finish(row)
        elif process is None:
            starter = row["starter_pid"], row["starter_began"]
            if not processes.runs(starter):
                self._recover(row)
        elif not processes.runs(process):
            self._gone(row)
        elif row["taken"] or _is_over(row["stop_by_ns"]):
            # It hangs, or the process that took it back died before it could kill it.
            self.end(row, process)

    def _recover(self, row: sqlite3.Row) -> None:
        """Go on where the process that was to start an instance died."""
        begun = self._machine.begun(row["instance_id"])
        if begun is None:
            self._start(row)
        else:
            self._adopt(row, begun)

    def _gone(self, row: sqlite3.Row) -> None:
        """Its first process has ended; unless another one was there already."""
        begun = self._machine.begun(row["instance_id"])
        if begun is not None and begun != process_of(row) and processes.runs(begun):
            self._adopt(row, begun)
        else:
            self._finish(row)

    def _adopt(self, row: sqlite3.Row, process: processes.Process) -> None:
        with self._store.transaction() as connection:
            connection.execute(
                "UPDATE instances SET pid = ?, began = ? WHERE instance_id = ?",
                (*process, row["instance_id"]),
            )

    def _finish(self, row: sqlite3.Row) -> None:
        """Kill what is left of it, and tell once that it has ended."""
        instance_id, process = row["instance_id"], process_of(row)
        if row["boot"] == self._boot:
            self._machine.sweep(instance_id)
        end = self._machine.how_it_ended(instance_id)
        with self._store.transaction() as connection:
            now = connection.execute(
                "SELECT * FROM instances WHERE instance_id = ?", (instance_id,)
            ).fetchone()
            if now["state"] == "ended":
                return
            interruption = _interruption(now, end)
            at_ns = self._reclaims.ended_ns(now)
            connection.execute(
                "UPDATE instances SET state = 'ended', ended_slot = ? WHERE instance_id = ?",
                (self._clock.slot(), instance_id),
            )
            connection.execute("DELETE FROM reclaims WHERE instance_id = ?", (instance_id,))
            self._news.ended(connection, instance_id, at_ns, interruption)
        if process is not None and row["boot"] == self._boot:
            self._machine.reap(process)
        if not end:
            self._machine.note_end(instance_id, {"how": "killed", "status": None})
        self._machine.clear(instance_id)
        if interruption is InterruptionKind.INSTANCE_FAILED:
            console = str(self._machine.console(instance_id))
            _log.warning("instance_failed", instance_id=instance_id, end=end, console=console)
        self._news.ring()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - raised where news is awaited, ends the service
            self._news.fail(error)

    def _keep(self) -> None:
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        while not self._closed:
            try:
                self.settle()
            except (OSError, TimeoutError, sqlite3.OperationalError) as error:
                # A full disk, a locked store, a process that does not die: it is tried again.
                _log.warning("local_cloud_postponed", error=f"{type(error).__name__}: {error}")
            self._watch(poller)
            poller.poll(self._wait_s() * 1000)
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
            if self._news.any:
                # Another process may have told it.
                self._news.ring()

    def _wait_s(self) -> float:
        due_ns = self._reclaims.next_due_ns()
        if due_ns is None:
            return _POLL_S
        return min(_POLL_S, max(0.001, (due_ns - time.monotonic_ns()) / NS_PER_S))

    def _watch(self, poller: select.poll) -> None:
        """Be woken by the ends of all instances that live."""
        living = {}
        for row in self._store.instances(_LIVE):
            process = process_of(row)
            if process is not None and row["boot"] == self._boot:
                living[row["instance_id"]] = process
        for instance_id in self._watched.keys() - living.keys():
            descriptor = self._watched.pop(instance_id)
            poller.unregister(descriptor)
            os.close(descriptor)
        for instance_id in living.keys() - self._watched.keys():
            opened = processes.open_process(living[instance_id])
            if opened is None:
                self.wake()  # it has ended meanwhile
                continue
            self._watched[instance_id] = opened
            poller.register(opened, select.POLLIN)


def _is_over(stop_by_ns: int | None) -> bool:
    return stop_by_ns is not None and time.monotonic_ns() >= stop_by_ns


def _interruption(row: sqlite3.Row, end: object) -> InterruptionKind | None:
    """Why it ended: taken back, asked by us or by itself in good order, or failed."""
    if row["taken"]:
        return InterruptionKind.CAPACITY_RECLAIMED
    asked = row["state"] == "stopping"
    well = isinstance(end, dict) and end.get("how") == "exited" and end.get("status") == 0
    return None if asked or well else InterruptionKind.INSTANCE_FAILED
