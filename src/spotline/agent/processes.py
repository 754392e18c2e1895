"""Finding and signalling the processes of a program, also those that made sessions of their own.

Every process of a program inherits a variable of its environment, the marker. So they are found by
it in `/proc`, whatever their parent is by now; a process that emptied its environment is found below
one that did not.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.process_environment import environment_of

MARKER = "SPOTLINE_RANKS"

_PROC = Path("/proc")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"})
# What torchrun sets for its workers, and for nothing else that it starts.
_WORKER_VARIABLE = b"TORCHELASTIC_RUN_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEntry:
    """A process that lives."""

    pid: int
    parent: int
    name: str


def all_processes() -> Mapping[int, ProcessEntry]:
    """Every process that is no zombie."""
    found: dict[int, ProcessEntry] = {}
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_bytes()
        except OSError:
            continue  # it has just ended
        # The name stands in parentheses, and may hold some.
        name = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode("utf-8", "replace")
        state, parent = stat[stat.rindex(b")") + 2 :].split()[:2]
        if state not in (b"Z", b"X"):
            pid = int(entry.name)
            found[pid] = ProcessEntry(pid=pid, parent=int(parent), name=name)
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        return environment_of(pid)
    except OSError:
        return []  # it is another user's


def processes_of(marker: str) -> set[int]:
    """All living processes whose marker is this one or goes on after it, and what is below them.

    A marker that ends with `/` is that of all programs of an instance.
    """
    processes = all_processes()
    wanted = f"{MARKER}={marker}".encode()

    def has_it(pid: int) -> bool:
        lines = _environment(pid)
        if marker.endswith("/"):
            return any(line.startswith(wanted) for line in lines)
        return wanted in lines

    found = {pid for pid in processes if has_it(pid)}
    return found | _below(found, processes)


def _below(roots: Iterable[int], processes: Mapping[int, ProcessEntry]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def rank_processes(root: int, *, launched: bool) -> set[int]:
    """The processes below one that was started which are ranks: those that are told to stop.

    A shell that waits for its command would die and leave it, and torchrun would end its workers in
    its own way; helpers of a rank, such as workers that load data, must live while it saves. So it
    is what a shell runs, and the workers of a launcher.

    Parameters
    ----------
    launched
        The process is torchrun; as long as it has no workers, it stands for the rank.
    """
    processes = all_processes()
    if root not in processes:
        return set()
    ranks: set[int] = set()
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        children = [process.pid for process in processes.values() if process.parent == pid]
        if processes[pid].name in _SHELLS and children:
            waiting += children
        else:
            ranks.add(pid)
    if launched:
        workers = {
            process.pid
            for process in processes.values()
            if process.parent in ranks and _is_worker(process.pid)
        }
        return workers or ranks
    return ranks


def _is_worker(pid: int) -> bool:
    return any(line.startswith(_WORKER_VARIABLE + b"=") for line in _environment(pid))


def send_signal(pids: Iterable[int], number: signal.Signals) -> int:
    """Signal processes, but for those that have just ended; returns how many were reached."""
    reached = 0
    for pid in sorted(pids):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        reached += 1
    return reached
