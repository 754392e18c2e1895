"""The variables of another process, by which its kin is known whoever its parent is by now.

Standard library only, and little of it: the first process of every local instance loads this.
"""

from __future__ import annotations

import time

_PROC = "/proc"
# Where fields of /proc/PID/stat lie behind the name, which may hold anything.
_SIZE, _ENVIRONMENT_BEGINS, _ENVIRONMENT_ENDS = 20, 47, 48
# An exec takes microseconds; on a busy machine it may have to wait for its turn.
_LOOKS, _LOOK_S = 1000, 0.001


def environment_of(pid: int) -> list[bytes]:
    """The variables that a process was started with, as `NAME=VALUE`; none if it has ended.

    While a process becomes another program the kernel shows no variables of it for a moment, in
    which it would pass for a stranger's. This looks again until the moment is over.

    Raises
    ------
    PermissionError
        It is another user's.
    """
    variables = b""
    for _ in range(_LOOKS):
        try:
            with open(f"{_PROC}/{pid}/environ", "rb") as file:
                variables = file.read()
            if variables or not _has_some(pid):
                break
        except (FileNotFoundError, ProcessLookupError):
            return []
        time.sleep(_LOOK_S)
    return variables.split(b"\0")


def _has_some(pid: int) -> bool:
    """Whether a process that showed no variables has, or is about to have, memory with some."""
    with open(f"{_PROC}/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    if fields[_SIZE] == b"0":
        return False  # it has ended, or is the kernel's own
    begins, ends = int(fields[_ENVIRONMENT_BEGINS]), int(fields[_ENVIRONMENT_ENDS])
    return ends == 0 or ends > begins
