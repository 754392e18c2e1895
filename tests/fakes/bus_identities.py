"""A broker that asks who comes, and raw clients that try what they may not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from spotline.adapters.nats.client import HeedfulClient
from spotline.adapters.nats.identities import IdentitiesInFolder
from spotline.bootstrap.bus_identities import opened_identities
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S


class Trying:
    """A client as one identity, and what the server refused it."""

    def __init__(self, client: HeedfulClient) -> None:
        self.client = client
        self.refused: list[str] = []

    async def note(self, error: Exception) -> None:
        self.refused.append(str(error))

    async def may_publish(self, subject: str, payload: bytes = b"", **more: Any) -> bool:
        return await self._may("publish", subject, self.client.publish(subject, payload, **more))

    async def may_hear(self, subject: str) -> bool:
        return await self._may("subscription", subject, self.client.subscribe(subject))

    async def _may(self, what: str, subject: str, doing: Any) -> bool:
        self.refused.clear()
        await doing
        # A ping of nats-py's overtakes what is pending.
        await self.client._flush_pending(force_flush=True)
        # Whatever the server refuses it says before it answers this.
        await self.client.flush(PATIENCE_S)
        said = f'permissions violation for {what} to "{subject.lower()}"'
        return not any(said in refused for refused in self.refused)

    async def ask(self, subject: str, **body: Any) -> dict[str, Any]:
        answer = await self.client.request(subject, json.dumps(body).encode(), timeout=PATIENCE_S)
        told: dict[str, Any] = json.loads(answer.data)
        return told


class GuardedBus:
    """A broker with identities, whose streams are made."""

    def __init__(self, url: str, identities: IdentitiesInFolder, store: Path) -> None:
        self.url = url
        self.identities = identities
        self.store = store
        self.address = BusAddress(nats_url=url, identity=identities)

    @asynccontextmanager
    async def trying(self, identity: str) -> AsyncIterator[Trying]:
        client = HeedfulClient()
        trying = Trying(client)
        await client.connect(
            self.url,
            **self.identities.of(identity).options(),
            allow_reconnect=False,
            connect_timeout=PATIENCE_S,
            error_cb=trying.note,
        )
        try:
            yield trying
        finally:
            await client.close()


@asynccontextmanager
async def guarded_bus(folder: Path, *tenants: str) -> AsyncIterator[GuardedBus]:
    """A broker in `folder`, set up as a start of a store does."""
    identities = opened_identities(folder / "identity")
    for tenant in tenants:
        identities.add_tenant(tenant)
    store = folder / "broker"
    async with EmbeddedBroker(store, access=identities.access()) as broker:
        bus = GuardedBus(broker.url, identities, store)
        async with open_stream(bus.address, name="store"):
            pass
        yield bus
