"""What is tidied up in a cancelled task has its time, and is told when that is over."""

import asyncio

import pytest

from spotline.runtime.time_limit import time_limit


async def forever():
    await asyncio.Event().wait()


async def test_what_takes_longer_is_told():
    with pytest.raises(TimeoutError):
        async with time_limit(0):
            await forever()


async def test_what_takes_longer_is_told_in_a_task_that_was_cancelled():
    told = []

    async def tidying():
        try:
            await forever()
        finally:
            try:
                async with time_limit(0):
                    await forever()
            except TimeoutError as error:
                told.append(error)

    task = asyncio.create_task(tidying())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(told) == 1


async def test_another_cancellation_is_one():
    async def tidying():
        try:
            await forever()
        finally:
            async with time_limit(3600):
                await forever()

    task = asyncio.create_task(tidying())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
