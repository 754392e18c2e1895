"""A Faust app as one task among others, without Faust's own worker process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import faust


class AppCrashed(Exception):
    """A service of the app ended by an error, which is this one's cause."""


@asynccontextmanager
async def running(app: faust.App) -> AsyncIterator[None]:
    """Run `app` in this event loop inside `async with`.

    Faust notes a crash and goes on half alive. Here it cancels the body of the `async with`, so
    that a crashed app ends what hosts it.

    Raises
    ------
    AppCrashed
        The app crashed.
    """
    service: Any = app
    body = asyncio.current_task()
    if not app.finalized:
        app.finalize()
    watch = asyncio.create_task(service._crashed.wait(), name=f"{app.conf.id}-crashed")
    crashed = False

    def end_body(done: asyncio.Task[Any]) -> None:
        nonlocal crashed
        if not done.cancelled() and body is not None:
            crashed = True
            body.cancel()

    try:
        await app.start()
        watch.add_done_callback(end_body)
        yield
    except asyncio.CancelledError:
        if not crashed:
            raise
        if body is not None:
            body.uncancel()
        raise AppCrashed(f"{app.conf.id}: {service.crash_reason!r}") from service.crash_reason
    finally:
        watch.remove_done_callback(end_body)
        watch.cancel()
        await app.stop()
