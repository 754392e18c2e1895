"""Work in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


async def in_own_loop(work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
    """Run `work` in a thread with an event loop of its own, until it ends.

    What it raises is raised here; cancelled, it is cancelled there, and waited for.
    """
    here = asyncio.get_running_loop()
    started: asyncio.Future[Callable[[], None]] = here.create_future()
    ended: asyncio.Future[BaseException | None] = here.create_future()

    async def there() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        here.call_soon_threadsafe(started.set_result, cancel)
        await work()

    def run() -> None:
        error: BaseException | None = None
        try:
            asyncio.run(there())
        except BaseException as raised:  # noqa: BLE001 - it is raised again, in the other thread
            error = raised
        here.call_soon_threadsafe(ended.set_result, error)

    # A daemon: a process that has to end at once does not wait for it.
    threading.Thread(target=run, name=name, daemon=True).start()
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait((ended,))
        except asyncio.CancelledError as error:
            cancelled = error
            cancel_there = await started
            with suppress(RuntimeError):  # its loop is closed: it has ended
                cancel_there()
    failed = ended.result()
    if failed is not None and not isinstance(failed, asyncio.CancelledError):
        raise failed
    if cancelled is not None:
        raise cancelled
    if failed is not None:
        raise RuntimeError(f"the thread {name} was cancelled, and not by its caller") from failed
