"""Snapshots in a JetStream object store, which splits what is larger than a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import StorageType
from nats.js.object_store import ObjectStore

from spotline.adapters.nats.connection import PASSING, NatsConnection
from spotline.contracts.errors import ProviderUnavailable

_TIMEOUT_S = 30.0
_ANSWER_S = 5.0
MOST_BYTES = 512 * 2**20
"""What is not read: no service of ours writes as much, and it has to fit into memory."""
# What the client raises for an entry of the store that is not one.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)


class NatsSnapshotStore:
    """A `SnapshotStore` next to the stream of one partition."""

    def __init__(self, connection: NatsConnection, *, partition: int = 0) -> None:
        self._connection = connection
        self._bucket = f"spotline_snapshots_{partition}"

    async def put(self, name: str, data: bytes) -> None:
        """Replace the snapshot of `name`; see the port."""
        async with _answered(f"the snapshot {name} was not stored"):
            store = await self._store()
            try:
                await store.put(name, data)
            except _UNREADABLE as error:
                raise ProviderUnavailable(
                    f"the store's entry of the snapshot {name} is damaged: {error!r}"
                ) from error

    async def get(self, name: str) -> bytes | None:
        """The snapshot of `name`; see the port."""
        async with _answered(f"the snapshot {name} was not read"):
            store = await self._store()
            try:
                size = (await store.get_info(name)).size or 0
                if size > MOST_BYTES:
                    raise ValueError(f"a snapshot must have at most {MOST_BYTES} bytes, has {size}")
                return (await store.get(name)).data or b""
            except nats.js.errors.NotFoundError:
                return None
            except nats.js.errors.DigestMismatchError as error:
                raise ValueError("the store's own digest of the snapshot differs") from error
            except _UNREADABLE as error:
                raise ValueError(
                    f"the store's entry of the snapshot is damaged: {error}"
                ) from error

    async def set_aside(self, name: str) -> None:
        """Keep the snapshot of `name` as `name.set_aside`; see the port."""
        async with _answered(f"the snapshot {name} was not set aside"):
            store = await self._store()
            with suppress(nats.js.errors.NotFoundError):
                try:
                    data = await self.get(name)
                except ValueError:
                    data = None
                try:
                    if data is not None:
                        await store.put(f"{name}.set_aside", data)
                    await store.delete(name)
                except _UNREADABLE:
                    # Its entry cannot even be replaced: the others cost their services a refold.
                    await (await self._jetstream()).purge_stream(f"OBJ_{self._bucket}")

    async def _jetstream(self) -> JetStreamContext:
        link = await self._connection.link(timeout_s=_TIMEOUT_S)
        return link.client.jetstream(timeout=_ANSWER_S)

    async def _store(self) -> ObjectStore:
        js = await self._jetstream()
        try:
            return await js.object_store(self._bucket)
        except nats.js.errors.NotFoundError:
            return await js.create_object_store(self._bucket, storage=StorageType.FILE)


@asynccontextmanager
async def _answered(what: str) -> AsyncIterator[None]:
    """Bound a conversation with the store; what passes by itself is `ProviderUnavailable`."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            yield
    except PASSING as error:
        raise ProviderUnavailable(f"{what}: {error!r}") from error
