"""A real broker for the tests that need one; no port is fixed, no store outlives the session."""

import logging

import nats.js.errors
import pytest
import pytest_asyncio
import structlog

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.runtime.broker import EmbeddedBroker

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def broker():
    """One nats-server for the session."""
    async with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def nats_connection(broker):
    """A connection to the session's broker, with no stream left over."""
    async with NatsConnection(broker.url, name="test") as connection:
        link = await connection.link(timeout_s=5)
        js = link.client.jetstream()
        for info in await js.streams_info():
            try:
                await js.delete_stream(info.config.name)
            except nats.js.errors.NotFoundError:
                continue
        yield connection


@pytest.fixture
async def event_stream(nats_connection):
    """An empty log."""
    return await NatsEventStream.open(nats_connection)
