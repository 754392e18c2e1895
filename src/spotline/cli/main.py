"""The command `spotline`."""

from __future__ import annotations

from typing import Annotated

import typer

from spotline import __version__

app = typer.Typer(
    name="spotline",
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
    from spotline.cli import (
        bench,
        demo,
        jobs,
        knowledge,
        market,
        pipelines,
        place,
        replay,
        simulate,
        stats,
        up,
    )

    app.add_typer(market.market_app, name="market")
    for module in (demo, up, jobs, place, pipelines, stats, simulate, replay, bench, knowledge):
        module.register(app)


_register()
