"""How the training program of a job is run, as its owner states it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from spotline.domain.problems import refuse_any

DEFAULT_GRACE_S = 30
# What a job has that does not say after how long its program counts as stalled: the larger.
STALLED_SLOTS = 3
LEAST_STALLED_S = 900
_SHA256 = re.compile("[0-9a-f]{64}")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Launcher(Enum):
    """How the processes of a program are started on an instance."""

    PLAIN = "plain"
    TORCHRUN = "torchrun"


class ProgressSource(Enum):
    """Where the work done is read from: the library, the output, or a file of JSON lines."""

    SDK = "sdk"
    OUTPUT = "output"
    FILE = "file"


class DataReads(Enum):
    """How often data is read: by each start of the program, or in each epoch."""

    ONCE = "once"
    EVERY_EPOCH = "every_epoch"


class OnStall(Enum):
    """What happens to a program that reports nothing for too long: an alarm, or a retry."""

    ALARM = "alarm"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReading:
    """Where the work done is read from.

    `pattern` is a regular expression with a group `done` (`OUTPUT`) or the name of a field
    (`FILE`), whose file is `path`, below the working directory.
    """

    source: ProgressSource = ProgressSource.SDK
    pattern: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        if (self.source is ProgressSource.SDK) == bool(self.pattern):
            needed = "be empty" if self.source is ProgressSource.SDK else "not be empty"
            yield f"run.progress.pattern must {needed}, was {self.pattern!r}"
        if (self.source is ProgressSource.FILE) != bool(self.path):
            needed = "not be empty" if self.source is ProgressSource.FILE else "be empty"
            yield f"run.progress.path must {needed}, was {self.path!r}"
        if self.source is ProgressSource.OUTPUT:
            try:
                groups = re.compile(self.pattern).groupindex
            except re.error as error:
                yield f"run.progress.pattern must be a regular expression: {error}"
                return
            if "done" not in groups:
                yield f"run.progress.pattern must have a group (?P<done>...), was {self.pattern!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentVariable:
    """A variable of the program's environment; everybody who may see the job sees its value."""

    name: str
    value: str

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.name):
            raise ValueError(f"run.environment must name variables, was {self.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Data that the program reads; `size_gb` in 10^9 bytes, 0 where it is not known."""

    uri: str
    size_gb: float = 0.0
    reads: DataReads = DataReads.ONCE

    def __post_init__(self) -> None:
        if not self.uri:
            raise ValueError("run.data.uri must not be empty")
        if not (math.isfinite(self.size_gb) and self.size_gb >= 0):
            raise ValueError(f"run.data.size_gb must be finite and >= 0, was {self.size_gb}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPackage:
    """A packed working directory: a tar.gz at `uri`, whose bytes have this SHA-256."""

    sha256: str
    uri: str
    size_bytes: int

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"run.package.sha256 must be 64 hex digits, was {self.sha256!r}")
        if not self.uri:
            raise ValueError("run.package.uri must not be empty")
        if self.size_bytes < 0:
            raise ValueError(f"run.package.size_bytes must be >= 0, was {self.size_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a job's training program is run.

    Parameters
    ----------
    command
        Its words; a line for a shell is `sh`, `-c` and the line.
    setup
        A line for a shell, run once on every instance before the first start.
    image
        Of the container that it runs in; empty: none.
    package
        Its working directory; None: an empty one.
    environment, secrets
        Ascending by name; secrets are names that the instance resolves by itself.
    ranks_per_instance
        Processes on every instance, >= 0 (0: one).
    grace_s
        Seconds of wall time between being asked to save and being killed, >= 0 (0: 30).
    stalled_after_s
        Seconds of market time without a report of progress or of a checkpoint after which it
        counts as stalled, >= 0 (0: see `seconds_to_stall`).
    on_stall
        What happens then; None: an alarm.
    """

    command: tuple[str, ...]
    setup: str = ""
    image: str = ""
    package: RunPackage | None = None
    environment: tuple[EnvironmentVariable, ...] = ()
    secrets: tuple[str, ...] = ()
    launcher: Launcher | None = None
    ranks_per_instance: int = 0
    progress: ProgressReading | None = None
    data: tuple[DataSet, ...] = field(default=())
    grace_s: int = 0
    stalled_after_s: int = 0
    on_stall: OnStall | None = None

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        if not self.command or not self.command[0]:
            yield "run.command must not be empty"
        names = [variable.name for variable in self.environment]
        if names != sorted(set(names)):
            yield f"run.environment must ascend by name without repeats, was {names}"
        # What is no name may be the secret itself, written in the place of its name.
        if wrong := [at for at, name in enumerate(self.secrets) if not _VARIABLE.fullmatch(name)]:
            where = ", ".join(map(str, wrong))
            yield f"run.secrets must be names of variables, had others at index {where}"
        elif list(self.secrets) != sorted(set(self.secrets)):
            yield f"run.secrets must ascend without repeats, were {list(self.secrets)}"
        if both := sorted(set(names) & set(self.secrets)):
            yield f"run.secrets must not name variables of run.environment, were {both}"
        for name in ("ranks_per_instance", "grace_s", "stalled_after_s"):
            if getattr(self, name) < 0:
                yield f"run.{name} must be >= 0, was {getattr(self, name)}"

    @property
    def seconds_of_grace(self) -> int:
        """Seconds of wall time that its program has to save."""
        return self.grace_s or DEFAULT_GRACE_S

    def seconds_to_stall(self, slot_s: int) -> int:
        """Seconds of market time without a report that make it stalled, in slots of `slot_s`."""
        return self.stalled_after_s or max(STALLED_SLOTS * slot_s, LEAST_STALLED_S)

    @property
    def restarts_on_stall(self) -> bool:
        """Whether it is ended and started again where it is stalled."""
        return self.on_stall is OnStall.RESTART

    @property
    def ranks(self) -> int:
        """Processes on every instance."""
        return self.ranks_per_instance or 1
