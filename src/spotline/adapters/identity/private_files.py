"""Files and folders that only their owner may read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spotline.adapters.whole_file import replacing
from spotline.contracts.errors import ConfigError

_OTHERS = 0o077


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600, whole or not at all.

    Raises
    ------
    OSError
        Its folder is absent, not writable, or full.
    """
    with replacing(path) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def make_private_folder(folder: Path) -> None:
    """Make a folder of mode 0700 where there is none; one that is there stays as it is.

    Raises
    ------
    OSError
        It cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def check_private(path: Path) -> None:
    """Refuse a file or folder that is another user's, or that others may read.

    Raises
    ------
    ConfigError
        It is; says the command that mends it.
    OSError
        It cannot be looked at.
    """
    found = path.lstat()
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to user {found.st_uid}, expected {os.geteuid()}: whoever owns it knows "
            f"the keys in it; take another store, or: sudo chown -R {os.geteuid()} {path}"
        )
    if found.st_mode & _OTHERS:
        raise ConfigError(
            f"{path} can be read by others (mode {found.st_mode & 0o777:04o}), expected its owner "
            f"only; mend it: chmod -R go-rwx {path}, then make its keys anew: spotline auth keys rotate"
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; other processes, and other threads, wait."""
    descriptor = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
