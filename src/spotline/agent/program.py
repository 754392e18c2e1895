"""The processes of one generation on this instance, from start to end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import structlog

from spotline.agent.output import RankOutput
from spotline.agent.ports import AgentClock
from spotline.agent.processes import MARKER, processes_of, rank_processes, send_signal
from spotline.agent.ranks import RankStart

# As a shell has it: no such command, or one that cannot be run.
NOT_FOUND = 127
NOT_RUNNABLE = 126

# Of a program that saved and wants to go on (`EX_TEMPFAIL`).
WANTS_TO_GO_ON = 75

_FAILED_S = 5.0
_READ_BYTES = 64 * 1024
_PIPE_LIMIT_S = 2.0
# What was killed ends when the machine gets round to it.
_REAP_LIMIT_S = 10.0
_KILL_EVERY_S = 0.02
_MOST_KILLS = 500

# How torchrun says which exit code the first worker that failed had; its own is always 1.
_FIRST_FAILURE = re.compile(
    r"Root Cause \(first observed failure\):.*?exitcode\s*:\s*(-?\d+)\s*\(pid", re.DOTALL
)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the ranks ended: the first code that is not 0, else 0, and that rank's last words."""

    exit_code: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _OutputPipe:
    """The end of a pipe that is read."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport

    @classmethod
    async def open(cls, descriptor: int) -> Self:
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        file = os.fdopen(descriptor, "rb", buffering=0)
        try:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), file
            )
        except BaseException:
            file.close()
            raise
        return cls(reader, transport)


class Program:
    """Ranks that run. `wait` enforces what is asked of it, so the caller that starts it waits.

    Parameters
    ----------
    marker
        Tells its processes from all others of this machine.
    grace_s
        Wall seconds that the ranks have to save.
    launched
        Its only process is torchrun.
    end_containers
        Kills the containers that it runs in; processes in there carry no marker.
    """

    def __init__(
        self,
        *,
        marker: str,
        clock: AgentClock,
        grace_s: float = _FAILED_S,
        launched: bool = False,
        end_containers: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._marker = marker
        self._clock = clock
        self._launched = launched
        self._end_containers = end_containers
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._pipes: dict[int, _OutputPipe] = {}
        self._outputs: dict[int, RankOutput] = {}
        self._first_failure: tuple[int, int] | None = None
        self._grace_s = grace_s
        self._stopping = asyncio.Event()
        self._killing = asyncio.Event()

    async def start(
        self, starts: Sequence[RankStart], outputs: Mapping[int, RankOutput], work_dir: Path
    ) -> Ending | None:
        """Start the ranks; an ending where a command cannot be run, and nothing runs then."""
        try:
            return await self._start(starts, outputs, work_dir)
        except BaseException:
            await self._kill_all()
            await self._reap()
            self._close_outputs()
            raise

    async def _start(
        self, starts: Sequence[RankStart], outputs: Mapping[int, RankOutput], work_dir: Path
    ) -> Ending | None:
        for rank_start in starts:
            output = self._outputs[rank_start.rank] = outputs[rank_start.rank]
            try:
                await self._start_rank(rank_start, work_dir)
            except OSError as error:
                code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
                said = f"run.command {rank_start.words[0]!r} cannot be run: {error}"
                output.feed(f"{said}\n".encode())
                await self._end_all()
                self._close_outputs()
                return Ending(exit_code=code, detail=said)
        return None

    async def _start_rank(self, rank_start: RankStart, work_dir: Path) -> None:
        # A pipe of our own: for asyncio a process is alive as long as a child of it holds its pipe.
        reading, writing = os.pipe()
        try:
            self._pipes[rank_start.rank] = await _OutputPipe.open(reading)
            self._processes[rank_start.rank] = await asyncio.create_subprocess_exec(
                *rank_start.words,
                env={**rank_start.environment, MARKER: self._marker},
                cwd=work_dir,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        finally:
            os.close(writing)

    def stop(self) -> None:
        """Tell every rank to save and end, now; kill what is left after the grace. Idempotent."""
        self._stopping.set()

    def kill(self) -> None:
        """Kill everything now. Idempotent."""
        self._killing.set()

    async def wait(self) -> Ending:
        """Wait until no process of the program is left."""
        try:
            async with asyncio.TaskGroup() as tasks:
                enforcing = [
                    tasks.create_task(self._stop_when_asked(), name="stop"),
                    tasks.create_task(self._kill_when_asked(), name="kill"),
                ]
                reading = [
                    tasks.create_task(self._read(rank), name=f"read-{rank}")
                    for rank in self._processes
                ]
                waiting = [
                    tasks.create_task(self._wait_for(rank), name=f"rank-{rank}")
                    for rank in self._processes
                ]
                await asyncio.wait(waiting)
                for task in enforcing:
                    task.cancel()
                # What the ranks left behind would go on, and hold its pipes open.
                await self._end_all()
                await asyncio.wait(reading, timeout=_PIPE_LIMIT_S)
                for task in reading:
                    task.cancel()
        finally:
            # Nothing is left of what ended by itself; of a wait that is cancelled, all is.
            await self._kill_all()
            await self._reap()
            self._close_outputs()
        return self._ending()

    async def _reap(self) -> None:
        waiting = [process.wait() for process in self._processes.values()]
        try:
            async with asyncio.timeout(_REAP_LIMIT_S):
                await asyncio.gather(*waiting)
        except TimeoutError:
            _log.error("processes_left", marker=self._marker)

    def _close_outputs(self) -> None:
        for pipe in self._pipes.values():
            pipe.transport.close()
        for output in self._outputs.values():
            output.close()

    async def _wait_for(self, rank: int) -> None:
        code = await self._processes[rank].wait()
        if code != 0 and self._first_failure is None:
            self._first_failure = (rank, code)
            # The others would wait for it in a collective. One that failed leaves nothing behind
            # that is worth saving; one that saved shows that they are about to.
            if code != WANTS_TO_GO_ON and not self._stopping.is_set():
                self._grace_s = min(self._grace_s, _FAILED_S)
            self.stop()

    async def _read(self, rank: int) -> None:
        while data := await self._pipes[rank].reader.read(_READ_BYTES):
            self._outputs[rank].feed(data)

    async def _stop_when_asked(self) -> None:
        await self._stopping.wait()
        if self._killing.is_set():
            return
        self._tell_ranks()
        await self._clock.sleep(self._grace_s)
        _log.warning("grace_over", marker=self._marker, grace_s=self._grace_s)
        self.kill()

    async def _kill_when_asked(self) -> None:
        await self._killing.wait()
        await self._end_all()

    def _tell_ranks(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                ranks = rank_processes(process.pid, launched=self._launched)
                send_signal(ranks, signal.SIGTERM)

    async def _end_all(self) -> None:
        if self._end_containers is not None:
            await self._end_containers()
        await self._kill_all()

    async def _kill_all(self) -> None:
        """Kill until nothing is left: a process may start another while it is looked for."""
        for _ in range(_MOST_KILLS):
            left = processes_of(self._marker)
            if not left:
                return
            send_signal(left, signal.SIGKILL)
            await self._clock.sleep(_KILL_EVERY_S)
        _log.error("processes_left", marker=self._marker, pids=sorted(left))

    def _ending(self) -> Ending:
        if self._first_failure is None:
            return Ending(exit_code=0)
        rank, code = self._first_failure
        words = self._outputs[rank].last_words
        if self._launched and (said := _FIRST_FAILURE.search(words)):
            code = int(said[1]) or code
        return Ending(exit_code=code, detail=words)
