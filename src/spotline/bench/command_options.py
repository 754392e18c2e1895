"""Options and output that the commands of benchmarks share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

RECORDED_DATA = Path("../shared/data")
# Columns of a table in a log or a pipe, which has no width of its own.
_LOG_COLUMNS = 200

DataOption = Annotated[
    Path, typer.Option(envvar="SPOTLINE_DATA", help="Directory of the recorded data.")
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the figures as JSON.")]
ReportOption = Annotated[Path | None, typer.Option(help="Write a Markdown report with plots here.")]


def open_console() -> Any:
    """A console that colours no numbers and never cuts a line; a table only where a terminal is too narrow."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _LOG_COLUMNS
    return console


def teller(console: Any) -> Callable[[str], None]:
    """Where a benchmark says what is done: dim lines of the console."""
    return lambda line: console.print(line, style="dim", markup=False)


def command_line() -> str:
    """The command as it was typed, for a report to quote."""
    return " ".join(["spotline", *sys.argv[1:]])


def write_figures(figures: Mapping[str, Any], path: Path | None) -> None:
    """Write figures as JSON where a path is given: whole, or what stood there stays."""
    if path is None:
        return
    text = json.dumps(figures, indent=2) + "\n"
    if not _is_for_a_file(path):
        path.write_text(text, encoding="utf-8")
        return
    # Where a link leads, and not in its place.
    place = Path(os.path.realpath(path))
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, place)
    finally:
        aside.unlink(missing_ok=True)


def keep_figures(
    figures: Mapping[str, Any], path: Path | None, tell: Callable[[str], None]
) -> None:
    """Write the figures there are so far, for a run that may be ended; one that cannot goes on.

    Where the path is no file, a pipe say, they are written once, in the end.
    """
    if path is None or not _is_for_a_file(path):
        return
    try:
        write_figures(figures, path)
    except OSError as error:
        tell(f"what there is so far could not be kept: {error}")


def _is_for_a_file(path: Path) -> bool:
    return path.is_file() or not path.exists()
