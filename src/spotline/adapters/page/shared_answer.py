"""One question of many readers: it is asked once, and its answer counts for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

FRESH_S = 1.0


class SharedAnswer(Generic[T]):
    """Asks on behalf of all readers that ask within `fresh_s` seconds of an answer.

    A reader who gives up does not take the question back from the others. A question that fails is
    asked again by the next reader.

    Parameters
    ----------
    ask
        Whom to ask; the same for every reader.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[T]],
        *,
        fresh_s: float = FRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._fresh_s = fresh_s
        self._clock = clock
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The answer; raises what the question raised."""
        asking = self._asking
        if asking is None or self._is_stale(asking):
            asking = asyncio.create_task(self._answer(), name="shared answer")
            self._asking = asking
        return await asyncio.shield(asking)

    def close(self) -> None:
        """Ask no more. Safe to repeat."""
        if self._asking is not None:
            self._asking.cancel()

    def _is_stale(self, asking: asyncio.Task[T]) -> bool:
        if not asking.done():
            return False
        failed = asking.cancelled() or asking.exception() is not None
        return failed or self._clock() >= self._asked_s + self._fresh_s

    async def _answer(self) -> T:
        answer = await self._ask()
        self._asked_s = self._clock()
        return answer
