"""Getting an instance ready for its program, once: working directory, secrets, image, setup."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from spotline.adapters.grpc.agent.messages import AgentTask
from spotline.agent.image import ContainerEngine, EngineMissing, find_engine
from spotline.agent.output import LocalLog, OutputSpool, RankOutput
from spotline.agent.package import (
    PackageRefused,
    PackageUnavailable,
    fetch_package,
    unpack_package,
)
from spotline.agent.ports import AgentClock
from spotline.agent.program import Program
from spotline.agent.ranks import RankPlace, RankStart, common_environment
from spotline.agent.secrets import Masker, SecretsMissing, resolve_secrets
from spotline.agent.settings import AgentSettings
from spotline.agent.timing import RetryPauses
from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.run import RunPackage

# As a shell has it for a command that failed before it did anything.
UNPREPARED = 1

_FETCH_TRIES = 4

_log = structlog.get_logger()


class NotPrepared(SpotlineError):
    """The program cannot be started on this instance; `exit_code` is what its ranks end with."""

    def __init__(self, message: str, exit_code: int = UNPREPARED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An instance that is ready: where the program runs, and what masks its secrets."""

    place: RankPlace
    masker: Masker
    engine: ContainerEngine | None = None


class Preparation:
    """Makes an instance ready. What succeeded is not done again; what failed is tried again.

    Parameters
    ----------
    marker
        Tells the processes of the setup from all others.
    """

    def __init__(
        self,
        settings: AgentSettings,
        task: AgentTask,
        place: RankPlace,
        *,
        spool: OutputSpool,
        clock: AgentClock,
        marker: str,
        uniform: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._task = task
        self._place = place
        self._spool = spool
        self._clock = clock
        self._marker = marker
        self._uniform = uniform
        self._unpacked = False
        self._setup_pieces = 0
        self._outcome: Prepared | NotPrepared | None = None
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()

    def want(self) -> None:
        """Have it made ready, unless it is, or is about to be."""
        if not isinstance(self._outcome, Prepared) and not self._wanted.is_set():
            self._settled.clear()
            self._wanted.set()

    async def until_settled(self) -> None:
        """Wait until it is ready, or has failed."""
        self.want()
        await self._settled.wait()

    def result(self) -> Prepared:
        """Return the outcome.

        Raises
        ------
        NotPrepared
            Secrets, package, engine or setup are at fault.
        """
        if not isinstance(self._outcome, Prepared):
            raise self._outcome or NotPrepared("the instance is not ready yet")
        return self._outcome

    async def work(self) -> None:
        """Make it ready whenever that is wanted, for as long as the agent lives."""
        while True:
            await self._wanted.wait()
            try:
                self._outcome = await self._prepare()
            except NotPrepared as error:
                _log.error("not_prepared", error=str(error), exit_code=error.exit_code)
                self._outcome = error
            self._wanted.clear()
            self._settled.set()

    async def _prepare(self) -> Prepared:
        run = self._task.run
        try:
            secrets = resolve_secrets(
                run.secrets, self._settings.secrets_dir, self._settings.environ
            )
            engine = find_engine(self._on_path) if run.image else None
            await asyncio.to_thread(self._settings.work_dir.mkdir, parents=True, exist_ok=True)
        except (SecretsMissing, EngineMissing, OSError) as error:
            raise NotPrepared(str(error)) from error
        if not self._unpacked:
            await self._unpack(run.package)
            self._unpacked = True
        place = replace(self._place, secrets=secrets)
        masker = Masker(secrets.values())
        if run.setup:
            await self._set_up(run.setup, place, masker)
        return Prepared(place=place, masker=masker, engine=engine)

    def _on_path(self, command: str) -> str | None:
        return shutil.which(command, path=self._settings.environ.get("PATH"))

    async def _unpack(self, package: RunPackage | None) -> None:
        if package is None:
            return
        archive = self._settings.base_dir / "package.tar.gz"
        pauses = RetryPauses(self._uniform, first_s=1.0)
        for tries_left in reversed(range(_FETCH_TRIES)):
            try:
                await asyncio.to_thread(fetch_package, package, archive)
                break
            except PackageRefused as error:
                raise NotPrepared(str(error)) from error
            except PackageUnavailable as error:
                if not tries_left:
                    raise NotPrepared(str(error)) from error
                _log.warning("package_unavailable", error=str(error))
                await self._clock.sleep(pauses.next_s())
        try:
            await asyncio.to_thread(unpack_package, archive, self._settings.work_dir)
        except PackageRefused as error:
            raise NotPrepared(str(error)) from error
        archive.unlink()

    async def _set_up(self, line: str, place: RankPlace, masker: Masker) -> None:
        output = RankOutput(
            generation=0,
            rank=0,
            spool=self._spool,
            masker=masker.copy(),
            clock=self._clock,
            file=LocalLog(self._settings.output_dir / "setup.log"),
            first_index=self._setup_pieces,
        )
        start = RankStart(
            rank=0,
            words=("sh", "-c", line),
            environment=common_environment(self._task, 0, place),
        )
        program = Program(marker=self._marker, clock=self._clock)
        ending = await program.start([start], {0: output}, place.work_dir)
        if ending is None:
            ending = await program.wait()
        self._setup_pieces = output.next_index
        if ending.exit_code:
            said = f"run.setup ended with {ending.exit_code}: {ending.detail}"
            raise NotPrepared(said.strip(), ending.exit_code)
