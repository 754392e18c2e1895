"""A Faust app as one task among others, without Faust's own worker process."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import faust

# How long a body that is to end may clean up before it is cancelled again.
_AGAIN_S = 5.0


class AppCrashed(Exception):
    """A service of the app ended by an error, which is this one's cause."""


def data_folder(name: str) -> Path:
    """Where an app of this name keeps the files of its tables: none, if these are in memory.

    Faust makes the folder nevertheless, by default where the process was started.
    """
    return Path(tempfile.gettempdir()) / f"spotline-{os.getuid()}-{name}-data"


@asynccontextmanager
async def running(app: faust.App, *, again_s: float = _AGAIN_S) -> AsyncIterator[None]:
    """Run `app` in this event loop inside `async with`.

    Faust notes a crash and goes on half alive. Here it cancels the body of the `async with`, so
    that a crashed app ends what hosts it: again every `again_s`, should what the body awaits lose
    a cancellation.

    Raises
    ------
    AppCrashed
        The app crashed.
    """
    service: Any = app
    body = asyncio.current_task()
    if not app.finalized:
        app.finalize()
    cancelled = 0

    async def end_body() -> None:
        nonlocal cancelled
        await service._crashed.wait()
        while body is not None:
            cancelled += 1
            body.cancel()
            await asyncio.sleep(again_s)

    try:
        await app.start()
        watch = asyncio.create_task(end_body(), name=f"{app.conf.id}-crashed")
        try:
            yield
        except asyncio.CancelledError:
            if not cancelled:
                raise
        finally:
            watch.cancel()
            if body is not None:
                for _ in range(cancelled):
                    body.uncancel()
        if cancelled:
            raise AppCrashed(f"{app.conf.id}: {service.crash_reason!r}") from service.crash_reason
    finally:
        await app.stop()
