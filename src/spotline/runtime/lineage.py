"""Snapshots of this incarnation of a log: those of what was lost are left aside."""

from __future__ import annotations

from spotline.runtime.log_settling import LastingLog
from spotline.runtime.snapshots import SnapshotStore


class SnapshotsOfLog:
    """A `SnapshotStore` whose names carry the log's incarnation and when its stream was made.

    A state that was folded from entries that are gone is never gone on with: the remaining log is
    folded again, which gives what a verification of it computes.
    """

    def __init__(self, store: SnapshotStore, stream: LastingLog) -> None:
        self._store = store
        self._stream = stream

    async def put(self, name: str, data: bytes) -> None:
        """Replace the snapshot of `name`; see the port."""
        await self._store.put(self._named(name), data)

    async def get(self, name: str) -> bytes | None:
        """The snapshot of `name`; see the port."""
        return await self._store.get(self._named(name))

    async def set_aside(self, name: str) -> None:
        """Keep the snapshot of `name` out of the way; see the port."""
        await self._store.set_aside(self._named(name))

    def _named(self, name: str) -> str:
        return f"{name}.{self._stream.lineage}"
