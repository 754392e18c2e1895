"""What went wrong, for people: lines `spotline: WHERE: expected ..., found ...`, and an exit code."""

from __future__ import annotations

import json
import os
import re
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
# How our own values say what they refuse.
_MUST = re.compile(
    r"(?:(?P<place>\S+): )?(?:a )?(?P<field>[^\s:]+) must (?:be |have )?(?P<expected>.+), "
    r"(?:was|were|had) (?P<found>.+)",
    re.DOTALL,
)

_UNKNOWN = re.compile(
    r"^(?P<place>\S+: )unknown [a-z ]+ (?P<found>'[^']*'); (?:expected )(?P<expected>one of .+)$"
)

# What a path that was given may be; other failures of the system are no mistake of the user's.
_OF_FILES = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


def plainly(line: str) -> str:
    """Say `--seed must be >= 0, was -1` as everything else is said."""
    line = _UNKNOWN.sub(r"\g<place>expected \g<expected>, found \g<found>", line)
    match = _MUST.fullmatch(line)
    if match is None:
        return line
    expected = match["expected"]
    if expected.startswith((">", "<")):
        expected = f"a number {expected}"
    place, field = match["place"] or "", match["field"]
    # An option says by itself which field it is.
    where = place if place.startswith("--") else f"{place}: {field}".removeprefix(": ")
    return f"{where}: expected {expected}, found {match['found']}"


def say(message: str) -> None:
    """Say what went wrong on stderr: a line for each line of the message, each with the prefix."""
    for line in message.split("\n"):
        text = _PREFIX + escaped(plainly(line.removeprefix(_PREFIX)))
        if len(text) > _LONGEST_LINE:
            text = f"{text[:_LONGEST_LINE]}... ({len(text) - _LONGEST_LINE:,} more characters)"
        typer.secho(text, err=True, fg="red")


def say_json(message: str, **details: object) -> None:
    """Say what went wrong as JSON on stdout, with those of the details that say anything."""
    lines = "\n".join(plainly(line) for line in message.split("\n"))
    said = {"error": lines, **{key: value for key, value in details.items() if value}}
    sys.stdout.write(json.dumps(said, indent=2) + "\n")


@contextmanager
def explained(*, as_json: bool = False) -> Iterator[None]:
    """Turn bad input inside the block into its message, and exit code 2."""
    tell = say_json if as_json else say
    try:
        yield
    except OSError as error:
        if not isinstance(error, _OF_FILES):
            raise
        tell(_of_system(error))
        raise typer.Exit(BAD_INPUT) from error
    except (SpotlineError, ValueError) as error:
        # A contract error begins with the file or option at fault.
        tell(str(error))
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
        reason = os.strerror(error.errno) if error.errno else str(error)
        problem = f"expected a place to write to, found: {reason}"
        raise ContractError(str(path), problem) from error
