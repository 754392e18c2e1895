"""Who one is to a server of a real installation, while its keys come and go."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.identity.client import IdentityClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.identity.endpoints import ClientIdentity, client_identity, publish_endpoint
from spotline.adapters.identity.folder import IdentityFolder
from spotline.adapters.identity.jwt_tokens import JwtTokens
from spotline.adapters.identity.shown import ServerIdentity
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Role
from tests.fakes.allocator import FakeJobsHost, market_opened
from tests.fakes.signed_tokens import NOW, TokenIssuer, trusted

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Nothing is planned here: the planners need not be compiled."""
    monkeypatch.setattr(RpcServer, "prepare", lambda self: None)


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def folder(tmp_path):
    return IdentityFolder(tmp_path / "store")


@asynccontextmanager
async def serving(folder, *readers, identity=True):
    server = RpcServer(FakeJobsHost(market_opened()), JobFeed(), address="127.0.0.1:0")
    if identity:
        server.identify(
            ServerIdentity(
                authenticator=folder.authenticator(*readers),
                key_and_chain=folder.server_identity([]),
            )
        )
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(grace_s=0.1)


async def who(address, identity=None):
    async with IdentityClient(address, identity=identity) as client:
        return await client.who_am_i()


async def refused(address, identity):
    with pytest.raises(RpcFailed) as caught:
        await who(address, identity)
    return caught.value


def showing(folder, token):
    return ClientIdentity(token=token, ca_pem=folder.ca_file.read_bytes())


async def test_whoever_runs_a_system_is_known_to_it_and_nobody_else_on_the_machine(
    folder, tmp_path, monkeypatch
):
    async with serving(folder) as address:
        publish_endpoint(address, folder.endpoint())
        assert (await who(address)).subject == "owner"
        operator = client_identity(address).tokens[Role.OPERATOR]
        assert (await who(address, showing(folder, operator))).role is Role.OPERATOR

        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of-a-second-user"))
        with pytest.raises(RpcFailed):
            await who(address)
        failure = await refused(address, showing(folder, ""))
        assert (failure.code, failure.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        others = IdentityFolder(tmp_path / "others")
        token = others.token_file("operator").read_text().strip()
        assert (await refused(address, showing(folder, token))).code == "UNAUTHENTICATED"
        assert (await refused(address, showing(others, token))).code == "UNAVAILABLE"


async def test_keys_are_made_and_revoked_while_the_server_runs(folder):
    async with serving(folder) as address:
        token = folder.keys.create("ann", RoleGrant(role=Role.VIEWER, tenant="research"))
        caller = await who(address, showing(folder, token))
        assert (caller.subject, caller.tenant) == ("ann", "research")

        folder.keys.revoke("ann")

        failure = await refused(address, showing(folder, token))
        assert failure.code == "UNAUTHENTICATED"
        assert "(ann) was revoked at" in str(failure)
        assert token not in str(failure)


async def test_keys_are_rotated_while_the_server_runs(folder):
    async with serving(folder) as before:
        publish_endpoint(before, folder.endpoint())
        old = client_identity(before)

        folder.rotate(overlap=timedelta(hours=1))

        new = client_identity(before)
        assert new.token != old.token
        for identity in (old, new):
            assert (await who(before, identity)).subject == "owner"
        async with serving(folder) as after:
            for identity in (old, new):
                assert (await who(after, identity)).subject == "owner"


async def test_tokens_of_an_identity_provider_count_where_its_issuer_is_named(folder):
    issuer = TokenIssuer("RS256")
    jwts = JwtTokens([trusted()], fetch=issuer.fetch, now=lambda: NOW)
    token = issuer.sign("key-RS256")
    async with serving(folder, jwts) as address, serving(folder) as another:
        assert (await who(address, showing(folder, token))).tenant == "research"

        failure = await refused(another, showing(folder, token))
        assert "of no kind that is known here" in str(failure)
        expired = issuer.sign("key-RS256", exp=int(NOW.timestamp()) - 60)
        assert "it has expired" in str(await refused(address, showing(folder, expired)))


async def test_a_server_that_asks_nobody_says_so(folder):
    async with serving(folder, identity=False) as address:
        assert await who(address) is None
