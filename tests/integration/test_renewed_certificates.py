"""A gRPC server shows a renewed certificate while it answers: no call fails, and none is cut short."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from contextlib import asynccontextmanager
from functools import partial

import pytest

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.identity.client import IdentityClient
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.adapters.identity.folder import IdentityFolder
from spotline.adapters.identity.shown import ServerIdentity
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Role
from spotline.contracts.errors import ConfigError
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.allocator import FakeJobsHost, market_opened

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Nothing is planned here: the planners need not be compiled."""
    monkeypatch.setattr(RpcServer, "prepare", lambda self: None)


@pytest.fixture
def folder(tmp_path):
    return IdentityFolder(tmp_path / "store")


def server_of(folder, address="127.0.0.1:0"):
    server = RpcServer(FakeJobsHost(market_opened()), JobFeed(), address=address)
    server.identify(
        ServerIdentity(
            authenticator=folder.authenticator(),
            key_and_chain=folder.server_identity([]),
            look=partial(folder.server_identity, []),
        )
    )
    return server


@asynccontextmanager
async def attended(folder, server=None):
    server = server or server_of(folder)
    address = await server.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            attending = tasks.create_task(server.attend(lambda: True, look_every_s=0.01))
            yield address
            attending.cancel()
    finally:
        await server.stop(grace_s=0.1)


async def shown(address):
    """The certificate that a new connection is shown; none to one that waited as a server left."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, port = address.split(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    except ConnectionResetError:
        return ""
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    # gRPC goes on with settings of HTTP/2 after goodbye, which asyncio takes for an error.
    writer.transport.abort()
    return hashlib.sha256(certificate).hexdigest()


async def test_a_rotation_is_shown_while_calls_go_on(folder):
    token = folder.keys.create("a test", RoleGrant(role=Role.VIEWER, tenant="acme"))
    identity = ClientIdentity(token=token, ca_pem=folder.ca_file.read_bytes())
    async with attended(folder) as address, IdentityClient(address, identity=identity) as client:
        before = await shown(address)
        folder.authority.rotate()

        async with asyncio.timeout(PATIENCE_S):
            while await shown(address) in (before, ""):
                assert (await client.who_am_i()).role is Role.VIEWER
        for _ in range(20):
            assert (await client.who_am_i()).role is Role.VIEWER


async def test_calls_that_reach_a_server_as_it_leaves_are_made_again(folder):
    token = folder.keys.create("a test", RoleGrant(role=Role.VIEWER, tenant="acme"))
    identity = ClientIdentity(token=token, ca_pem=folder.ca_file.read_bytes())
    server = server_of(folder)
    async with (
        attended(folder, server) as address,
        IdentityClient(address, identity=identity) as client,
    ):
        before = server._shown
        folder.authority.rotate()
        answered = 0
        # So many at once that gRPC has not taken all of them up when the server begins to end.
        async with asyncio.timeout(PATIENCE_S):
            while server._shown == before or answered < 256:
                told = await asyncio.gather(*(client.who_am_i() for _ in range(32)))
                answered = answered + 32 if server._shown != before else 0
                assert {caller.role for caller in told} == {Role.VIEWER}


async def test_servers_of_before_are_let_go_of(folder):
    server = server_of(folder)
    async with attended(folder, server):
        for _ in range(2):
            before = server._shown
            folder.authority.rotate()
            await eventually(lambda before=before: server._shown != before)

        await eventually(lambda: not server._leaving)


async def test_a_port_on_which_another_listens_is_refused(folder):
    async with attended(folder) as address:
        another = server_of(folder, address)

        with pytest.raises(ConfigError, match=r"cannot listen on .* is another .* running there"):
            await another.start()
