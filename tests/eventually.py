"""Waiting for effects that come when they come."""

import asyncio
import time

# For what happens at once on an idle machine, and some time on one that is not: where nothing is
# measured, no test fails because it was slow: machines stand still for more than a minute at times.
PATIENCE_S = 120.0


async def eventually(condition, *, timeout_s=PATIENCE_S, every_s=0.01):
    """Wait until `condition()` is true, and return what it is; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {condition}"
        await asyncio.sleep(every_s)
    return result
