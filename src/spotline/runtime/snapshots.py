"""Snapshots of a handler's state, so that a restart refolds only the tail of the log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from spotline.application.turn import Turns
from spotline.contracts.errors import ProviderUnavailable

_log = structlog.get_logger(__name__)

StateT = TypeVar("StateT")


class StateCodec(Protocol[StateT]):
    """Writes and reads a handler's state."""

    @property
    def version(self) -> str:
        """Changes whenever the state's form or meaning does; other snapshots are ignored."""
        ...

    def dump(self, state: StateT) -> bytes:
        """Write all of `state`; changes nothing."""
        ...

    def load(self, dumped: bytes) -> StateT:
        """Read what `dump` wrote, or raise ValueError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state as it was after the input `seq` and its outputs."""

    seq: int
    version: str
    content: bytes


class SnapshotStore(Protocol):
    """Keeps the latest snapshot of each name."""

    async def put(self, name: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of `name`, entirely or not at all.

        Raises
        ------
        ProviderUnavailable
            It could not be stored; the former one is kept.
        """
        ...

    async def get(self, name: str) -> Snapshot | None:
        """The snapshot of `name`, None where there is none or it is damaged.

        Raises
        ------
        ProviderUnavailable
            The store does not answer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots(Generic[StateT]):
    """Where snapshots are kept, and how a state is written."""

    store: SnapshotStore
    codec: StateCodec[StateT]


class SnapshotKeeper(Generic[StateT]):
    """Keeps the state of a handler, and the ids that were applied to it.

    A store that does not answer costs a longer restart and no more.
    """

    def __init__(self, turns: Turns[StateT], snapshots: Snapshots[StateT]) -> None:
        self._turns = turns
        self._store = snapshots.store
        self._codec = snapshots.codec

    async def load(self) -> int:
        """Restore the latest snapshot; the last input it covers, 0 where there is none to use."""
        service = self._turns.service
        try:
            snapshot = await self._store.get(service)
        except ProviderUnavailable as error:
            _log.warning("snapshot_unavailable", service=service, error=str(error))
            return 0
        if snapshot is None or snapshot.version != self._codec.version:
            return 0
        ids, _, dumped = snapshot.content.partition(b"\n")
        self._turns.restore(self._codec.load(dumped), json.loads(ids))
        return snapshot.seq

    async def save(self, seq: int) -> None:
        """Keep the state as it is behind the input `seq`.

        Only between two inputs: what a snapshot covers is never handled again.
        """
        ids = json.dumps(self._turns.applied_ids()).encode()
        snapshot = Snapshot(
            seq=seq,
            version=self._codec.version,
            content=ids + b"\n" + self._codec.dump(self._turns.state),
        )
        try:
            await self._store.put(self._turns.service, snapshot)
        except ProviderUnavailable as error:
            _log.warning("snapshot_not_saved", service=self._turns.service, error=str(error))
