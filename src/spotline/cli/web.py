"""`spotline web`: the pages, of a recorded log."""

# What the command uses is imported inside: it costs more than `--help` should.

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from spotline.cli.failures import explained
from spotline.cli.tables import print_line


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(web)


def web(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Directory of a recorded log.")],
    http_address: Annotated[
        str, typer.Option(help="Where the pages are served; port 0 takes a free one.")
    ] = "127.0.0.1:7080",
) -> None:
    """Serve the pages of a recorded log, without any service, until Ctrl-C."""
    with explained():
        from spotline.bootstrap.web import serve_recorded

        try:
            asyncio.run(
                serve_recorded(
                    log,
                    address=http_address,
                    told=lambda bound: print_line(f"http://{bound}/"),
                )
            )
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
