"""Instances as folders and processes of this machine: started, asked to end, killed for real.

Each has two folders: `control/ID`, ours alone, and `instances/ID`, of the user whose processes it
is, which goes with it. In the latter are `work`, where its command starts, and `metadata`.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import spotline
from spotline.adapters.clouds.local import init, processes
from spotline.adapters.clouds.local.cgroups import Cgroups
from spotline.adapters.clouds.local.console import CONSOLE
from spotline.adapters.clouds.local.processes import Process
from spotline.contracts.errors import ConfigError

INSTANCE_ID = "SPOTLINE_INSTANCE_ID"
NOTICE, DESCRIPTION = "notice.json", "instance.json"
# Ended instances whose console is kept.
_KEPT = 100
_GONE_S = 10.0
# What agents resolve secrets from: a folder, and variables that another user does not get.
_SECRETS, _SECRET = "SPOTLINE_SECRETS_DIR", "SPOTLINE_SECRET_"
_AGENT = "from spotline.cli.main import app; app()"
# Of the environment, what the processes of another user get.
_COMMON = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What one instance's processes are started with.

    `metadata` is what `instance.json` says. `spare_command`: the share is for what the command
    starts, not for the command.
    """

    instance_id: str
    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)
    metadata: Mapping[str, object]
    user: str
    cpu_share: float
    spare_command: bool
    stop_grace_s: float


def agent_command() -> tuple[str, ...]:
    """What runs `spotline agent` in the environment of this process."""
    return (sys.executable, "-c", _AGENT, "agent")


def boot_id() -> str:
    """Identify this start of the machine: pids of an earlier one mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def check_machine() -> None:
    """Refuse machines whose processes cannot be told apart.

    Raises
    ------
    ConfigError
        It is no Linux with /proc and pidfd.
    """
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/stat").exists():
        raise ConfigError(
            f"the local cloud needs Linux >= 5.4 with /proc, this is {sys.platform}: choose another "
            "cloud with SPOTLINE_CLOUD"
        )


def check_user(user: str, folder: Path) -> None:
    """Refuse a user whose processes we cannot start or who could not reach its folder.

    Raises
    ------
    ConfigError
        There is no such user, this process is not root, or a folder above is closed to it.
    """
    if not user:
        return
    setting = "SPOTLINE_CLOUD_LOCAL_RUN_AS"
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"{setting} must name users of this machine, {user!r} is none") from None
    if account.pw_uid == os.geteuid():
        return
    if os.geteuid() != 0:
        raise ConfigError(
            f"{setting}: to run instances as {user} takes root, this process is uid {os.geteuid()}"
        )
    for parent in folder.resolve().parents:
        if not parent.stat().st_mode & 0o001 and parent.stat().st_uid != account.pw_uid:
            raise ConfigError(
                f"{setting}: {user} cannot enter {parent}, above the store; chmod o+x it, or use "
                "another --store"
            )


class Machine:
    """Starts and ends what instances are made of, in a folder.

    Parameters
    ----------
    environ
        What the environment of instances is made of; `SPOTLINE_*` of it stay here.
    cgroups
        Keep the share of the CPU; None: taking turns does.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], cgroups: Cgroups | None) -> None:
        self._folder, self._environ, self._cgroups = folder, environ, cgroups
        self._instances, self._control = folder / "instances", folder / "control"
        folder.mkdir(parents=True, exist_ok=True)
        # Other users pass through to what is theirs, and see nothing.
        folder.chmod(0o711)
        self._instances.mkdir(mode=0o711, exist_ok=True)
        self._control.mkdir(mode=0o700, exist_ok=True)

    def metadata(self, instance_id: str) -> Path:
        """The folder in which an instance finds what its cloud says of it."""
        return self._instances / instance_id / "metadata"

    def console(self, instance_id: str) -> Path:
        """What an instance's command wrote: the beginning and the newest end."""
        return self._control / instance_id / CONSOLE

    def start(self, body: Body) -> Process:
        """Start an instance; its processes outlive this one.

        Raises
        ------
        OSError
            The machine cannot start it.
        """
        control = self._control / body.instance_id
        own = self._instances / body.instance_id
        account = pwd.getpwnam(body.user) if body.user else None
        for folder in (control, own, own / "metadata", own / "work"):
            folder.mkdir(mode=0o700, exist_ok=True)
            if account is not None and folder is not control:
                os.chown(folder, account.pw_uid, account.pw_gid)
        self.write_metadata(body.instance_id, DESCRIPTION, body.metadata, body.user)
        group = ""
        if body.cpu_share and self._cgroups is not None:
            group = str(self._cgroups.make(body.instance_id, body.cpu_share))
        alien = account is not None and account.pw_uid != os.geteuid()
        spec = {
            "argv": body.argv,
            "environment": self._environment(body, alien=alien),
            "cwd": str(own / "work"),
            "cgroup": group,
            "cpu_share": body.cpu_share,
            "spare_command": body.spare_command,
            "stop_grace_s": body.stop_grace_s,
            "uid": account.pw_uid if account is not None and alien else None,
            "gid": account.pw_gid if account is not None and alien else None,
            "groups": (
                os.getgrouplist(account.pw_name, account.pw_gid)
                if account is not None and alien
                else []
            ),
        }
        init.write_aside(str(control / init.SPEC), spec)
        return self._spawn(control, body.instance_id)

    def ask_to_stop(self, process: Process) -> None:
        """Ask an instance to end within its grace."""
        processes.send(process, signal.SIGTERM)

    def kill(self, instance_id: str, process: Process | None) -> None:
        """End all of an instance at once; returns when nothing of it runs."""
        doomed = [] if process is None else [process, *processes.descendants(process)]
        for found in (*doomed, *self._left(instance_id)):
            processes.send(found, signal.SIGKILL)
        self.sweep(instance_id)

    def sweep(self, instance_id: str) -> None:
        """Kill what is left of an instance whose first process has ended."""
        deadline_s = time.monotonic() + _GONE_S
        while left := self._left(instance_id):
            for process in left:
                processes.send(process, signal.SIGKILL)
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"processes of {instance_id} do not end: {[pid for pid, _ in left]}"
                )
            time.sleep(0.002)

    def how_it_ended(self, instance_id: str) -> Mapping[str, object]:
        """What its first process left behind; empty if it was killed."""
        end: Mapping[str, object] | None = _read(self._control / instance_id / init.END)
        return end or {}

    def begun(self, instance_id: str) -> Process | None:
        """The first process of an instance, None before it has begun."""
        begun: list[int] | None = _read(self._control / instance_id / init.BEGUN)
        return None if begun is None else (begun[0], begun[1])

    def reap(self, process: Process) -> None:
        """Take the exit of an instance's first process, if it was ours to take."""
        if process[0] <= 0:
            return  # never started; for waitpid such numbers are groups of processes
        with suppress(ChildProcessError):
            os.waitpid(process[0], os.WNOHANG)

    def write_metadata(self, instance_id: str, name: str, content: object, user: str) -> None:
        """Say something in an instance's metadata folder, all at once."""
        file = self.metadata(instance_id) / name
        with suppress(FileNotFoundError):  # it has just ended
            init.write_aside(str(file), content)
            if user and os.geteuid() == 0:
                account = pwd.getpwnam(user)
                os.chown(file, account.pw_uid, account.pw_gid)

    def clear(self, instance_id: str) -> None:
        """Remove the disk of an instance that has ended, and consoles of long ago."""
        shutil.rmtree(self._instances / instance_id, ignore_errors=True)
        if self._cgroups is not None:
            self._cgroups.remove(instance_id)
        with suppress(FileNotFoundError):
            (self._control / instance_id / init.SPEC).unlink()
        ended = [folder for folder in self._control.iterdir() if (folder / init.END).exists()]
        if len(ended) > _KEPT:
            for folder in sorted(ended, key=_ended_s)[: len(ended) - _KEPT]:
                shutil.rmtree(folder, ignore_errors=True)

    def note_end(self, instance_id: str, end: Mapping[str, object]) -> None:
        """Say how an instance ended whose first process could not."""
        (self._control / instance_id).mkdir(mode=0o700, exist_ok=True)
        init.write_aside(str(self._control / instance_id / init.END), {**end, "at_s": time.time()})

    def close(self) -> None:
        """Let go of cgroups that no instance needs."""
        if self._cgroups is not None:
            self._cgroups.close()

    def _left(self, instance_id: str) -> list[Process]:
        found = processes.carriers(INSTANCE_ID, instance_id)
        if self._cgroups is not None:
            named = (processes.process_of(pid) for pid in self._cgroups.pids(instance_id))
            found += [process for process in named if process is not None and process not in found]
        return found

    def _environment(self, body: Body, *, alien: bool) -> dict[str, str]:
        given = {
            name: text for name, text in self._environ.items() if _is_passed(name, alien=alien)
        }
        if alien:
            account = pwd.getpwnam(body.user)
            given |= {"HOME": account.pw_dir, "USER": body.user, "LOGNAME": body.user}
        return {
            **given,
            **body.variables,
            INSTANCE_ID: body.instance_id,
            "SPOTLINE_METADATA_DIR": str(self.metadata(body.instance_id)),
            "SPOTLINE_WORK_DIR": str(self._instances / body.instance_id / "work"),
        }

    def _spawn(self, control: Path, instance_id: str) -> Process:
        console = os.open(control / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-S", "-m", init.__name__, str(control.resolve())],
                {
                    "PATH": os.defpath,
                    "PYTHONPATH": str(Path(spotline.__file__).resolve().parents[1]),
                    INSTANCE_ID: instance_id,
                },
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, console, 1),
                    (os.POSIX_SPAWN_DUP2, console, 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE),
            )
        finally:
            os.close(console)
        process = processes.process_of(pid)
        if process is None:
            raise OSError(errno.ESRCH, f"the first process of {instance_id} ended at once")
        return process


def _is_passed(name: str, *, alien: bool) -> bool:
    """Whether a variable of ours is for instances, which may be another user's."""
    if alien:
        return name in (*_COMMON, _SECRETS)
    return name == _SECRETS or name.startswith(_SECRET) or not name.startswith("SPOTLINE_")


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return None


def _ended_s(folder: Path) -> float:
    try:
        return (folder / init.END).stat().st_mtime
    except FileNotFoundError:
        return 0.0
