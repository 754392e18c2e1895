"""The command `spotline`."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from spotline import __version__
from spotline.cli.usage import CommandLine

# Modules of this package, in the order in which `--help` lists their commands.
COMMANDS = (
    "market",
    "demo",
    "train_demo",
    "up",
    "down",
    "agent",
    "jobs",
    "plan",
    "job_init",
    "updates",
    "reading",
    "market_status",
    "fetch",
    "place",
    "pipelines",
    "stats",
    "simulate",
    "plot",
    "replay",
    "bench",
    "knowledge",
)

app = typer.Typer(
    name="spotline",
    cls=CommandLine,
    help="Deadline-aware scheduling of fine-tuning jobs over spot and on-demand instances.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spotline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that come before a command."""


def _register() -> None:
    for module in COMMANDS:
        import_module(f"spotline.cli.{module}").register(app)


_register()
