"""Time that is played: hours cost nothing, order is kept, nobody waits for ever."""

import asyncio

import pytest

from spotline.bench.faults.virtual_time import NothingLeft, run_virtually


def test_hours_pass_at_once_and_in_order():
    async def work():
        told = []

        async def after(seconds):
            await asyncio.sleep(seconds)
            told.append((seconds, asyncio.get_running_loop().time()))

        await asyncio.gather(after(7200), after(1), after(3600))
        return told

    assert run_virtually(work) == [(1, 1.0), (3600, 3600.0), (7200, 7200.0)]


def test_a_timeout_is_in_virtual_time():
    async def work():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(86_400):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtually(work) == 86_400


def test_waiting_for_what_cannot_come_is_an_error():
    async def work():
        await asyncio.Event().wait()

    with pytest.raises(NothingLeft):
        run_virtually(work)


def test_no_thread_is_started():
    async def work():
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="thread"):
        run_virtually(work)
