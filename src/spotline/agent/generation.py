"""One generation on this instance: from the order to run it until its end is told."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass
from typing import Any

import structlog

from spotline.adapters.grpc.agent.messages import AgentTask, Order, RanksNews
from spotline.agent.files import write_whole
from spotline.agent.image import folders_to_mount
from spotline.agent.listening import Listener, ListenerPorts
from spotline.agent.output import LocalLog, OutputSpool, RankOutput
from spotline.agent.preparation import NotPrepared, Preparation, Prepared
from spotline.agent.program import WANTS_TO_GO_ON, Ending, Program
from spotline.agent.progress import LineTail
from spotline.agent.ranks import (
    MembersUnreachable,
    RankPlace,
    RankStart,
    checkpoint_uri,
    rank_starts,
)
from spotline.agent.rendezvous import PortTaken, is_free, master_port, own_port, says_in_use
from spotline.agent.secrets import Masker
from spotline.agent.settings import AgentSettings
from spotline.domain.jobs.run import Launcher, ProgressReading

# How often events and progress are looked at, wall seconds; output is sent at every fifth look.
_LOOK_S = 0.2
_LOOKS_PER_FLUSH = 5
_MOST_DETAIL = 4000

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPorts:
    """What all generations of an instance share."""

    settings: AgentSettings
    task: AgentTask
    spool: OutputSpool
    listening: ListenerPorts
    events: LineTail
    heartbeat_s: float


class GenerationRun:
    """A generation that this instance is a member of.

    Parameters
    ----------
    order
        The first that said to run it.
    """

    def __init__(self, order: Order, preparation: Preparation, ports: GenerationPorts) -> None:
        self.generation = order.generation
        self._order = order
        self._preparation = preparation
        self._ports = ports
        self._since_s = ports.listening.clock.wall_s()
        self._program: Program | None = None
        self._listener: Listener | None = None
        self._called_off = asyncio.Event()

    def stop(self) -> None:
        """Have the program save and end; a program that did not start yet does not start."""
        if not self._called_off.is_set():
            self._called_off.set()
            self._write_allocation("stop")
        if self._listener is not None:
            self._listener.disturb()
        if self._program is not None:
            self._program.stop()

    def kill(self) -> None:
        """End the program now."""
        self._called_off.set()
        if self._program is not None:
            self._program.kill()

    def disturb(self) -> None:
        """Note a notice: from here on work is not undisturbed."""
        if self._listener is not None:
            self._listener.disturb()

    async def run(self) -> None:
        """Run the program to its end, and post how it ended."""
        post = self._ports.listening.post
        prepared: Prepared | None = None
        try:
            # Now, since members that are ready sooner look for it; and when the ranks start.
            self._rendezvous_port()
            prepared = await self._prepared()
            if prepared is None or self._called_off.is_set():
                ending = Ending(
                    exit_code=WANTS_TO_GO_ON, detail="it was told to stop before it started"
                )
            else:
                ending = await self._run(prepared)
        except NotPrepared as error:
            ending = Ending(exit_code=error.exit_code, detail=str(error))
        except PortTaken as error:
            # The next generation has another one.
            ending = Ending(exit_code=WANTS_TO_GO_ON, detail=str(error))
        except (MembersUnreachable, OSError) as error:
            ending = Ending(exit_code=1, detail=str(error))
        masker = prepared.masker if prepared else Masker()
        detail = masker.mask(ending.detail)[-_MOST_DETAIL:]
        post(RanksNews(generation=self.generation, exit_code=ending.exit_code, detail=detail))
        _log.info("generation_ended", generation=self.generation, exit_code=ending.exit_code)

    async def _prepared(self) -> Prepared | None:
        """Wait until the instance is ready; None where the generation is called off before.

        The preparation then goes on: the next generation needs it, too.
        """
        async with asyncio.TaskGroup() as tasks:
            ready = tasks.create_task(self._preparation.until_settled(), name="ready")
            called_off = tasks.create_task(self._called_off.wait(), name="called-off")
            await asyncio.wait({ready, called_off}, return_when=asyncio.FIRST_COMPLETED)
            for task in (ready, called_off):
                task.cancel()
        return None if ready.cancelled() else self._preparation.result()

    async def _run(self, prepared: Prepared) -> Ending:
        ports, task = self._ports, self._ports.task
        port = self._rendezvous_port()
        starts = self._starts(prepared, port)
        listener = self._listener = self._new_listener(prepared.place)
        outputs = {start.rank: self._output(start, prepared, listener) for start in starts}
        self._write_allocation("run")
        containers = [self._container(start) for start in starts] if prepared.engine else []

        async def end_containers() -> None:
            if prepared.engine is not None:
                for name in containers:
                    await _run_quietly(prepared.engine.end(name))

        program = self._program = Program(
            marker=f"{ports.settings.instance_id}/{self.generation}/{self._since_s:.6f}",
            clock=ports.listening.clock,
            grace_s=task.run.seconds_of_grace,
            launched=task.run.launcher is Launcher.TORCHRUN,
            end_containers=end_containers if containers else None,
        )
        ending = await program.start(starts, outputs, prepared.place.work_dir)
        if ending is not None:
            return ending
        ports.listening.post(RanksNews(generation=self.generation))
        _log.info("generation_started", generation=self.generation, ranks=len(starts))
        ports.listening.board.running(True)
        if self._called_off.is_set():
            program.stop()
        try:
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(self._look(listener, outputs), name="look")
                ending = await program.wait()
                looking.cancel()
        finally:
            ports.listening.board.running(False)
        listener.look(final=True)
        words = [output.last_words for output in outputs.values()]
        if ending.exit_code not in (0, WANTS_TO_GO_ON) and any(map(says_in_use, words)):
            # None of the ranks is left: another program may have been quicker than they were.
            self._check_port(port)
        return ending

    def _rendezvous_port(self) -> int:
        """The port at which the ranks find each other.

        Raises
        ------
        PortTaken
            It is one of this instance, and something else listens there.
        """
        job_id = self._ports.task.job_id
        if len(self._order.peers) == 1:
            return own_port(job_id, self.generation)
        port = master_port(job_id, self.generation)
        self._check_port(port)
        return port

    def _check_port(self, port: int) -> None:
        is_first = self._order.node_rank(self._ports.settings.instance_id) == 0
        if is_first and not is_free(port):
            raise PortTaken(f"MASTER_PORT {port} is taken on the first member")

    def _starts(self, prepared: Prepared, port: int) -> list[RankStart]:
        task, place = self._ports.task, prepared.place
        starts = rank_starts(task, self._order, place, port)
        if prepared.engine is None:
            return starts
        mounts = folders_to_mount(checkpoint_uri(task), place.work_dir, place.run_dir)
        return [
            prepared.engine.wrap(
                start,
                image=task.run.image,
                name=self._container(start),
                work_dir=place.work_dir,
                mounts=mounts,
            )
            for start in starts
        ]

    def _container(self, start: RankStart) -> str:
        named = "".join(c if c.isalnum() else "-" for c in self._ports.settings.instance_id)
        return f"spotline-{named}-{self.generation}-{start.rank}"

    def _new_listener(self, place: RankPlace) -> Listener:
        ports = self._ports
        return Listener(
            generation=self.generation,
            reading=ports.task.run.progress or ProgressReading(),
            events=ports.events,
            work_dir=place.work_dir,
            since_s=self._since_s,
            reports=self._order.node_rank(ports.settings.instance_id) == 0,
            every_s=ports.heartbeat_s,
            ports=ports.listening,
        )

    def _output(self, start: RankStart, prepared: Prepared, listener: Listener) -> RankOutput:
        ports = self._ports
        return RankOutput(
            generation=self.generation,
            rank=start.rank,
            spool=ports.spool,
            masker=prepared.masker.copy(),
            clock=ports.listening.clock,
            file=LocalLog(ports.settings.output_dir / f"{self.generation}-{start.rank}.log"),
            heed=listener.heed_line,
        )

    async def _look(self, listener: Listener, outputs: dict[int, RankOutput]) -> None:
        for look in itertools.count(1):
            listener.look()
            if look % _LOOKS_PER_FLUSH == 0:
                for output in outputs.values():
                    output.flush()
            await self._ports.listening.clock.sleep(_LOOK_S)

    def _write_allocation(self, state: str) -> None:
        peers = sorted(self._order.peers, key=lambda peer: peer.node_rank)
        allocation: dict[str, Any] = {
            "generation": self.generation,
            "members": [
                {"instance_id": peer.instance_id, "node_rank": peer.node_rank, "host": peer.host}
                for peer in peers
            ],
            "node_rank": self._order.node_rank(self._ports.settings.instance_id),
            "instances": len(peers),
            "state": state,
        }
        try:
            file = self._ports.settings.run_dir / "allocation.json"
            write_whole(file, json.dumps(allocation) + "\n")
        except OSError as error:
            # A full disk: SIGTERM still says what the file would have.
            _log.error("allocation_not_written", error=str(error))


async def _run_quietly(words: tuple[str, ...]) -> None:
    """Run a command whose failure only says that there was nothing to do."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
