"""Serving the pages by themselves: of a recorded log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from starlette.applications import Starlette

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.page.app import Frame, Pages
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.pages import pages_with
from spotline.adapters.page.sources import PageSources, Workbench
from spotline.adapters.web.guarding import Guard, WebLimits
from spotline.adapters.web.serving import WebServer
from spotline.application.page.applied import Applied, applied
from spotline.bootstrap.web_recorded import RecordedExplainer, RecordedOutlooks
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
    # What is read of the log takes long: what is only reckoned does not wait for it.
    desk, bench, reading = PageDesk(), Workbench(), Workbench()
    try:
        await asyncio.to_thread(desk.read, _applied(log))
        sources = PageSources(
            explainer=RecordedExplainer(log, reading),
            outlooks=RecordedOutlooks(log, reading),
            outlooks_wait=True,
            desk=desk,
            bench=bench,
        )
        frame = Frame(source=f"recorded log {log}", recorded=True)
        app = Starlette(routes=Pages(desk, pages_with(sources), frame).routes())
        server = WebServer(Guard(app, WebLimits()), address=address)
        told(await server.start())
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop()
    finally:
        reading.close()
        bench.close()
        desk.close()


def _applied(log: Path) -> Iterator[Applied]:
    for recorded in readable_events(EventLogReader(log)):
        yield applied(recorded.event, recorded.envelope, recorded.seq, wall_ns=recorded.stored_ns)
