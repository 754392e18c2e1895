"""Committed offsets: a key per topic and partition, written only by the owner of its epoch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping

from faust.types import TP

from spotline.adapters.faust.bucket import Bucket, Conflict
from spotline.adapters.faust.names import offset_key


class Fenced(Exception):
    """The partition has a new owner."""


class Offsets:
    """Committed offsets of one worker's partitions.

    A new owner writes its epoch into the key before it reads on, which changes the key's revision:
    the owner before, whatever it still believes, can no longer commit.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._committed: dict[TP, int | None] = {}
        self._revisions: dict[TP, int] = {}
        self._epochs: dict[TP, int] = {}

    def committed(self, partition: TP) -> int | None:
        """The offset to go on at, None if nothing was ever committed."""
        return self._committed.get(partition)

    async def claim(self, epochs: Mapping[TP, int]) -> None:
        """Become the one who commits, in the given epochs, and read where to go on.

        Raises
        ------
        Fenced
            A partition has an owner of a later epoch.
        """
        await asyncio.gather(*(self._claim(tp, epoch) for tp, epoch in epochs.items()))

    def forget(self, partitions: Iterable[TP]) -> None:
        """Commit no more for `partitions`."""
        for tp in partitions:
            self._epochs.pop(tp, None)

    async def commit(self, offsets: Mapping[TP, int]) -> frozenset[TP]:
        """Store where to go on, and return the partitions that are no longer this worker's."""
        outcomes = await asyncio.gather(*(self._commit(tp, at) for tp, at in offsets.items()))
        return frozenset(tp for tp, mine in zip(offsets, outcomes, strict=True) if not mine)

    async def _claim(self, tp: TP, epoch: int) -> None:
        if self._epochs.get(tp) == epoch:
            return
        key = offset_key(*tp)
        while True:
            entry = await self._bucket.get(key)
            offset, stored_epoch = _parse(entry.content)
            if stored_epoch > epoch:
                raise Fenced(f"{tp} is owned in epoch {stored_epoch}, mine is {epoch}")
            try:
                revision = await self._bucket.put(
                    key, _dump(offset, epoch), revision=entry.revision
                )
            except Conflict:
                continue  # the owner before has committed once more
            self._committed[tp] = offset
            self._revisions[tp] = revision
            self._epochs[tp] = epoch
            return

    async def _commit(self, tp: TP, offset: int) -> bool:
        key = offset_key(*tp)
        while (epoch := self._epochs.get(tp)) is not None:
            try:
                self._revisions[tp] = await self._bucket.put(
                    key, _dump(offset, epoch), revision=self._revisions[tp]
                )
            except Conflict:
                # A new owner, or this one whose answer was lost.
                entry = await self._bucket.get(key)
                if _parse(entry.content)[1] != epoch:
                    return False
                self._revisions[tp] = entry.revision
                continue
            self._committed[tp] = offset
            return True
        return False


def _dump(offset: int | None, epoch: int) -> bytes:
    return json.dumps({"offset": offset, "epoch": epoch}).encode()


def _parse(content: bytes) -> tuple[int | None, int]:
    if not content:
        return None, 0
    document = json.loads(content)
    offset = document["offset"]
    return None if offset is None else int(offset), int(document["epoch"])
