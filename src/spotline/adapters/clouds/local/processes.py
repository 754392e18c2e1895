"""Processes of this machine, each known by its pid and when it began: pids come again.

Standard library only, and little of it: every instance's first process loads this.
"""

from __future__ import annotations

import os
import signal

from spotline.adapters.process_environment import environment_of

# A pid, and when that process began, in clock ticks since the machine did.
Process = tuple[int, int]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Where fields of /proc/PID/stat lie behind the name, which may hold anything.
_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS, _BEGAN = 0, 1, 11, 12, 19


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def process_of(pid: int) -> Process | None:
    """The process that has this pid now; None if none runs: a zombie has ended."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in (b"Z", b"X"):
        return None
    return pid, int(fields[_BEGAN])


def runs(process: Process) -> bool:
    """Whether it has not ended."""
    return process_of(process[0]) == process


def cpu_s(process: Process) -> float:
    """CPU seconds that it used so far, those of its children not counted; 0 if it is gone."""
    fields = _stat(process[0])
    if fields is None or int(fields[_BEGAN]) != process[1]:
        return 0.0
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S


def open_process(process: Process) -> int | None:
    """A file descriptor that is readable once it has ended, None if it has; the caller closes it."""
    if not runs(process):
        return None
    try:
        descriptor = os.pidfd_open(process[0])
    except ProcessLookupError:
        return None
    if runs(process):
        return descriptor
    os.close(descriptor)
    return None


def send(process: Process, number: int) -> bool:
    """Send a signal to exactly this process; False if it has ended."""
    descriptor = open_process(process)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def pids() -> list[int]:
    """All that there are."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def descendants(process: Process) -> list[Process]:
    """The processes below one, parents first, at one look; none if it has ended, its pid another's."""
    if not runs(process):
        return []
    children: dict[int, list[Process]] = {}
    ended = set()
    for found in pids():
        fields = _stat(found)
        if fields is None:
            continue
        if fields[_STATE] in (b"Z", b"X"):
            ended.add(found)
        child = (found, int(fields[_BEGAN]))
        children.setdefault(int(fields[_PARENT]), []).append(child)
    below: list[Process] = []
    parents = [process[0]]
    while parents:
        mine = children.get(parents.pop(0), [])
        below += [child for child in mine if child[0] not in ended]
        parents += [child[0] for child in mine]
    # Were it over by now, what was found could be another's.
    return below if runs(process) else []


def carriers(variable: str, text: str) -> list[Process]:
    """The processes that were started with a variable of this value, as far as we may see."""
    wanted = f"{variable}={text}".encode()
    found = []
    for pid in pids():
        process = process_of(pid)
        if process is None:
            continue
        try:
            environment = environment_of(pid)
        except PermissionError:
            continue
        # Between two of these it may have become another's.
        if wanted in environment and runs(process):
            found.append(process)
    return found
