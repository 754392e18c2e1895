"""What the local cloud grants and starts, and what it is asked to end."""

from __future__ import annotations

import shlex
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.clock import LocalClock
from spotline.adapters.clouds.local.init import own_process
from spotline.adapters.clouds.local.machine import Body, Machine, agent_command
from spotline.adapters.clouds.local.reclaims import running_of
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.adapters.clouds.local.store import LocalStore, instance_of, process_of
from spotline.application.cloud_actuator.ports import (
    Enrolment,
    Grant,
    LaunchRequest,
    Owner,
    OwnerFenced,
    Refusal,
)
from spotline.contracts.errors import ConfigError, SpotlineError
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_NO_AGENT = (
    "nothing can be run on the local cloud: there is no control plane for agents to join; set "
    "SPOTLINE_CLOUD_LOCAL_COMMAND to what instances are to run"
)


class Launches:
    """Grants by token, bounded by stock, machine and GPUs; each instance is written, then started.

    Raises
    ------
    ConfigError
        Instances are to have more GPUs than there are.
    """

    def __init__(
        self,
        store: LocalStore,
        settings: LocalCloudSettings,
        machine: Machine,
        clock: LocalClock,
        *,
        enrolment: Enrolment | None,
        boot: str,
        market_s_per_s: float,
    ) -> None:
        self._store, self._settings = store, settings
        self._machine, self._clock = machine, clock
        self._enrolment, self._boot, self._speed = enrolment, boot, market_s_per_s
        self._gpus = _devices(settings)
        self._starter = own_process()

    def launch(self, request: LaunchRequest) -> Grant:
        """Grant and start; again with the same token, the same grant and nothing more."""
        stated = _stated(request)
        with self._store.transaction() as connection:
            _fence(connection, request.owner)
            known = connection.execute(
                "SELECT * FROM grants WHERE token = ?", (request.token,)
            ).fetchone()
            if known is not None and known["stated"] != stated:
                return Grant(instances=(), refusal=_mismatch(request, known["stated"]))
            if known is None:
                granted, refusal = self._permitted(connection, request)
                connection.execute(
                    "INSERT INTO grants VALUES (?, ?, ?, ?)",
                    (
                        request.token,
                        stated,
                        None if refusal is None else refusal.refusal_class.value,
                        "" if refusal is None else refusal.detail,
                    ),
                )
                for _ in range(granted):
                    self._write(connection, request)
        rows = self._store.instances("token = ?", (request.token,))
        if known is None:
            for row in rows:
                self.start(row)
        return self._granted(request.token, rows)

    def start(self, row: sqlite3.Row) -> None:
        """Start the processes of an instance that is written; one that cannot be fails."""
        instance_id = row["instance_id"]
        try:
            process = self._machine.start(self._body(row))
        except (OSError, SpotlineError) as error:
            # The keeper sees that nothing runs, and tells it.
            problem = f"it could not be started: {error}"
            _log.warning("instance_not_started", instance_id=instance_id, problem=problem)
            self._machine.note_end(instance_id, {"how": "failed", "problem": problem})
            process = (0, 0)
        with self._store.transaction() as connection:
            connection.execute(
                "UPDATE instances SET pid = ?, began = ? WHERE instance_id = ?",
                (*process, instance_id),
            )
            now = connection.execute(
                "SELECT state FROM instances WHERE instance_id = ?", (instance_id,)
            ).fetchone()
        if now["state"] == "stopping":
            self._machine.ask_to_stop(process)
        elif now["state"] == "ended":
            # It was taken back while it was being started.
            self._machine.kill(instance_id, process)
            self._machine.reap(process)
            self._machine.clear(instance_id)

    def ask_to_end(
        self, owner: Owner, instance_ids: Sequence[str], within_s: float
    ) -> Sequence[processes.Process]:
        """Record that an owner's instances are to end; returns the processes to signal."""
        asked = []
        with self._store.transaction() as connection:
            _fence(connection, owner)
            for instance_id in instance_ids:
                row = connection.execute(
                    "SELECT * FROM instances WHERE instance_id = ? AND owner = ? "
                    "AND state = 'running'",
                    (instance_id, owner.name),
                ).fetchone()
                if row is None:
                    continue
                connection.execute(
                    "UPDATE instances SET state = 'stopping', stop_by_ns = ? WHERE instance_id = ?",
                    (time.monotonic_ns() + int(within_s * NS_PER_S), instance_id),
                )
                process = process_of(row)
                if process is not None:
                    asked.append(process)
        return asked

    def _granted(self, token: str, rows: Sequence[sqlite3.Row]) -> Grant:
        known = self._store.rows("SELECT * FROM grants WHERE token = ?", (token,))[0]
        refusal = None
        if known["refusal_class"] is not None:
            refusal = Refusal(
                refusal_class=RefusalClass(known["refusal_class"]), detail=known["detail"]
            )
        return Grant(instances=tuple(instance_of(row) for row in rows), refusal=refusal)

    def _permitted(
        self, connection: sqlite3.Connection, request: LaunchRequest
    ) -> tuple[int, Refusal | None]:
        refusal = self._refusal(connection, request)
        if refusal is not None:
            return 0, refusal
        stock = connection.execute(
            "SELECT instances FROM stock WHERE offering_id = ? AND capacity_type = ?",
            (request.offering_id, request.capacity_type.value),
        ).fetchone()
        if stock is None:
            detail = "the offering is not quoted"
            return 0, Refusal(refusal_class=RefusalClass.NO_CAPACITY, detail=detail)
        bounds = [(self._settings.most - self._running(), "the machine holds no more")]
        if stock["instances"] is not None:
            running = running_of(self._store, request.offering_id, request.capacity_type)
            bounds.append((stock["instances"] - running, "no more in stock"))
        if self._sold_out(connection, request):
            bounds.append((0, "spot was taken back a short time ago"))
        if self._settings.gpus_per_instance:
            free = len(self._free_gpus(connection))
            bounds.append((free // self._settings.gpus_per_instance, "no more GPUs are free"))
        left, why = min(bounds)
        left = max(0, left)
        if left >= request.instances:
            return request.instances, None
        detail = f"{left} of {request.instances}: {why}"
        return left, Refusal(refusal_class=RefusalClass.NO_CAPACITY, detail=detail)

    def _refusal(self, connection: sqlite3.Connection, request: LaunchRequest) -> Refusal | None:
        """Refuse what this cloud will not run whatever is free."""
        if not self._settings.command and self._enrolment is None:
            return Refusal(refusal_class=RefusalClass.UNSUPPORTED, detail=_NO_AGENT)
        users, tenant = self._settings.users, request.tenant
        user = users.get(tenant, users.get(""))
        if user is None:
            return _not_ours(f"tenant {tenant} has no user of this machine")
        connection.execute("INSERT OR IGNORE INTO tenants VALUES (?, ?)", (user, tenant))
        first = connection.execute("SELECT tenant FROM tenants WHERE user = ?", (user,)).fetchone()
        if first["tenant"] != tenant:
            whose = f"user {user} runs" if user else "this cloud runs"
            return _not_ours(
                f"{whose} the jobs of tenant {first['tenant']}, this is one of {tenant}"
            )
        return None

    def _write(self, connection: sqlite3.Connection, request: LaunchRequest) -> None:
        users = self._settings.users
        gpus = self._free_gpus(connection)[: self._settings.gpus_per_instance]
        order = connection.execute(
            "SELECT coalesce(max(launch_order), 0) + 1 AS next FROM instances"
        ).fetchone()["next"]
        instance_id = f"local-{self._store.name}-{order}"
        connection.execute(
            "INSERT INTO tags (instance_id, installation_id) VALUES (?, ?)",
            (instance_id, request.installation_id),
        )
        connection.execute(
            "INSERT INTO instances (launch_order, instance_id, token, owner, job_id, tenant, "
            "quota_pool, offering_id, capacity_type, ready_ns, state, user, gpus, boot, "
            "starter_pid, starter_began) VALUES (?,?,?,?,?,?,?,?,?,?,'running',?,?,?,?,?)",
            (
                order,
                instance_id,
                request.token,
                request.owner.name,
                request.job_id,
                request.tenant,
                request.quota_pool,
                request.offering_id,
                request.capacity_type.value,
                request.at.ts_ns,
                users.get(request.tenant, users.get("", "")),
                ",".join(gpus),
                self._boot,
                *self._starter,
            ),
        )

    def _sold_out(self, connection: sqlite3.Connection, request: LaunchRequest) -> bool:
        if request.capacity_type is not CapacityType.SPOT:
            return False
        known = connection.execute(
            "SELECT until_ns FROM sold_out WHERE offering_id = ?", (request.offering_id,)
        ).fetchone()
        return known is not None and self._clock.now_ns() < known["until_ns"]

    def _running(self) -> int:
        return len(self._store.instances("state = 'running' AND taken = 0"))

    def _free_gpus(self, connection: sqlite3.Connection) -> list[str]:
        """The GPUs that no instance has, not even one that is just ending."""
        rows = connection.execute("SELECT gpus FROM instances WHERE state != 'ended'").fetchall()
        used = {gpu for row in rows for gpu in row["gpus"].split(",")}
        return [gpu for gpu in self._gpus if gpu not in used]

    def _body(self, row: sqlite3.Row) -> Body:
        settings, instance_id = self._settings, row["instance_id"]
        variables = {"SPOTLINE_MARKET_SPEED": f"{self._speed:g}"}
        if self._enrolment is not None:
            variables |= self._enrolment.user_data(
                instance_id=instance_id, job_id=row["job_id"], tenant=row["tenant"]
            )
        if settings.gpus_per_instance:
            variables["CUDA_VISIBLE_DEVICES"] = row["gpus"]
        return Body(
            instance_id=instance_id,
            argv=tuple(shlex.split(settings.command)) or agent_command(),
            variables=variables,
            metadata={
                name: row[name]
                for name in ("instance_id", "job_id", "tenant", "offering_id", "capacity_type")
            }
            | {"market_s_per_s": self._speed},
            user=row["user"],
            cpu_share=settings.cpu_share,
            # It stands for what is beside the program: a notice must not wait for its turn.
            spare_command=not settings.command,
            stop_grace_s=settings.stop_grace_s,
        )


def _devices(settings: LocalCloudSettings) -> list[str]:
    if not settings.gpus_per_instance:
        return []
    found = [gpu.strip() for gpu in settings.gpu_devices.split(",") if gpu.strip()]
    if not found and _NVIDIA.is_dir():
        found = [str(number) for number in range(len(list(_NVIDIA.iterdir())))]
    if len(found) < settings.gpus_per_instance:
        raise ConfigError(
            "SPOTLINE_CLOUD_LOCAL_GPU_DEVICES must name at least "
            f"{settings.gpus_per_instance} devices for each instance, there are {len(found)}"
        )
    return found


def _not_ours(what: str) -> Refusal:
    return Refusal(
        refusal_class=RefusalClass.LIMIT,
        detail=f"{what}: give each tenant a user of its own with "
        "SPOTLINE_CLOUD_LOCAL_RUN_AS=TENANT=USER,TENANT=USER, which takes root",
    )


def _fence(connection: sqlite3.Connection, owner: Owner) -> None:
    seen = connection.execute("SELECT epoch FROM fences WHERE owner = ?", (owner.name,)).fetchone()
    if seen is not None and seen["epoch"] > owner.epoch:
        raise OwnerFenced(owner, seen["epoch"])
    connection.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (owner.name, owner.epoch))


def _stated(request: LaunchRequest) -> str:
    """All of a request that must be the same when its token comes again."""
    return (
        f"{request.instances} {request.capacity_type.value} of {request.offering_id} in "
        f"{request.quota_pool} for {request.owner.name}, {request.tenant}, {request.job_id}"
    )


def _mismatch(request: LaunchRequest, stated: str) -> Refusal:
    return Refusal(
        refusal_class=RefusalClass.TOKEN_MISMATCH,
        detail=f"token {request.token} was {stated}, now {_stated(request)}",
    )
