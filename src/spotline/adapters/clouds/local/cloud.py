"""The machine as a cloud: its instances are processes, and they end for real."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.cgroups import Cgroups, cgroups_for
from spotline.adapters.clouds.local.clock import LocalClock
from spotline.adapters.clouds.local.keeper import Keeper
from spotline.adapters.clouds.local.launches import Launches
from spotline.adapters.clouds.local.machine import Machine, boot_id, check_machine, check_user
from spotline.adapters.clouds.local.news import News
from spotline.adapters.clouds.local.reclaims import Reclaims, want_back
from spotline.adapters.clouds.local.settings import AUTO, CGROUP, TURNS, LocalCloudSettings
from spotline.adapters.clouds.local.store import LocalStore, instance_of, process_of
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    Enrolment,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Owner,
)
from spotline.contracts.errors import ConfigError
from spotline.domain.market.offering import CapacityType, Count, Quote

_log = structlog.get_logger(__name__)

STORE = "local_cloud.sqlite"
# Beyond an instance's own grace, until its first process is taken to hang.
_HANGS_S = 5.0
# Ended instances are shown for the rest of their slot and the next one.
_SHOWN = "owner = ? AND (state != 'ended' OR ended_slot >= ? - 1)"
_STATES = {
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "ended": InstanceState.ENDED,
}


class LocalCloud:
    """Implements `CloudProvider` on processes of this machine.

    Stock is what the quotes of the market laid over it say, less what runs; an unknown count is no
    bound, and the machine itself always is one. Where spot falls below what runs, the latest
    launched are taken back, with notice or without as the settings say; a notice is withdrawn if
    the market has enough again. Instances outlive the process that opened this.

    Parameters
    ----------
    folder
        For its store and its instances.
    enrolment
        Makes what `spotline agent` needs to join; None: only another command can be run.
    market_s_per_s
        Market seconds in a second of wall time.
    environ
        What instances' environment is made of; `SPOTLINE_*` of it stay here.

    Raises
    ------
    ConfigError
        The machine, a user, the command, or the GPUs are not as the settings need them.
    """

    def __init__(
        self,
        folder: Path,
        settings: LocalCloudSettings | None = None,
        *,
        enrolment: Enrolment | None = None,
        market_s_per_s: float = 1.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings = settings or LocalCloudSettings()
        folder = folder.resolve()
        check_machine()
        environ = os.environ if environ is None else environ
        _check_command(settings.command, environ.get("PATH"))
        folder.mkdir(parents=True, exist_ok=True)
        for user in settings.users.values():
            check_user(user, folder)
        self._store = LocalStore(folder / STORE)
        boot = boot_id()
        self.clock = LocalClock(self._store, boot, market_s_per_s)
        groups = _cgroups(settings, self._store.name)
        self._machine = Machine(folder, environ, groups)
        self._news = News(self._store)
        self._reclaims = Reclaims(self._store, settings, self.clock, self._machine, self._news)
        self._launches = Launches(
            self._store,
            settings,
            self._machine,
            self.clock,
            enrolment=enrolment,
            boot=boot,
            market_s_per_s=market_s_per_s,
        )
        self._keeper = Keeper(
            self._store,
            self._machine,
            self.clock,
            self._news,
            self._reclaims,
            boot=boot,
            start=self._launches.start,
        )

    @property
    def notice_lead_s(self) -> int:
        """Seconds of notice that every instance gets: 0 where some get none."""
        return self._settings.guaranteed_notice_s

    def close(self) -> None:
        """Close the store; the instances go on running."""
        self._keeper.close()
        self._machine.close()
        self._store.close()

    def open_slot(self, at: Moment, quotes: Sequence[Quote]) -> None:
        """Take over the slot's quotes, and market time goes on from it.

        Idempotent per slot; a slot that is over changes nothing.
        """
        if self.clock.open_slot(at):
            with self._store.transaction() as connection:
                for quote in quotes:
                    _take_over(connection, quote)
            self._reclaims.balance(at.slot_s)
        self._keeper.settle()
        self._keeper.wake()

    async def launch(self, request: LaunchRequest) -> Grant:
        """Start what is in stock."""
        return await asyncio.to_thread(self._launch, request)

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask the owner's instances among these to end within their grace."""
        await asyncio.to_thread(self._terminate, owner, instance_ids)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """An owner's instances and those that ended lately, in launch order."""
        return tuple(
            instance_of(row, _STATES[row["state"]])
            for row in self._store.instances(_SHOWN, (owner_name, self.clock.slot()))
        )

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """Say what has happened since what was taken before."""
        return self._news.take(token)

    async def pushed(self) -> None:
        """Return when there is something to tell."""
        await self._news.wait()

    def take_back(self, instance_ids: Sequence[str], *, lead_s: int = 0) -> None:
        """Take instances back whatever the market says: how losses are rehearsed.

        With `lead_s` market seconds of notice, which is given now; 0: they are killed at once and
        have ended when this returns.
        """
        want_back(self._store, instance_ids, lead_s)
        self._keeper.settle()
        self._keeper.wake()

    def protect(self, instance_ids: Sequence[str]) -> None:
        """Give instances the tag `spotline-hold`, as a person does in a cloud's console."""
        with self._store.transaction() as connection:
            connection.executemany(
                "INSERT INTO tags VALUES (?, '', 1) "
                "ON CONFLICT (instance_id) DO UPDATE SET hold = 1",
                [(instance_id,) for instance_id in instance_ids],
            )

    def alive(self) -> Sequence[Instance]:
        """All instances that have not ended, of any owner."""
        return tuple(
            instance_of(row, _STATES[row["state"]])
            for row in self._store.instances("state != 'ended'")
        )

    def stopping(self) -> bool:
        """Whether any instance is being ended or will be taken back."""
        rows = self._store.rows(
            "SELECT 1 FROM instances LEFT JOIN reclaims USING (instance_id) "
            "WHERE state = 'stopping' OR (state = 'running' AND due_ns IS NOT NULL)"
        )
        return bool(rows)

    def console(self, instance_id: str) -> Path:
        """What an instance's command wrote: the beginning and the newest end."""
        return self._machine.console(instance_id)

    def metadata(self, instance_id: str) -> Path:
        """The folder in which an instance finds what its cloud says of it."""
        return self._machine.metadata(instance_id)

    def first_process(self, instance_id: str) -> processes.Process | None:
        """The process above all others of an instance, None before it was started."""
        rows = self._store.instances("instance_id = ?", (instance_id,))
        return process_of(rows[0]) if rows else None

    def _launch(self, request: LaunchRequest) -> Grant:
        grant = self._launches.launch(request)
        self._keeper.wake()
        return grant

    def _terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        asked = self._launches.ask_to_end(
            owner, instance_ids, self._settings.stop_grace_s + _HANGS_S
        )
        for process in asked:
            self._machine.ask_to_stop(process)
        if asked:
            # What was wanted back may stay now.
            self._reclaims.balance()
            self._keeper.wake()


def take_back(folder: Path, instance_ids: Sequence[str], *, lead_s: int = 0) -> None:
    """Have the process that uses the cloud of `folder` take instances back, within a second.

    To rehearse losses from another process; `lead_s` as of `LocalCloud.take_back`.
    """
    store = LocalStore(folder / STORE)
    try:
        forced = want_back(store, instance_ids, lead_s)
    finally:
        store.close()
    _log.info("take_back_asked", instance_ids=forced, lead_s=lead_s)


def _take_over(connection: sqlite3.Connection, quote: Quote) -> None:
    def known(count: Count) -> int | None:
        return count.instances if count.known else None

    connection.executemany(
        "INSERT OR REPLACE INTO stock VALUES (?, ?, ?)",
        [
            (quote.offering_id, CapacityType.SPOT.value, known(quote.spot_available)),
            (quote.offering_id, CapacityType.ON_DEMAND.value, known(quote.on_demand_available)),
        ],
    )


def _check_command(command: str, path: str | None) -> None:
    words = shlex.split(command)
    if words and shutil.which(words[0], path=path) is None:
        raise ConfigError(
            f"SPOTLINE_CLOUD_LOCAL_COMMAND must begin with a program that can be run, was {command!r}"
        )


def _cgroups(settings: LocalCloudSettings, name: str) -> Cgroups | None:
    if not settings.cpu_share or settings.cpu_share_by == TURNS:
        return None
    groups = cgroups_for(name, required=settings.cpu_share_by == CGROUP)
    by = CGROUP if groups is not None else TURNS
    if settings.cpu_share_by == AUTO:
        _log.info("cpu_share_kept", by=by, cores=settings.cpu_share)
    return groups
