"""Make every stream of a partition before those come who may make none."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import StorageType

from spotline.adapters.faust.declared import app_bucket, topic_stream
from spotline.adapters.nats.configured import DECISIONS_KEPT, StreamLimits, ensure_stream
from spotline.adapters.nats.connection import BrokerLink, NatsConnection
from spotline.adapters.nats.identities import BusIdentities, IdentitiesInFolder
from spotline.adapters.nats.output import OUTPUT_KEPT
from spotline.adapters.nats.stream import NatsEventStream
from spotline.adapters.nats.tenants import ensure_history
from spotline.contracts.bus_access import snapshots_stream, worker_streams
from spotline.contracts.subjects import StreamPart, stream_name

_KEPT: dict[StreamPart, StreamLimits | None] = {
    StreamPart.DECISIONS: DECISIONS_KEPT,
    StreamPart.OUTPUT: OUTPUT_KEPT,
    StreamPart.STATISTICS: None,
}


async def set_up(
    connection: NatsConnection, partition: int, identities: BusIdentities | None
) -> None:
    """Make what is absent, where this connection is one that may; the log is not among it.

    Without identities everybody makes what it needs, as it comes.

    Raises
    ------
    ConfigError
        A stream is there, and another one.
    ProviderUnavailable
        The server does not answer, or cannot store.
    """
    if identities is None or not connection.sets_up:
        return
    asked = NatsEventStream(connection, partition=partition)
    await asked.ask(lambda link: _make_others(link.jetstream(), partition))
    for part, limits in _KEPT.items():
        name = stream_name(partition, part)
        absent = await asked.ask(lambda link, name=name: _is_absent(link.jetstream(), name))  # type: ignore[misc]
        kept = limits if absent else None
        await asked.ask(partial(_ensure, part=part, partition=partition, limits=kept))
    if isinstance(identities, IdentitiesInFolder):
        for tenant in identities.tenants():
            await asked.ask(lambda link, tenant=tenant: ensure_history(link.jetstream(), tenant))  # type: ignore[misc]


async def _ensure(
    link: BrokerLink, *, part: StreamPart, partition: int, limits: StreamLimits | None
) -> None:
    await ensure_stream(link.client, part, partition=partition, limits=limits)


async def _make_others(js: JetStreamContext, partition: int) -> None:
    """What the analytics' app and snapshots are kept in, as these would make it."""
    bucket, *topics = worker_streams(partition)
    if await _is_absent(js, bucket):
        await js.create_key_value(app_bucket(bucket.removeprefix("KV_")))
    for stream in topics:
        if await _is_absent(js, stream):
            topic = stream.removeprefix("FAUST_")
            await js.add_stream(topic_stream(topic, 1, compacting=topic.endswith("-changelog")))
    snapshots = snapshots_stream(partition)
    if await _is_absent(js, snapshots):
        await js.create_object_store(snapshots.removeprefix("OBJ_"), storage=StorageType.FILE)


async def _is_absent(js: JetStreamContext, stream: str) -> bool:
    with suppress(nats.js.errors.NotFoundError):
        await js.stream_info(stream)
        return False
    return True
