"""What a client says of a connection that TLS did not let come about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.identity.authority import Authority
from spotline.adapters.identity.shown import ServerIdentity
from tests.fakes.allocator import opened_host
from tests.fakes.identities import TestIdentities

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Nothing is planned here: the planners need not be compiled."""
    monkeypatch.setattr(RpcServer, "prepare", lambda self: None)


@pytest.fixture
def identities(tmp_path):
    return TestIdentities.at(tmp_path / "authority")


@asynccontextmanager
async def serving(identity: ServerIdentity | None) -> AsyncIterator[str]:
    server = RpcServer(opened_host(), JobFeed(), address="127.0.0.1:0")
    server.identify(identity)
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(grace_s=0.0)


async def said(identity, known) -> str:
    async with serving(identity) as address, JobClient(address, identity=known) as client:
        with pytest.raises(RpcFailed) as caught:
            await client.list_all()
    assert caught.value.unreachable
    return str(caught.value)


async def test_a_good_certificate_and_token_are_taken(identities):
    async with (
        serving(identities.server()) as address,
        JobClient(address, identity=identities.client("owner")) as client,
    ):
        assert await client.list_all() == ()


async def test_an_expired_certificate_is_named_as_such(identities, tmp_path):
    long_ago = Authority(
        tmp_path / "authority", title="x", now=lambda: datetime.now(UTC) - timedelta(days=500)
    )
    expired = replace(
        identities.server(), key_and_chain=long_ago.server_identity((), name="expired")
    )

    assert "certificate has expired" in await said(expired, identities.client("owner"))


async def test_a_certificate_of_another_authority_is_named_as_such(identities, tmp_path):
    other = TestIdentities.at(tmp_path / "another authority")

    words = await said(identities.server(), other.client("owner"))

    assert "no authority that is trusted here signed its certificate" in words
    assert "SPOTLINE_CA" in words


async def test_a_certificate_for_another_name_is_named_as_such(identities):
    elsewhere = replace(identities.client("owner"), server_name="elsewhere.example")

    assert "for another name" in await said(identities.server(), elsewhere)


async def test_a_server_in_the_clear_gets_no_token(identities):
    words = await said(None, identities.client("owner"))

    assert "speaks in the clear where TLS was expected" in words


async def test_a_client_in_the_clear_is_told_of_tls(identities):
    assert "it asks for TLS" in await said(identities.server(), None)


async def test_a_client_without_a_certificate_is_told_of_it(identities):
    server, client = identities.server(mtls=True), identities.client("owner")

    assert "a client's certificate" in await said(server, client)
    async with (
        serving(server) as address,
        JobClient(address, identity=identities.client("owner", certified=True)) as certified,
    ):
        assert await certified.list_all() == ()
