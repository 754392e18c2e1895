"""What went wrong, for people: one line that says what to do, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from spotline.adapters.files.mistake import BadFile
from spotline.contracts.errors import SpotlineError

BAD_INPUT = 2


@contextmanager
def explained() -> Iterator[None]:
    """Turn bad input inside the block into its message on stderr and exit code 2."""
    try:
        yield
    except BadFile as error:
        # Each line names the file and the field.
        print(error, file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error
    except (SpotlineError, ValueError, FileNotFoundError, IsADirectoryError) as error:
        print(f"spotline: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error
