"""The parts of a store, opened to be looked at, whether or not a system runs on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.bootstrap.bus_identities import BROKER_FOLDER as BROKER_FOLDER
from spotline.bootstrap.bus_identities import identities_of
from spotline.bootstrap.running_process import RunningProcess
from spotline.contracts.bus_access import OPERATOR
from spotline.contracts.errors import ConfigError
from spotline.runtime.broker import EmbeddedBroker, url_of_running


def in_use(store: Path) -> bool:
    """Whether a process serves the store now."""
    running = RunningProcess.of(store)
    return running is not None and running.is_alive


def refuse_absent(store: Path) -> None:
    """Refuse a store that is not there.

    Raises
    ------
    ConfigError
        There is no such folder.
    """
    if not store.is_dir():
        raise ConfigError(f"{store}: expected the folder of a store, found none")


def refuse_in_use(store: Path, command: str) -> None:
    """Refuse what may not be done under a running system.

    Raises
    ------
    ConfigError
        A process serves the store.
    """
    running = RunningProcess.of(store)
    if running is not None and running.is_alive:
        raise ConfigError(
            f"the store {store} is in use by process {running.pid}; end it (spotline down --keep "
            f"--store {store}), then: spotline store {command}"
        )


def _connection(store: Path, url: str, known_as: str) -> NatsConnection:
    """A connection, not open yet, with an identity where the broker wants one."""
    identities = identities_of(store) if url.startswith("tls://") else None
    identity = None if identities is None else identities.of(known_as)
    return NatsConnection(url, name="spotline-store", identity=identity)


@asynccontextmanager
async def connected(
    store: Path, *, nats_url: str = "", partition: int = 0, known_as: str = OPERATOR
) -> AsyncIterator[tuple[NatsConnection, NatsEventStream]]:
    """A connection to the broker of a store, and its log, which may not be there; touches nothing.

    An embedded broker that does not run is started for as long as this is open.

    Raises
    ------
    ConfigError
        There is no broker in the store, or another process holds it.
    ProviderUnavailable
        No server answers at the URL.
    """
    folder = store / BROKER_FOLDER
    url = nats_url or (url_of_running(folder) if in_use(store) else "")
    if url:
        async with _connection(store, url, known_as) as connection:
            yield connection, NatsEventStream(connection, partition=partition)
        return
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: expected the folder of an embedded broker, found none; name an external one "
            "by --nats-url"
        )
    async with (
        EmbeddedBroker(folder) as broker,
        NatsConnection(broker.url, name="spotline-store") as connection,
    ):
        yield connection, NatsEventStream(connection, partition=partition)
