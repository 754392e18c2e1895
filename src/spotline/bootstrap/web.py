"""Serving the pages by themselves: of a recorded log."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

from starlette.applications import Starlette

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.page.app import Frame, Pages
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.limits import recorded_limits, with_limits
from spotline.adapters.page.pages import PAGES
from spotline.adapters.web.guarding import Guard, WebLimits
from spotline.adapters.web.serving import WebServer
from spotline.application.page.applied import Applied, applied
from spotline.contracts.errors import ContractError
from spotline.replay.recorded import readable_events


async def serve_recorded(log: Path, *, address: str, told: Callable[[str], None]) -> None:
    """Serve the pages of a recorded log until cancelled; `told` gets the bound address.

    Raises
    ------
    ConfigError
        The address is malformed or taken.
    ContractError
        The log cannot be read.
    """
    reader = EventLogReader(log)
    try:
        limits = recorded_limits(reader.manifest.settings)
    except ValueError as error:
        raise ContractError("settings.selector.spending", str(error)) from error
    desk = PageDesk()
    try:
        await asyncio.to_thread(desk.read, _applied(reader))
        # All that was folded stays: looking for garbage in it would double what a page costs.
        gc.freeze()
        frame = Frame(source=f"recorded log {log}", recorded=True)
        app = Starlette(routes=Pages(desk, with_limits(PAGES, limits), frame).routes())
        server = WebServer(Guard(app, WebLimits()), address=address)
        told(await server.start())
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop()
    finally:
        desk.close()


def _applied(reader: EventLogReader) -> Iterator[Applied]:
    for recorded in readable_events(reader):
        yield applied(recorded.event, recorded.envelope, recorded.seq, wall_ns=recorded.stored_ns)
