"""Time limits for what is tidied up, which is done in tasks that are being cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """`asyncio.timeout`, also in a task that was cancelled before.

    Before Python 3.11.4 (Debian 12 has 3.11.2) that raises CancelledError there, and what was to be
    done about what was not in time is not done: instances that a trial left behind went untold.

    Raises
    ------
    TimeoutError
        The time was over.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except asyncio.CancelledError:
        if task is not None and limit.expired() and task.cancelling() <= before:
            raise TimeoutError from None
        raise
