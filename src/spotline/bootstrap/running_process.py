"""Which process serves a store: noted in the store, for whoever comes next."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from spotline.contracts.errors import ConfigError

RUNNING_FILE = "up.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """The process that serves a store: `started` tells it from a later one of the same number."""

    pid: int
    started: str

    @classmethod
    def this(cls) -> Self:
        """The process that calls."""
        return cls(pid=os.getpid(), started=_started(os.getpid()))

    def claim(self, store: Path) -> None:
        """Note this process in the store.

        Raises
        ------
        ConfigError
            The store names another process, which is there.
        """
        with (store / ".up.lock").open("ab") as lock:
            # Two that come at once must not both find nobody; closing the file unlocks it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            other = self.of(store)
            if other is not None and other != self and other.is_alive:
                raise ConfigError(
                    f"the store {store} is in use by process {other.pid}; stop that process, or "
                    "choose another store"
                )
            self.write(store)

    def write(self, store: Path) -> None:
        """Note this process in the store, whichever it names."""
        aside = store / f".{RUNNING_FILE}.{self.pid}"
        aside.write_text(json.dumps({"pid": self.pid, "started": self.started}))
        aside.replace(store / RUNNING_FILE)

    def erase(self, store: Path) -> None:
        """Remove the note, unless another process has left its own."""
        if self.of(store) == self:
            (store / RUNNING_FILE).unlink(missing_ok=True)

    @classmethod
    def of(cls, store: Path) -> Self | None:
        """The process that a store names, None where it names none that can be read."""
        try:
            said = json.loads((store / RUNNING_FILE).read_text())
            return cls(pid=int(said["pid"]), started=str(said["started"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    @property
    def is_alive(self) -> bool:
        """Whether it is there, and still the same."""
        return bool(self.started) and _started(self.pid) == self.started


def _started(pid: int) -> str:
    """When a process was started, in the words of /proc; empty where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name, in brackets, may hold anything; what follows it is numbers. Zombies are gone.
    after = stat.rpartition(")")[2].split()
    return "" if after[0] == "Z" else after[19]
