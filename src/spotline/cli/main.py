"""The command `spotline`."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from spotline import __version__
from spotline.cli.contexts import take_addresses
from spotline.cli.failures import explained
from spotline.cli.usage import CommandLine

# Modules of this package, in the order in which `--help` lists their commands.
COMMANDS = (
    "job_init",
    "plan",
    "jobs",
    "updates",
    "freezing",
    "promoting",
    "limits",
    "reading",
    "fetch",
    "explain",
    "place",
    "pipelines",
    "up",
    "down",
    "config",
    "notify",
    "store",
    "broker",
    "agent",
    "orphans",
    "cloud_commands",
    "parked",
    "auth",
    "audit",
    "contexts",
    "market",
    "market_status",
    "market_record",
    "stats",
    "demo",
    "train_demo",
    "rehearse",
    "simulate",
    "plot",
    "export",
    "report",
    "assess",
    "web",
    "modes_reports",
    "replay",
    "bench",
    "knowledge",
    "priors",
    "lists",
    "version",
)

# Where `--help` lists them.
PANELS = {
    "Jobs": ("job", "plan", "submit", "status", "watch", "cancel", "update", "logs", "events"),
    "Results": ("fetch", "explain", "plot", "report", "assess", "export", "web"),
    "Pipelines across regions": ("place", "pipelines"),
    "The system": (
        *(
            "up",
            "down",
            "pause",
            "resume",
            "promote",
            "limits",
            "config",
            "notify",
            "parked",
            "orphans",
            "cloud",
            "store",
            "broker",
            "agent",
        ),
        *("market", "stats", "auth", "audit", "context"),
    ),
    "Trying out": (
        "demo",
        "train-demo",
        "rehearse",
        "simulate",
        "observe",
        "shadow",
        "replay",
        "bench",
        "knowledge",
    ),
    "What there is": ("policies", "forecasters", "presets", "version"),
}

app = typer.Typer(
    name="spotline",
    cls=CommandLine,
    help="Deadline-aware scheduling of fine-tuning jobs over spot and on-demand instances.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spotline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that come before a command, and addresses from the context in use."""
    with explained():
        take_addresses(context)


def _register() -> None:
    for module in COMMANDS:
        import_module(f"spotline.cli.{module}").register(app)
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        command.rich_help_panel = panels.get(str(name).replace("_", "-"))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            name = group.name or group.typer_instance.info.name
            group.rich_help_panel = panels.get(str(name))


_register()
