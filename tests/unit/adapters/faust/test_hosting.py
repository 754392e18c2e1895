"""What hosts a Faust app ends with it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest

from spotline.adapters.faust.hosting import AppCrashed, running


class App:
    """As much of an app as its host touches."""

    finalized = True
    conf = SimpleNamespace(id="app")
    crash_reason: Exception | None = None

    def __init__(self) -> None:
        self._crashed = asyncio.Event()
        self.stopped = 0

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        # Faust waits for a lot.
        await asyncio.sleep(0)
        self.stopped += 1

    def crash(self) -> None:
        self.crash_reason = LookupError("not there")
        self._crashed.set()


async def end_in(app: App, body: Callable[[], Awaitable[None]]) -> None:
    """Host `app`, which crashes as soon as it runs, around `body`."""
    async with running(app, again_s=0.01):
        app.crash()
        await body()


async def without_end() -> None:
    await asyncio.get_running_loop().create_future()


async def with_a_cancellation_lost() -> None:
    with suppress(asyncio.CancelledError):
        await without_end()


async def test_crash_ends_the_body_and_is_told_with_its_cause():
    app = App()

    with pytest.raises(AppCrashed, match="app: LookupError") as crashed:
        await end_in(app, without_end)

    assert crashed.value.__cause__ is app.crash_reason
    assert app.stopped == 1
    assert asyncio.current_task().cancelling() == 0


async def test_crash_ends_a_body_that_loses_a_cancellation():
    app, lost = App(), []

    async def body() -> None:
        await with_a_cancellation_lost()
        lost.append(1)
        await without_end()

    with pytest.raises(AppCrashed):
        await end_in(app, body)

    assert lost
    assert app.stopped == 1
    assert asyncio.current_task().cancelling() == 0


async def test_crash_is_told_to_a_body_that_ended_in_spite_of_its_cancellation():
    app = App()

    with pytest.raises(AppCrashed):
        await end_in(app, with_a_cancellation_lost)

    assert asyncio.current_task().cancelling() == 0


async def test_body_that_is_cancelled_from_outside_is_cancelled_and_the_app_stopped():
    app = App()

    async def host() -> None:
        async with running(app):
            await without_end()

    task = asyncio.create_task(host())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert app.stopped == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "app-crashed"]
