"""Time and a control plane for parts of an agent that are tested alone."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from spotline.adapters.grpc.agent.client import AgentCallFailed
from spotline.adapters.grpc.agent.messages import AgentTask, Enrolled
from spotline.domain.jobs.run import Run


class SteppedClock:
    """Sleepers wake in the order of their moments, as soon as nothing else is to do."""

    def __init__(self, wall_s: float = 1_000_000.0) -> None:
        self.now_s = 0.0
        self._wall_s = wall_s
        self._sleepers: list = []
        self._numbers = itertools.count()
        self.slept: list[float] = []

    def wall_s(self) -> float:
        return self._wall_s + self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        woken = asyncio.get_running_loop().create_future()
        entry = (self.now_s + seconds, next(self._numbers), woken)
        heapq.heappush(self._sleepers, entry)
        try:
            while not woken.done():
                for _ in range(20):
                    await asyncio.sleep(0)
                self._forget_cancelled()
                if not woken.done() and self._sleepers[0] is entry:
                    heapq.heappop(self._sleepers)
                    self.now_s = max(self.now_s, entry[0])
                    woken.set_result(None)
        finally:
            woken.cancel()

    def _forget_cancelled(self) -> None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)


def unreachable() -> AgentCallFailed:
    return AgentCallFailed("UNAVAILABLE", "nobody there")


def refused() -> AgentCallFailed:
    return AgentCallFailed("INVALID_ARGUMENT", "no", refused=True)


def unknown_caller() -> AgentCallFailed:
    return AgentCallFailed("UNAUTHENTICATED", "who is it", unknown_caller=True)


class BrokenCalls:
    """A call that fails as it is told, then works; what worked is in `done`."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.tried: list = []
        self.done: list = []

    async def __call__(self, argument: object) -> None:
        self.tried.append(argument)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.done.append(argument)


def task_of(**run) -> AgentTask:
    location, interval_s = run.pop("location", ""), run.pop("interval_s", 0)
    return AgentTask(
        job_id="job-1",
        tenant="acme",
        run=Run(**{"command": ("true",), **run}),
        checkpoint_location=location,
        checkpoint_interval_s=interval_s,
    )


def enrolled_for(task: AgentTask, **terms) -> Enrolled:
    return Enrolled(
        **{
            "session": "s",
            "task": task,
            "market_s_per_s": 60.0,
            "lease_s": 3600.0,
            "heartbeat_s": 1.0,
            **terms,
        }
    )
