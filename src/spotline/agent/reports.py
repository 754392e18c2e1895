"""News for the control plane, kept in order while it is away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from spotline.adapters.grpc.agent.client import AgentCallFailed
from spotline.adapters.grpc.agent.messages import CheckpointNews, News, RanksNews, WorkNews
from spotline.agent.ports import AgentClock
from spotline.agent.timing import RetryPauses

MOST_NEWS = 10_000

# A call that fails for a reason that the server does not state is made this often, then given up:
# a bug there must not hold back all news behind it.
MOST_TRIES = 20
_TRIED_ON = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED")

_log = structlog.get_logger()


class NewsQueue:
    """News in the order in which it is told.

    Beyond `most`, the oldest is dropped, but never news of a checkpoint, or of processes that began
    or ended. A report of work done that still waits is replaced by a newer one.
    """

    def __init__(self, *, most: int = MOST_NEWS) -> None:
        self._most = most
        self._waiting: deque[News] = deque()
        self._there = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._in_hand: News | None = None
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def post(self, news: News) -> None:
        """Add news."""
        last = self._waiting[-1] if self._waiting else None
        if last is not self._in_hand and _overtaken(last, news):
            self._waiting.pop()
        self._waiting.append(news)
        if len(self._waiting) > self._most:
            self._drop_oldest()
        self._there.set()
        self._empty.clear()

    def _drop_oldest(self) -> None:
        for index, news in enumerate(self._waiting):
            if not isinstance(news, CheckpointNews | RanksNews) and news is not self._in_hand:
                del self._waiting[index]
                self.dropped += 1
                return

    async def emptied(self) -> None:
        """Wait until all is delivered."""
        await self._empty.wait()

    async def deliver(
        self, tell: Callable[[News], Awaitable[None]], clock: AgentClock, pauses: RetryPauses
    ) -> None:
        """Tell all news, in order, for as long as the agent lives."""
        while True:
            await self._there.wait()
            while self._waiting:
                self._in_hand = self._waiting[0]
                await self._deliver_one(self._in_hand, tell, clock, pauses)
                self._waiting.popleft()
                self._in_hand = None
            self._there.clear()
            self._empty.set()

    async def _deliver_one(
        self,
        news: News,
        tell: Callable[[News], Awaitable[None]],
        clock: AgentClock,
        pauses: RetryPauses,
    ) -> None:
        tries = 0
        while True:
            try:
                await tell(news)
            except AgentCallFailed as error:
                waits = error.code in _TRIED_ON or error.unknown_caller
                tries += not waits
                if error.refused or tries >= MOST_TRIES:
                    _log.error("news_refused", news=repr(news), error=str(error))
                    return
                await clock.sleep(pauses.next_s())
                continue
            pauses.reset()
            return


def _overtaken(last: News | None, news: News) -> bool:
    """Whether work done that waits says nothing that newer work done does not."""
    return (
        isinstance(last, WorkNews)
        and isinstance(news, WorkNews)
        and last.generation == news.generation
        and last.restart is None
    )
