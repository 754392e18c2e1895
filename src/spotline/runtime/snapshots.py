"""Snapshots of a handler's state, so that a restart refolds only the tail of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

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
