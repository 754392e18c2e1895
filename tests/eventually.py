"""Waiting for effects that come when they come."""

import asyncio
import time


async def eventually(condition, *, timeout_s=60.0, every_s=0.01):
    """Wait until `condition()` is true, and return what it is; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {condition}"
        await asyncio.sleep(every_s)
    return result
