"""Work in a thread with an event loop of its own: its end, its errors and its cancellation."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spotline.bootstrap.own_loop import in_own_loop


async def test_work_runs_in_another_thread_on_another_loop():
    seen = []

    async def work():
        seen.append((threading.current_thread().name, asyncio.get_running_loop()))

    await in_own_loop(work, name="apart")

    assert [name for name, _ in seen] == ["apart"]
    assert seen[0][1] is not asyncio.get_running_loop()


async def test_error_of_the_work_ends_the_group_it_runs_in():
    async def work():
        raise ValueError("the address is taken")

    async def group():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(in_own_loop(work, name="apart"))
            tasks.create_task(asyncio.Event().wait())

    with pytest.raises(ExceptionGroup) as failed:
        await group()

    assert [str(one) for one in failed.value.exceptions] == ["the address is taken"]


async def test_cancelled_it_lets_the_work_clean_up_and_waits_for_that():
    began, cleaned = threading.Event(), []

    async def work():
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    task = asyncio.create_task(in_own_loop(work, name="apart"))
    assert await asyncio.to_thread(began.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert cleaned == [True]


async def test_error_while_stopping_is_not_lost():
    began = threading.Event()

    async def work():
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            raise ValueError("could not be closed")

    task = asyncio.create_task(in_own_loop(work, name="apart"))
    assert await asyncio.to_thread(began.wait, 30)
    task.cancel()
    with pytest.raises(ValueError, match="could not be closed"):
        await task
