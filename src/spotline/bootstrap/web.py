"""Serving the pages by themselves: of a recorded log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from starlette.applications import Starlette

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.page.app import Frame, Pages
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.pages import PAGES
from spotline.adapters.web.guarding import Guard, WebLimits
from spotline.adapters.web.serving import WebServer
from spotline.application.page.applied import Applied, applied
from spotline.application.read_model.handler import SPEC
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
    desk = PageDesk()
    try:
        await asyncio.to_thread(desk.read, _applied(log))
        frame = Frame(source=f"recorded log {log}", recorded=True)
        app = Starlette(routes=Pages(desk, PAGES, frame).routes())
        server = WebServer(Guard(app, WebLimits()), address=address)
        told(await server.start())
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop()
    finally:
        desk.close()


def _applied(log: Path) -> Iterator[Applied]:
    for recorded in readable_events(EventLogReader(log)):
        # As a running system folds it: the same place is the same page.
        if isinstance(recorded.event, SPEC.consumes):
            seq, stored_ns = recorded.seq, recorded.stored_ns
            yield applied(recorded.event, recorded.envelope, seq, wall_ns=stored_ns)
