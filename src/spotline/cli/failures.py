"""What went wrong, for people: lines `spotline: WHERE: expected ..., found ...`, and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from spotline.cli.tables import escaped
from spotline.contracts.errors import ContractError, SpotlineError

BAD_INPUT = 2

_PREFIX = "spotline: "
_LONGEST_LINE = 2_000

# What a path that was given may be; other failures of the system are no mistake of the user's.
_OF_FILES = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


def say(message: str) -> None:
    """Say what went wrong on stderr: a line for each line of the message, each with the prefix."""
    for line in message.split("\n"):
        text = _PREFIX + escaped(line.removeprefix(_PREFIX))
        if len(text) > _LONGEST_LINE:
            text = f"{text[:_LONGEST_LINE]}... ({len(text) - _LONGEST_LINE:,} more characters)"
        typer.secho(text, err=True, fg="red")


def say_json(message: str, **details: object) -> None:
    """Say what went wrong as JSON on stdout, with those of the details that say anything."""
    said = {"error": message, **{key: value for key, value in details.items() if value}}
    sys.stdout.write(json.dumps(said, indent=2) + "\n")


@contextmanager
def explained() -> Iterator[None]:
    """Turn bad input inside the block into its message on stderr and exit code 2."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, _OF_FILES):
            raise
        say(_of_system(error))
        raise typer.Exit(BAD_INPUT) from error
    except (SpotlineError, ValueError) as error:
        # A contract error begins with the file or option at fault.
        say(str(error))
        raise typer.Exit(BAD_INPUT) from error


def _of_system(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename is None:
        return reason
    return f"{error.filename}: expected a path that can be used, found: {reason}"


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn a failure of the system to write `path` inside the block into a `ContractError`."""
    try:
        yield
    except OSError as error:
        problem = f"expected a place to write to, found: {error.strerror or error}"
        raise ContractError(str(path), problem) from error
