"""What went wrong, for people: one line that says what to do, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from spotline.contracts.errors import ContractError, SpotlineError

BAD_INPUT = 2

# What a path that was given may be; other failures of the system are no mistake of the user's.
_OF_FILES = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


@contextmanager
def explained() -> Iterator[None]:
    """Turn bad input inside the block into its message on stderr and exit code 2."""
    try:
        yield
    except ContractError as error:
        # It begins with the file or option at fault.
        print(error, file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error
    except (SpotlineError, ValueError, *_OF_FILES) as error:
        print(f"spotline: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn a failure of the system to write `path` inside the block into a `ContractError`."""
    try:
        yield
    except OSError as error:
        problem = f"expected a place to write to, found: {error.strerror or error}"
        raise ContractError(str(path), problem) from error
