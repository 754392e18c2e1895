"""Snapshots of a handler's state, so that a restart refolds only the tail of the log.

A snapshot is data: a line that says what this is, a line of JSON with the version, the last input
that it covers and a checksum, and then what the handler's codec wrote. One that cannot be used is
set aside, and costs a longer restart and no more: the log has all of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from spotline.application.turn import Turns
from spotline.contracts.errors import ProviderUnavailable

_log = structlog.get_logger(__name__)

StateT = TypeVar("StateT")

_MAGIC = b"spotline-snapshot 1\n"
_LONGEST_HEAD = 4096
# What reading hostile bytes can come to besides ValueError: a start must survive that, too.
_STUMBLED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError)


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


def sealed(snapshot: Snapshot) -> bytes:
    """Write a snapshot with all that `opened` needs to know it again."""
    head = {
        "seq": snapshot.seq,
        "sha256": _checksum(snapshot.seq, snapshot.version, snapshot.content),
        "version": snapshot.version,
    }
    return _MAGIC + json.dumps(head, sort_keys=True).encode() + b"\n" + snapshot.content


def opened(data: bytes) -> Snapshot:
    """Read what `sealed` wrote.

    Raises
    ------
    ValueError
        It is no snapshot of this format, or is damaged.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("a snapshot must start with its format's line, these bytes do not")
    end = data.find(b"\n", len(_MAGIC), len(_MAGIC) + _LONGEST_HEAD)
    if end < 0:
        raise ValueError("a snapshot must have a head, this one ends before it")
    try:
        head = json.loads(data[len(_MAGIC) : end])
        seq, version, checksum = head["seq"], head["version"], head["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("the head of a snapshot must have seq, sha256 and version") from error
    if type(seq) is not int or not 0 < seq < 2**63 or not isinstance(version, str):
        raise ValueError("a snapshot must cover an input of the log, and name its version")
    content = data[end + 1 :]
    if checksum != _checksum(seq, version, content):
        raise ValueError("a snapshot's checksum must be that of its content, was another")
    return Snapshot(seq=seq, version=version, content=content)


def _checksum(seq: int, version: str, content: bytes) -> str:
    digest = hashlib.sha256(f"{seq} {version}\n".encode())
    digest.update(content)
    return digest.hexdigest()


class SnapshotStore(Protocol):
    """Keeps the latest snapshot of each name, as bytes."""

    async def put(self, name: str, data: bytes) -> None:
        """Replace the snapshot of `name`, entirely or not at all.

        Raises
        ------
        ProviderUnavailable
            It could not be stored; the former one is kept.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """The snapshot of `name`, None where there is none.

        Raises
        ------
        ProviderUnavailable
            The store does not answer.
        ValueError
            There is one, and the store itself finds it damaged or too large.
        """
        ...

    async def set_aside(self, name: str) -> None:
        """Keep the snapshot of `name` for people to look at, where `get` does not find it.

        One is kept for each name, the latest. Where it cannot be read it is dropped. Nothing
        happens where there is none.

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

    A store that does not answer, and a snapshot that cannot be used, cost a longer restart and no
    more.
    """

    def __init__(self, turns: Turns[StateT], snapshots: Snapshots[StateT]) -> None:
        self._turns = turns
        self._store = snapshots.store
        self._codec = snapshots.codec
        # Those that could not be used, since the start.
        self.set_aside = 0

    async def load(self, *, last_seq: int) -> int:
        """Restore the latest snapshot; the last input it covers, 0 where there is none to use.

        Parameters
        ----------
        last_seq
            The end of the log: a snapshot that covers more is of another log.
        """
        service = self._turns.service
        data: bytes | None = None
        try:
            data = await self._store.get(service)
            if data is None:
                return 0
            return self._restored(data, last_seq)
        except ProviderUnavailable as error:
            _log.warning("snapshot_unavailable", service=service, error=str(error))
            return 0
        except ValueError as error:
            await self._set_aside(data, error)
            return 0

    def _restored(self, data: bytes, last_seq: int) -> int:
        """Take over a state; a `ValueError` leaves all as it was."""
        snapshot = opened(data)
        if snapshot.version != self._codec.version:
            raise ValueError(
                f"the snapshot must be of version {self._codec.version}, was of {snapshot.version}"
            )
        if snapshot.seq > last_seq:
            raise ValueError(
                f"the snapshot must cover no more than the log, which ends with {last_seq}, "
                f"covers {snapshot.seq}"
            )
        line, separator, dumped = snapshot.content.partition(b"\n")
        if not separator:
            raise ValueError("a snapshot must start with the ids it has applied")
        ids = _ids_of(line)
        try:
            state = self._codec.load(dumped)
        except _STUMBLED as error:
            raise ValueError(f"the state of a snapshot cannot be read: {error!r}") from error
        self._turns.restore(state, ids)
        return snapshot.seq

    async def _set_aside(self, data: bytes | None, error: ValueError) -> None:
        service = self._turns.service
        self.set_aside += 1
        _log.error(
            "snapshot_set_aside",
            service=service,
            error=str(error),
            bytes=None if data is None else len(data),
            sha256=None if data is None else hashlib.sha256(data).hexdigest(),
        )
        try:
            await self._store.set_aside(service)
        except ProviderUnavailable as unavailable:
            _log.warning("snapshot_unavailable", service=service, error=str(unavailable))

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
            await self._store.put(self._turns.service, sealed(snapshot))
        except ProviderUnavailable as error:
            _log.warning("snapshot_not_saved", service=self._turns.service, error=str(error))


def _ids_of(line: bytes) -> list[str]:
    try:
        ids = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("the applied ids of a snapshot must be a list in JSON") from error
    if not isinstance(ids, list) or not all(isinstance(event_id, str) for event_id in ids):
        raise ValueError("the applied ids of a snapshot must be texts")
    return ids
