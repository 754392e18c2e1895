"""Running a program in a container of its image, by the engine that the instance has."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spotline.agent.ranks import RankStart
from spotline.contracts.errors import SpotlineError

ENGINES = ("docker", "podman")


class EngineMissing(SpotlineError):
    """A program names an image, and the instance has nothing to run it with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEngine:
    """A command that takes docker's arguments; `has_gpus` shows it the machine's GPUs."""

    command: str
    has_gpus: bool = False

    def wrap(
        self, start: RankStart, *, image: str, name: str, work_dir: Path, mounts: Sequence[Path]
    ) -> RankStart:
        """Have a rank run in a container `name`; folders have the paths that they have outside.

        Values of its environment stay out of the command line, which all users of a machine see:
        the engine takes them from its own environment.
        """
        words = [
            *(self.command, "run", "--rm", "--init", "--name", name),
            *("--network", "host", "--ipc", "host", "--workdir", str(work_dir)),
        ]
        for folder in mounts:
            words += ["--volume", f"{folder}:{folder}"]
        for variable in sorted(passed_into(start.environment)):
            words += ["--env", variable]
        if self.has_gpus:
            cuda = ["--device", "nvidia.com/gpu=all"]
            words += cuda if Path(self.command).name == "podman" else ["--gpus", "all"]
        words += [image, *start.words]
        return RankStart(rank=start.rank, words=tuple(words), environment=start.environment)

    def end(self, name: str) -> tuple[str, ...]:
        """The command that kills a container, and what is in it."""
        return (self.command, "rm", "--force", name)


# Variables of the machine itself, and paths that do not exist in a container.
_MACHINES_OWN = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "HOSTNAME", "_"}
    | {"LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TERM", "SHLVL"}
)


def passed_into(environment: Mapping[str, str]) -> list[str]:
    """Names of the variables that a container gets."""
    return [name for name in environment if name not in _MACHINES_OWN]


def find_engine(which: Callable[[str], str | None] = shutil.which) -> ContainerEngine:
    """The first engine on PATH.

    Raises
    ------
    EngineMissing
        There is none.
    """
    for name in ENGINES:
        if found := which(name):
            return ContainerEngine(command=found, has_gpus=which("nvidia-smi") is not None)
    raise EngineMissing(
        f"run.image is set, and none of {', '.join(ENGINES)} was found on PATH: install one on "
        "the instance, or run without an image"
    )


def folders_to_mount(checkpoint: str, *folders: Path) -> list[Path]:
    """The folders that a container needs: those given, and that of the checkpoints, if it is one.

    `checkpoint` is a URI; one of an object store needs no folder.
    """
    local = checkpoint.removeprefix("file://")
    chosen = list(folders)
    if local and "://" not in local:
        folder = Path(local)
        folder.mkdir(parents=True, exist_ok=True)
        chosen.append(folder)
    return chosen
