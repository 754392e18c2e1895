"""Fail points: where a service can be killed, by name, and the ports that reach them.

They are not written down but counted from the ports themselves: before and after each method, as
`<service>.<port>.<method>.<before|after>`; where several entries are stored at once, also between
two of them. Killed is killed: from then on nothing of that process reaches the outside any more.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

from spotline.application.cloud_actuator.ports import CloudProvider, Ledger
from spotline.application.health.flow import LogFacts
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.runtime.snapshots import SnapshotStore
from spotline.runtime.stream import EventStream, Subscription

# What waits without end, or is not called while events are followed; why each is left out.
NEVER_REACHED = {
    "cloud_actuator.CloudProvider.pushed": "a played cloud is never waited for",
    "cloud_actuator.Ledger.admitted": "asked by people and by the store's commands",
    "cloud_actuator.Ledger.bills": "asked by people and by the store's commands",
    "cloud_actuator.Ledger.settle": "settles the bills of clouds that send some",
    "cloud_actuator.Ledger.raise_epoch": "called where the ledger was lost or restored older",
}

_FOLLOWERS = ("market_ingest", "forecaster", "selector", "cloud_actuator", "allocator")
_READERS = ("read_model",)
SERVICES = (*_FOLLOWERS, *_READERS)
BEFORE, AFTER, BETWEEN = "before", "after", "between"


class Killed(BaseException):
    """The process is dead. No handler of errors may see it, so it is no `Exception`."""


def methods_of(port: type) -> tuple[str, ...]:
    """The asynchronous methods of a port, by name."""
    return tuple(
        sorted(name for name, method in vars(port).items() if inspect.iscoroutinefunction(method))
    )


def all_points() -> tuple[str, ...]:
    """Every fail point that a run can reach, in order."""
    calls = [f"{service}.Subscription.ack" for service in SERVICES]
    calls += [f"{service}.EventStream.publish" for service in _FOLLOWERS]
    calls += [f"forecaster.SnapshotStore.{method}" for method in methods_of(SnapshotStore)]
    calls += [
        f"cloud_actuator.{port.__name__}.{method}"
        for port in (Ledger, CloudProvider)
        for method in methods_of(port)
    ]
    points = [f"{call}.{side}" for call in calls for side in (BEFORE, AFTER)]
    points += [f"{service}.EventStream.publish.{BETWEEN}" for service in _FOLLOWERS]
    return tuple(
        sorted(
            point
            for point in points
            if point not in NEVER_REACHED and point.rpartition(".")[0] not in NEVER_REACHED
        )
    )


class Watcher(Protocol):
    """Is told of every point that is reached, before the service goes on."""

    async def reach(self, line: Lifeline, point: str) -> None:
        """Wait, or raise what a fault raises there."""
        ...


class Lifeline:
    """One process of a service: alive until it is cut, and standing still while it is `held`."""

    def __init__(self, service: str, watcher: Watcher) -> None:
        self.service = service
        self.alive = True
        self.held: asyncio.Event | None = None
        self._watcher = watcher

    def check(self) -> None:
        """Raise `Killed` where the process is dead."""
        if not self.alive:
            raise Killed(self.service)

    def kill(self, point: str) -> None:
        """End the process here."""
        self.alive = False
        raise Killed(point)

    async def reach(self, point: str) -> None:
        """Come by a point, named without its service."""
        self.check()
        await self._watcher.reach(self, f"{self.service}.{point}")
        self.check()


class CountedPort:
    """A port with a fail point before and after each asynchronous method."""

    def __init__(self, inner: Any, port: type, line: Lifeline) -> None:
        self._inner, self._port, self._line = inner, port, line
        self._methods = frozenset(methods_of(port))

    def __getattr__(self, name: str) -> Any:
        """What the port has, and a fail point on both sides of what it does."""
        value = getattr(self._inner, name)
        if name not in self._methods:
            return value
        return self._counted(name, value)

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        point = f"{self._port.__name__}.{name}"
        line = self._line

        async def call(*arguments: Any, **options: Any) -> Any:
            await line.reach(f"{point}.{BEFORE}")
            result = method(*arguments, **options)
            if inspect.isawaitable(result):
                result = await result
            await line.reach(f"{point}.{AFTER}")
            return result

        return call


def counted_ledger(ledger: Any, line: Lifeline) -> Ledger:
    """A ledger (one that is called without threads, too) with fail points."""
    return cast("Ledger", CountedPort(ledger, Ledger, line))


def counted_cloud(cloud: CloudProvider, line: Lifeline) -> CloudProvider:
    """A cloud with fail points."""
    return cast("CloudProvider", CountedPort(cloud, CloudProvider, line))


def counted_snapshots(store: SnapshotStore, line: Lifeline) -> SnapshotStore:
    """A store of snapshots with fail points."""
    return cast("SnapshotStore", CountedPort(store, SnapshotStore, line))


class CountedStream:
    """A stream with fail points where something is stored."""

    def __init__(self, inner: EventStream, line: Lifeline) -> None:
        self._inner, self._line = inner, line

    @property
    def most_events(self) -> int:
        """As the stream's."""
        return self._inner.most_events

    async def publish(self, envelopes: Sequence[Envelope]) -> Sequence[int]:
        """Store one after the other, with a point between two."""
        await self._line.reach(f"EventStream.publish.{BEFORE}")
        stored: list[int] = []
        for envelope in envelopes:
            if stored:
                await self._line.reach(f"EventStream.publish.{BETWEEN}")
            stored += await self._inner.publish([envelope])
        await self._line.reach(f"EventStream.publish.{AFTER}")
        return stored

    async def facts(self, places: Sequence[str] = ()) -> LogFacts:
        """As the stream's."""
        self._line.check()
        return await self._inner.facts(places)

    async def last_seq(self) -> int:
        """As the stream's."""
        self._line.check()
        return await self._inner.last_seq()

    async def first_seq_since(self, stored_ns: int) -> int:
        """As the stream's."""
        self._line.check()
        return await self._inner.first_seq_since(stored_ns)

    async def read(
        self, subjects: Sequence[str], *, first_seq: int = 1, last_seq: int
    ) -> AsyncIterator[StoredEntry]:
        """As the stream's."""
        async for entry in self._inner.read(subjects, first_seq=first_seq, last_seq=last_seq):
            self._line.check()
            yield entry

    async def subscribe(
        self, name: str, subjects: Sequence[str], *, first_seq: int = 1
    ) -> Subscription:
        """As the stream's, with points where something is acknowledged."""
        self._line.check()
        inner = await self._inner.subscribe(name, subjects, first_seq=first_seq)
        return _CountedSubscription(inner, self._line)


class _CountedSubscription:
    def __init__(self, inner: Subscription, line: Lifeline) -> None:
        self._inner, self._line = inner, line

    @property
    def floor_seq(self) -> int:
        return self._inner.floor_seq

    @property
    def rebased(self) -> bool:
        return self._inner.rebased

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    async def fetch(self, *, limit: int, timeout_s: float) -> Sequence[StoredEntry]:
        self._line.check()
        entries = await self._inner.fetch(limit=limit, timeout_s=timeout_s)
        self._line.check()
        return entries

    async def ack(self, entry: StoredEntry) -> None:
        await self._line.reach(f"Subscription.ack.{BEFORE}")
        await self._inner.ack(entry)
        await self._line.reach(f"Subscription.ack.{AFTER}")

    async def close(self) -> None:
        if self._line.alive:
            await self._inner.close()
