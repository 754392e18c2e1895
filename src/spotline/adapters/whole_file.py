"""Open a file without waiting for ever; replace one whole or not at all, whoever else writes."""

from __future__ import annotations

import gzip
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spotline.contracts.errors import ContractError


def opened(path: Path) -> BinaryIO:
    """Open a file to be read; a pipe that nobody writes to is at its end at once.

    Raises
    ------
    OSError
        It is absent, a folder, a socket, or not readable.
    """
    stream = open(  # noqa: SIM115 -- the caller closes it
        path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
    )
    os.set_blocking(stream.fileno(), True)
    return stream


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say of a file that cannot be read, or unpacked, what was expected of it.

    Raises
    ------
    ContractError
        It is absent, a directory, truncated, damaged, or not readable.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise ContractError(str(path), "expected a file, found none") from error
    except IsADirectoryError as error:
        raise ContractError(str(path), "expected a file, found a directory") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ContractError(
            str(path), f"expected a complete gzip file, found a truncated or damaged one ({error})"
        ) from error
    except OSError as error:
        found = error.strerror or str(error)
        raise ContractError(str(path), f"expected a readable file, found: {found}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to; what is there at the end takes its place.

    The content is on the disk before the name is, and the name before this returns. A writer that
    fails leaves `path` as it was; of two at once the later one wins.

    Raises
    ------
    OSError
        The folder is absent, not writable, or full.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.unfinished")
    try:
        yield unfinished
        _sync(unfinished)
        unfinished.replace(path)
        _sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
