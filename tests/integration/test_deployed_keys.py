"""Services that run apart, with the keys that each was handed out."""

from __future__ import annotations

import asyncio
import importlib
import socket
import ssl
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.identity.client import IdentityClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.adapters.identity.folder import SERVICES, IdentityFolder
from spotline.adapters.web.serving import WebServer
from spotline.application.identity.grants import RoleGrant
from spotline.bootstrap.deployed_keys import deploy_again, deploy_keys
from spotline.bootstrap.identity import ApartIdentity, KeysAt
from spotline.bootstrap.process import bus_identity_of, identity_of
from spotline.contracts.access import Role
from spotline.contracts.errors import ConfigError
from spotline.runtime.settings import ServiceSettings
from tests.eventually import PATIENCE_S
from tests.fakes.allocator import FakeJobsHost, market_opened
from tests.fakes.composition import Composition

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = tmp_path_factory.mktemp("deployed")
    deploy_keys(store, hosts=("spot.example.com",))
    return store


@pytest.fixture
def repository():
    return Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Nothing is planned here: the planners need not be compiled."""
    monkeypatch.setattr(RpcServer, "prepare", lambda self: None)


def apart(store, service, **more):
    return ApartIdentity(KeysAt(folder=store / "identity" / "containers" / service, **more))


@asynccontextmanager
async def allocator(store, **more):
    server = RpcServer(FakeJobsHost(market_opened()), JobFeed(), address="127.0.0.1:0")
    server.identify(apart(store, "allocator", **more).server())
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(grace_s=0.1)


async def who(address, identity):
    async with IdentityClient(address, identity=identity) as client:
        return await client.who_am_i()


async def refusal(address, identity):
    with pytest.raises(RpcFailed) as caught:
        await who(address, identity)
    return caught.value.code


def test_each_container_has_its_own_keys_and_no_secret_of_another(store):
    containers = store / "identity" / "containers"
    assert (containers.stat().st_mode & 0o777) == 0o700
    secrets = {
        file.parent.name + "/" + file.name: file.read_bytes()
        for file in containers.glob("*/*")
        if file.suffix in (".key", ".seed")
    }
    own = IdentityFolder(store).path
    for file in (own / "authority" / "ca.key", *own.glob("tokens/o*.key")):
        secrets[file.name] = file.read_bytes()
    assert len(secrets) >= 4 * len(SERVICES)
    for folder in containers.iterdir():
        held = b"".join(file.read_bytes() for file in folder.glob("*"))
        for name, secret in secrets.items():
            # A name of a file that is not in the folder: it must not be in any that is.
            assert (secret.strip() in held) == name.startswith(f"{folder.name}/"), name
        assert {file.stat().st_mode & 0o777 for file in folder.glob("*")} <= {0o644}


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_of_compose_starts_with_the_identity_that_is_its_own(
    store, repository, monkeypatch, service
):
    composition = Composition(repository, {"SPOTLINE_IDENTITY_DIR": str(store / "identity")})
    for name, value in composition.environment(service).items():
        monkeypatch.setenv(name, value)
    module = importlib.import_module(f"services.{service}.settings")
    (kind,) = (
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, ServiceSettings)
        and found is not ServiceSettings
    )
    settings = kind()

    assert bus_identity_of(settings).of(service).name == service
    identity = identity_of(settings)
    assert identity.client(service).token
    assert identity.server().key_and_chain
    # What is mounted is its own folder, and nothing else of the identity.
    mounted = [str(path) for path in composition.mounts(service).values()]
    of_identity = [path for path in mounted if path.startswith(str(store))]
    assert of_identity == [str(store / "identity" / "containers" / service)]


def test_no_secret_stands_in_the_files_of_the_deployment(repository):
    compose = (repository / "docker-compose.yml").read_text()
    for service in Composition(repository, {}).services.values():
        for name, value in service.get("environment", {}).items():
            assert not any(word in name for word in ("TOKEN", "PASSWORD", "SECRET")), name
            assert "://" not in value or "@" not in value
    assert "BEGIN" not in compose
    assert "spl_" not in compose


async def test_services_know_each_other_and_let_nobody_else_in(store):
    async with allocator(store) as address:
        selector = apart(store, "selector").client("selector")
        caller = await who(address, selector)
        assert (caller.subject, caller.role) == ("selector", Role.SERVICE)
        for name in ("allocator", "spot.example.com"):
            named = ClientIdentity(token=selector.token, ca_pem=selector.ca_pem, server_name=name)
            assert (await who(address, named)).subject == "selector"
        # Another service's name is not the allocator's to show.
        posing = ClientIdentity(token=selector.token, ca_pem=selector.ca_pem, server_name="placer")
        assert await refusal(address, posing) == "UNAVAILABLE"
        assert await refusal(address, ClientIdentity(ca_pem=selector.ca_pem)) == "UNAUTHENTICATED"


async def test_a_key_that_is_made_or_revoked_counts_at_running_services_at_once(store):
    own = IdentityFolder(store)
    async with allocator(store) as address:
        token = own.keys.create("ann", RoleGrant(role=Role.OWNER, tenant="research"))
        ann = ClientIdentity(token=token, ca_pem=own.ca_file.read_bytes())
        assert (await who(address, ann)).tenant == "research"
        own.keys.revoke("ann")
        assert await refusal(address, ann) == "UNAUTHENTICATED"


async def test_with_mtls_a_caller_without_a_certificate_is_not_heard(store):
    async with allocator(store, mtls=True) as address:
        assert (await who(address, apart(store, "selector", mtls=True).client("selector"))).subject
        assert await refusal(address, apart(store, "selector").client("selector")) == "UNAVAILABLE"


async def test_rotated_keys_are_handed_out_and_taken_while_services_run(tmp_path):
    deploy_keys(tmp_path, hosts=("spot.example.com",))
    folder = tmp_path / "identity" / "containers" / "allocator"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    async with allocator(tmp_path) as address:
        selector = apart(tmp_path, "selector").client("selector")
        first = (await who(address, selector)).credential_id
        IdentityFolder(tmp_path).rotate(overlap=timedelta(0))
        assert deploy_again(tmp_path)

        # The same client, with the token that it reads anew.
        assert (await who(address, selector)).credential_id != first
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    changed = {name for name in before if before[name] != after[name]}
    assert {"ca.pem", "server.pem", "token.key", "api_keys.json"} <= changed
    assert "allocator.seed" not in changed


async def test_over_http_the_new_authority_is_shown_while_the_server_runs(tmp_path):
    deploy_keys(tmp_path)
    identity = apart(tmp_path, "read_model").server()
    context = identity.tls_context()
    server = WebServer(_well, address="127.0.0.1:0", tls=context)
    async with identity.kept_current(context, every_s=0.01):
        host, _, port = (await server.start()).rpartition(":")
        try:
            await asyncio.to_thread(_shake_hands, host, int(port), apart(tmp_path, "selector"))
            own = IdentityFolder(tmp_path)
            own.rotate(keep_former=False)
            # Only who trusts the new authority alone tells them apart.
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(_shake_hands, host, int(port), own)
            deploy_again(tmp_path)
            await eventually_shaken(host, int(port), own)
        finally:
            await server.stop()


async def _well(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _shake_hands(host, port, trusting):
    pem = (
        trusting.ca_file.read_bytes()
        if isinstance(trusting, IdentityFolder)
        else trusting.client("selector").ca_pem
    )
    trust = ssl.create_default_context(cadata=pem.decode())
    with (
        socket.create_connection((host, port), timeout=PATIENCE_S) as raw,
        trust.wrap_socket(raw, server_hostname="localhost"),
    ):
        return


async def eventually_shaken(host, port, trusting):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await asyncio.to_thread(_shake_hands, host, port, trusting)
            except ssl.SSLCertVerificationError:
                await asyncio.sleep(0.01)


def test_nothing_is_handed_out_where_nothing_was(tmp_path):
    IdentityFolder(tmp_path)

    assert not deploy_again(tmp_path)
    assert not (tmp_path / "identity" / "containers").exists()


def test_a_folder_without_keys_is_named(tmp_path, monkeypatch):
    with pytest.raises(
        ConfigError, match=r"ca\.pem: expected a key that `spotline auth keys deploy`"
    ):
        ApartIdentity(KeysAt(folder=tmp_path))
    monkeypatch.setenv("SPOTLINE_IDENTITY_KEYS", str(tmp_path))
    monkeypatch.setenv("SPOTLINE_IDENTITY_STORE", str(tmp_path))
    with pytest.raises(ConfigError, match="SPOTLINE_IDENTITY_KEYS: expected neither"):
        identity_of(ServiceSettings())
