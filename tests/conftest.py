"""A real broker for the tests that need one; no port is fixed, no store outlives the session.

Tests run in several processes (`make test`), each with a session, hence a broker, of its own.
"""

import logging
import os
from pathlib import Path

import nats.js.errors
import pytest
import pytest_asyncio
import structlog

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.shared_kernels import share_kernels

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

# Most tests wait most of the time: for a broker, for a process, for time to pass.
WORKERS_PER_CPU = 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """What `-n auto` means: two processes a CPU, and none for tests of a single file."""
    files = [Path(argument.partition("::")[0]) for argument in config.args]
    if len({str(file) for file in files}) == 1 and files[0].is_file():
        return 0
    return WORKERS_PER_CPU * len(os.sched_getaffinity(0))


def pytest_configure(config):
    """Workers share what one of them compiled."""
    if hasattr(config, "workerinput"):
        share_kernels()


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
