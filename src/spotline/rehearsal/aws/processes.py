"""Instances as local processes: a command is started as each begins to run, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

_PID = "pid"
# Of a rehearsal that ends; what serves it waits no longer before it kills.
_LAST_GRACE_S = 5.0
OUTPUT = "output.log"
USER_DATA = "user-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """What each instance runs.

    Parameters
    ----------
    command
        As a shell splits it; it is started in a folder of the instance.
    folder
        Holds a folder for each instance: its output, its user data, its process id.
    metadata_url
        Where an instance finds its metadata.
    grace_s
        Wall seconds between SIGTERM and SIGKILL; at most five where the rehearsal itself ends.
    """

    command: str
    folder: Path
    metadata_url: Callable[[str], str]
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.command.strip() or shutil.which(shlex.split(self.command)[0]) is None:
            raise ValueError(
                f"--instance-command must begin with a program that is there, was {self.command!r}"
            )

    @property
    def arguments(self) -> list[str]:
        """The program, by its whole path, and its arguments."""
        program, *rest = shlex.split(self.command)
        return [str(Path(shutil.which(program) or program).absolute()), *rest]


class InstanceProcesses:
    """The processes of the instances that run."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._plan = plan
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._endings: dict[str, asyncio.Event] = {}
        self._grace_s = plan.grace_s
        self._group: asyncio.TaskGroup | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start and end processes within the block; all are ended as it is left.

        What an earlier rehearsal left behind, killed in the middle, is ended first.
        """
        self._end_leftovers()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                self._grace_s = min(self._grace_s, _LAST_GRACE_S)
                for ending in self._endings.values():
                    ending.set()

    def start(self, instance_id: str, region: str, user_data: bytes) -> None:
        """Start an instance's process, unless it has one already."""
        if self._group is None or instance_id in self._tasks:
            return
        self._endings[instance_id] = asyncio.Event()
        self._tasks[instance_id] = self._group.create_task(
            self._run(instance_id, region, user_data), name=f"instance {instance_id}"
        )

    def stop(self, instance_id: str) -> None:
        """End an instance's process, by force once its grace is over; one that has none has none."""
        ending = self._endings.get(instance_id)
        if ending is not None:
            ending.set()

    async def _run(self, instance_id: str, region: str, user_data: bytes) -> None:
        folder = self._plan.folder / instance_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / USER_DATA).write_bytes(user_data)
        environment = {
            **os.environ,
            **self._plan.environment,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self._plan.metadata_url(instance_id),
            "AWS_REGION": region,
            "REHEARSAL_USER_DATA": str(folder / USER_DATA),
        }
        with (folder / OUTPUT).open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *self._plan.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        (folder / _PID).write_text(f"{process.pid} {_started_at(process.pid)}")
        try:
            await self._until_ended(instance_id, process)
        finally:
            # Cancelled, too: nothing of an instance outlives it.
            _signal(process.pid, signal.SIGKILL)
            await process.wait()
            (folder / _PID).unlink(missing_ok=True)
            del self._tasks[instance_id], self._endings[instance_id]

    async def _until_ended(self, instance_id: str, process: asyncio.subprocess.Process) -> None:
        exited = asyncio.create_task(process.wait(), name=f"exit of {instance_id}")
        ending = asyncio.create_task(self._endings[instance_id].wait(), name=f"end {instance_id}")
        try:
            await asyncio.wait((exited, ending), return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                _log.info("instance_exited", instance_id=instance_id, status=exited.result())
                return
            _signal(process.pid, signal.SIGTERM)
            await asyncio.wait((exited,), timeout=self._grace_s)
        finally:
            exited.cancel()
            ending.cancel()
            await asyncio.gather(exited, ending, return_exceptions=True)

    def _end_leftovers(self) -> None:
        if not self._plan.folder.is_dir():
            return
        for path in sorted(self._plan.folder.glob(f"*/{_PID}")):
            pid, _, started = path.read_text().partition(" ")
            # The number may be another's by now: only who started then is meant.
            if started and started == _started_at(int(pid)):
                _signal(int(pid), signal.SIGKILL)
            path.unlink()


def _started_at(pid: int) -> str:
    """When a process started, as the kernel counts; empty: there is none, or nobody can say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name, in parentheses, may hold blanks; what follows it may not.
    return stat.rpartition(")")[2].split()[19]


def _signal(session: int, number: signal.Signals) -> None:
    """Signal the whole session of an instance: its process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, number)
