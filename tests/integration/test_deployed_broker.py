"""The configuration in `deploy/`: what the generator writes, taken by a real server."""

import asyncio
import re
from pathlib import Path

import pytest

from spotline.bootstrap.bus_identities import keys_for_broker
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.runtime.broker import server_path
from spotline.runtime.broker_access import deployed
from tests.eventually import PATIENCE_S
from tests.fakes.processes import free_port

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]


def test_what_is_deployed_is_what_the_table_says():
    assert (REPOSITORY / "deploy/nats/nats.conf").read_text() == deployed()


async def test_a_server_takes_it_and_knows_our_keys(tmp_path):
    keys = keys_for_broker(tmp_path / "keys", hosts=("nats",), tenants=("acme-x", "acme_x"))
    (tmp_path / "identity").symlink_to(keys.folder)
    # As it is mounted, but for places and ports of this machine.
    text = deployed(keys.tenants()).replace("/etc/nats/", f"{tmp_path}/")
    text = text.replace("store_dir: /data", f"store_dir: {tmp_path}/data")
    text = re.sub(r"^http: 8222.*$", "", text, flags=re.M)
    port = free_port()
    text = text.replace("port: 4222", f"host: 127.0.0.1\nport: {port}")
    (tmp_path / "nats.conf").write_text(text)
    with (tmp_path / "log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            str(server_path()), "-c", str(tmp_path / "nats.conf"), stdout=log, stderr=log
        )
    try:
        bus = BusAddress(nats_url=f"tls://127.0.0.1:{port}", identity=keys)
        async with asyncio.timeout(PATIENCE_S):
            async with open_stream(bus, name="cloud_actuator") as (_, stream):
                assert await stream.last_seq() == 0
            async with open_stream(bus, name="selector") as (_, stream):
                assert await stream.last_seq() == 0
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


def test_containers_read_what_is_mounted_and_other_users_nothing(tmp_path):
    keys = keys_for_broker(tmp_path / "keys", hosts=("nats",), containers=True)
    assert {file.stat().st_mode & 0o777 for file in keys.folder.iterdir()} == {0o644}
    for folder in (tmp_path / "keys", keys.folder):
        assert folder.stat().st_mode & 0o777 == 0o700
    again = keys_for_broker(tmp_path / "keys", hosts=("nats",), containers=True)
    assert again.access() == keys.access()
