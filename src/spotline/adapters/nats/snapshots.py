"""Snapshots in a JetStream object store, which splits what is larger than a message."""

from __future__ import annotations

import asyncio
import json

import nats.js.errors
import structlog
from nats.js.api import StorageType
from nats.js.object_store import ObjectStore

from spotline.adapters.nats.connection import PASSING, NatsConnection
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.snapshots import Snapshot

_log = structlog.get_logger(__name__)

_TIMEOUT_S = 30.0
_ANSWER_S = 5.0


class NatsSnapshotStore:
    """A `SnapshotStore` next to the stream of one partition."""

    def __init__(self, connection: NatsConnection, *, partition: int = 0) -> None:
        self._connection = connection
        self._bucket = f"spotline_snapshots_{partition}"

    async def put(self, name: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of `name`; see the port."""
        head = json.dumps({"seq": snapshot.seq, "version": snapshot.version}).encode()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                store = await self._store()
                await store.put(name, head + b"\n" + snapshot.content)
        except PASSING as error:
            raise ProviderUnavailable(f"the snapshot {name} was not stored: {error!r}") from error

    async def get(self, name: str) -> Snapshot | None:
        """The snapshot of `name`; see the port."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                store = await self._store()
                data = (await store.get(name)).data or b""
        except nats.js.errors.NotFoundError:
            return None
        except nats.js.errors.DigestMismatchError:
            _log.warning("snapshot_damaged", snapshot=name)
            return None
        except PASSING as error:
            raise ProviderUnavailable(f"the snapshot {name} was not read: {error!r}") from error
        try:
            head, content = data.split(b"\n", 1)
            meta = json.loads(head)
            return Snapshot(seq=int(meta["seq"]), version=str(meta["version"]), content=content)
        except (ValueError, KeyError, TypeError):
            _log.warning("snapshot_damaged", snapshot=name)
            return None

    async def _store(self) -> ObjectStore:
        link = await self._connection.link(timeout_s=_TIMEOUT_S)
        js = link.client.jetstream(timeout=_ANSWER_S)
        try:
            return await js.object_store(self._bucket)
        except nats.js.errors.NotFoundError:
            return await js.create_object_store(self._bucket, storage=StorageType.FILE)
