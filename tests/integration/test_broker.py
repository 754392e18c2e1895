import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.runtime.broker import EmbeddedBroker, check_server_version, read_banner
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.events import overdue, published
from tests.fakes.processes import free_port

pytestmark = pytest.mark.integration

OWNER = """
import asyncio, sys
from pathlib import Path
from spotline.runtime.broker import EmbeddedBroker

async def main():
    store = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    async with EmbeddedBroker(store) as broker:
        print(broker.server_pid, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def start_owner(tmp_path, *arguments):
    """A process of its own that owns a broker; returns it and the server's pid."""
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, *arguments),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return owner, int(await asyncio.wait_for(owner.stdout.readline(), PATIENCE_S))


async def kill(owner):
    owner.send_signal(signal.SIGKILL)
    await owner.wait()


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_listens_on_a_free_loopback_port_and_syncs_every_write(tmp_path):
    async with EmbeddedBroker(tmp_path) as broker:
        banner = await read_banner("127.0.0.1", int(broker.url.rsplit(":", 1)[1]))

        assert broker.url.startswith("nats://127.0.0.1:")
        assert banner["jetstream"] is True
        assert "sync_interval: always" in (tmp_path / "nats-server.conf").read_text()


async def test_two_brokers_run_side_by_side():
    async with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.url != other.url


async def test_stops_and_keeps_a_given_store(tmp_path):
    async with EmbeddedBroker(tmp_path) as broker, NatsConnection(broker.url) as connection:
        stream = await NatsEventStream.open(connection)
        await stream.publish(published(overdue(slot) for slot in range(3)))
    assert not is_running(broker.server_pid)

    async with EmbeddedBroker(tmp_path) as broker, NatsConnection(broker.url) as connection:
        stream = await NatsEventStream.open(connection)
        assert await stream.last_seq() == 3


async def test_killed_owner_takes_server_and_temporary_store_along(tmp_path):
    owner, server_pid = await start_owner(tmp_path)
    assert is_running(server_pid)
    assert list(tmp_path.iterdir())

    await kill(owner)

    await eventually(lambda: not is_running(server_pid))
    await eventually(lambda: not list(tmp_path.iterdir()))


async def test_store_of_a_killed_owner_can_be_taken_over_at_once(tmp_path):
    owner, server_pid = await start_owner(tmp_path, str(tmp_path / "store"))

    await kill(owner)

    async with EmbeddedBroker(tmp_path / "store") as broker:
        assert broker.server_pid != server_pid
        assert not is_running(server_pid)


async def test_second_owner_of_a_store_is_told_who_has_it(tmp_path):
    async with EmbeddedBroker(tmp_path):
        with pytest.raises(ConfigError, match=f"in use by process {os.getpid()};"):
            await EmbeddedBroker(tmp_path).__aenter__()


async def test_a_server_that_cannot_start_says_why(tmp_path):
    async with EmbeddedBroker() as first:
        port = int(first.url.rsplit(":", 1)[1])
        with pytest.raises(ConfigError, match="address already in use"):
            await EmbeddedBroker(tmp_path, port=port).__aenter__()
    async with EmbeddedBroker(tmp_path):
        pass  # the failed start left no lock


async def test_owner_learns_that_its_server_ended(tmp_path):
    async with EmbeddedBroker(tmp_path) as broker:
        os.kill(broker.server_pid, signal.SIGKILL)
        assert await asyncio.wait_for(broker.stopped(), PATIENCE_S) == -signal.SIGKILL


@pytest.mark.parametrize("version", ["2.9.10", "2.12.2", "v2.11.9", "", "unknown"])
def test_old_or_unknown_servers_are_refused(version):
    with pytest.raises(ConfigError, match=r"needs 2\.12\.3 or newer: older ones silently ignore"):
        check_server_version(version, "nats://example:4222")


@pytest.mark.parametrize("version", ["2.12.3", "v2.15.1", "3.0.0", "2.13.0-RC.1"])
def test_new_enough_servers_are_taken(version):
    check_server_version(version, "nats://example:4222")


async def test_connecting_to_an_old_server_is_refused():
    async def talk(reader, writer):
        info = {"server_id": "old", "version": "2.9.10", "headers": True, "max_payload": 1048576}
        try:
            writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"has version 2\.9\.10"):
            await NatsConnection(url).__aenter__()


async def test_connecting_to_nobody_says_so():
    url = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(ProviderUnavailable, match=r"no answer from NATS at .* is it running\?"):
        await NatsConnection(url, timeout_s=0.3).__aenter__()


def test_store_path_may_hold_any_character(tmp_path):
    async def run():
        async with EmbeddedBroker(tmp_path / 'a "b" {c} ü'):
            return True

    assert asyncio.run(run())
    assert Path(tmp_path / 'a "b" {c} ü' / "jetstream").is_dir()
