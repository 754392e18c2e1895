"""Snapshots of this incarnation of a log: those of what was lost are left aside."""

from __future__ import annotations

import structlog

from spotline.adapters.nats.stream import NatsEventStream
from spotline.runtime.snapshots import Snapshot, SnapshotStore

_log = structlog.get_logger(__name__)


class SnapshotsOfLog:
    """A `SnapshotStore` whose names carry the log's incarnation and when its stream was made.

    A state that was folded from entries that are gone is never gone on with: the remaining log is
    folded again, which gives what a verification of it computes.
    """

    def __init__(self, store: SnapshotStore, stream: NatsEventStream) -> None:
        self._store = store
        self._stream = stream

    async def put(self, name: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of `name`; see the port."""
        await self._store.put(self._named(name), snapshot)

    async def get(self, name: str) -> Snapshot | None:
        """The snapshot of `name`, None where it covers more than the log holds; see the port."""
        snapshot = await self._store.get(self._named(name))
        if snapshot is None:
            return None
        last_seq = await self._stream.last_seq()
        if snapshot.seq > last_seq:
            _log.warning(
                "snapshot_set_aside", snapshot=name, seq=snapshot.seq, log_last_seq=last_seq
            )
            return None
        return snapshot

    def _named(self, name: str) -> str:
        return f"{name}.{self._stream.continuity.lineage}"
