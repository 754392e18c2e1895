"""Consumers that last as long as somebody reads by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import nats.js.errors
from nats.js.api import ConsumerConfig, ConsumerInfo

from spotline.adapters.nats.connection import PASSING, BrokerLink


@asynccontextmanager
async def passing_consumer(
    link: BrokerLink, stream: str, config: ConsumerConfig
) -> AsyncIterator[ConsumerInfo]:
    """A consumer of a stream, removed in the end; one that cannot be, the server removes when idle.

    Raises
    ------
    nats.errors.Error
        The server does not answer, or has no such stream.
    """
    js = link.jetstream()
    with link.consumer_name() as name:
        if name is not None:
            # Left by a process that was killed, or another's of this identity.
            with suppress(nats.js.errors.NotFoundError):
                await js.delete_consumer(stream, name)
        made = await js.add_consumer(stream, config.evolve(name=name))
        try:
            yield made
        finally:
            if not link.lost:
                with suppress(*PASSING):
                    await js.delete_consumer(stream, made.name)
