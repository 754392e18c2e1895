"""`spotline web`: the pages, of a recorded log or of a running system."""

# What the command uses is imported inside: it costs more than `--help` should.

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from spotline.cli.calls import EXIT_BAD_INPUT, answered, fail
from spotline.cli.failures import explained
from spotline.cli.tables import print_line


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(web)


def web(
    log: Annotated[
        Path | None,
        typer.Argument(metavar="[LOG]", help="Directory of a recorded log, or of several."),
    ] = None,
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Show the running system whose allocator's gRPC is there."
        ),
    ] = "",
    http_address: Annotated[
        str, typer.Option(help="Where the pages are served; port 0 takes a free one.")
    ] = "127.0.0.1:7080",
) -> None:
    """Serve the pages of a recorded log, or of a system that runs elsewhere, until Ctrl-C."""
    if (log is None) is (not address):
        said = "web: expected a recorded log or --address, found "
        fail(EXIT_BAD_INPUT, said + ("neither" if log is None else "both"), as_json=False)
    with explained():
        try:
            if log is None:
                answered(_of_system(address, http_address), as_json=False)
            else:
                asyncio.run(_of_log(log, http_address))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _of_log(log: Path, http_address: str) -> Coroutine[Any, Any, None]:
    from spotline.bootstrap.web import serve_logs

    return serve_logs(log, address=http_address, told=print_line)


async def _of_system(system: str, http_address: str) -> None:
    from spotline.bootstrap.page_of_system import serve_running

    await serve_running(system, address=http_address, told=print_line)
