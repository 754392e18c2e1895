"""Secrets of every kind are planted into a whole system; nothing that it writes or says has one.

Errors are provoked at every door. What is searched: all logs, every answer with its traceback, what
commands print, the events on the bus, and every file of the store but those that hold keys.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import ssl
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import structlog
from google.protobuf.message import Message
from typer.testing import CliRunner

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.identity.folder import IdentityFolder
from spotline.adapters.identity.issuers import read_issuers
from spotline.adapters.ledger.threaded import opened_ledger
from spotline.api.v1 import agent_service_pb2, job_service_pb2
from spotline.application.identity.grants import RoleGrant
from spotline.bootstrap.system import FREE_ADDRESS, RunningSystem, running_system
from spotline.cli.main import app
from spotline.contracts.access import GRPC_ACTIONS, HTTP_ACTIONS, Role
from spotline.contracts.errors import SpotlineError
from spotline.contracts.mapping import to_message
from spotline.demo.submission import submit_until_taken
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.timers import Timer
from tests.fakes.access_doors import descriptor_of, request_of
from tests.fakes.whole_system import JOBS, options

pytestmark = pytest.mark.integration

MARK = "planted1f9ce5d2"
"""In every planted secret."""

JWT = f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtYWxsb3J5In0.{MARK}jwt"
JOIN_TOKEN = f"join.{MARK}.token"
BUS_PASSWORD, LEDGER_PASSWORD = f"{MARK}bus", f"{MARK}ledger"
OIDC_SECRET, JOB_SECRET = f"{MARK}oidc", f"{MARK}job"
# Where keys are meant to be; nothing else may hold one.
KEYS = ("identity/tokens", "identity/authority", "identity/nats", "agents")


@dataclass(slots=True)
class Said:
    """All that was said to anybody, by who said it."""

    texts: dict[str, str] = field(default_factory=dict)

    def note(self, where: str, what: object) -> None:
        """Something that was said; of an error also its traceback, and what it came from."""
        text = str(what)
        if isinstance(what, BaseException):
            text += repr(what) + "".join(traceback.format_exception(what))
        self.texts[where] = self.texts.get(where, "") + text

    def telling(self, secrets: tuple[str, ...]) -> list[tuple[str, str]]:
        """Who told which secret, with what stands around it."""
        return [
            (where, text[max(0, text.find(secret) - 60) :][:160])
            for where, text in self.texts.items()
            for secret in secrets
            if secret in text
        ]


@dataclass(slots=True)
class Planted:
    """A running system with secrets in it."""

    system: RunningSystem
    ca_pem: str
    key: str
    revoked: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may say; of keys what is secret in them."""
        return (MARK, *(key.rpartition("_")[2] for key in (self.key, self.revoked)))

    def ports(self) -> Iterator[tuple[str, str]]:
        """Every method of the table, with the port that answers it."""
        system = self.system
        for method in sorted(GRPC_ACTIONS):
            service = method.split(".")[3].partition("/")[0]
            yield (
                method,
                {
                    "ConfigurationService": system.configurator_address,
                    "PlacementService": system.placer_address,
                    "AnalyticsService": system.analytics_address,
                    "AgentService": system.agents_address,
                }.get(service, system.allocator_address),
            )


@pytest.fixture
def all_is_logged():
    """Every line of every logger goes to this test's output, whoever configured them before."""
    before = structlog.get_config()
    structlog.reset_defaults()
    for module in [module for name, module in sys.modules.items() if name.startswith("spotline.")]:
        # A logger that was used under another configuration may have kept it.
        vars(getattr(module, "_log", None) or SimpleNamespace()).pop("bind", None)
    yield
    structlog.configure(**before)


@asynccontextmanager
async def planted(store: Path) -> AsyncIterator[Planted]:
    async def gate(timer: Timer) -> None:
        await asyncio.Event().wait()

    async with EmbeddedBroker(store.with_name("another broker")) as broker:
        # A server that asks nobody takes any password.
        url = broker.url.replace("://", f"://spotline:{BUS_PASSWORD}@", 1)
        asked = replace(options(store, identity=True), nats_url=url, http_address=FREE_ADDRESS)
        async with running_system(asked, gate=gate) as system:
            folder = IdentityFolder(store)
            grant = RoleGrant(role=Role.OWNER, tenant=JOBS[0].tenant)
            key, revoked = (folder.keys.create(name, grant) for name in ("ann", "bob"))
            folder.keys.revoke("bob")
            yield Planted(system, folder.authority.ca_pem, key, revoked)


def wrong_requests(method: str) -> Iterator[Message | bytes]:
    """Requests that are refused, some with a secret where it does not belong."""
    yield request_of(method)()
    yield b"\xff" + MARK.encode()
    if method.endswith("/Submit"):
        job = to_message(JOBS[0])
        job.run.command.append("python")
        job.run.secrets.append(f"TOKEN={JOB_SECRET}")
        yield job_service_pb2.SubmitRequest(job=job)
    if method.endswith("/Join"):
        yield agent_service_pb2.JoinRequest(
            join_token=JOIN_TOKEN, instance_id="i-1", nonce=f"{MARK} a nonce of thirty-two chars"
        )


async def provoke_grpc(here: Planted, said: Said) -> None:
    """Call every method with tokens that are refused, and with a good one but wrong requests."""
    trusted = {here.ca_pem, *agents_ca(here)}
    for method, address in here.ports():
        ca = "".join(trusted).encode()
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca)) as channel:
            found = descriptor_of(method)
            kind = "stream_" if found.client_streaming else "unary_"
            kind += "stream" if found.server_streaming else "unary"
            for token in (JWT, here.revoked, f"spl_{MARK}", here.key):
                for request in wrong_requests(method):
                    data = request if isinstance(request, bytes) else request.SerializeToString()
                    call = getattr(channel, kind)(method)(
                        iter((data,)) if found.client_streaming else data,
                        metadata=(("authorization", f"Bearer {token}"),),
                        timeout=20,
                    )
                    try:
                        if found.server_streaming:
                            call.cancel() if token == here.key else None
                            async for answer in call:
                                said.note(method, answer)
                        else:
                            said.note(method, await call)
                    except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
                        said.note(method, error)


def agents_ca(here: Planted) -> list[str]:
    """What signs the certificate of the agents' port."""
    folder = Path(here.system.ledger_url.partition(":///")[2]).parent / "agents"
    return [path.read_text() for path in sorted(folder.glob("*.pem")) if "ca" in path.name]


def provoke_http(here: Planted, said: Said) -> None:
    """Ask for every path with tokens that are refused, and name one in the query."""
    host, _, port = here.system.http_address.rpartition(":")
    context = ssl.create_default_context(cadata=here.ca_pem)
    for name in HTTP_ACTIONS:
        method, _, path = name.replace("{job_id}", "j1").partition(" ")
        for token, query in ((JWT, ""), (here.revoked, ""), (here.key, "?limit=none")):
            connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)
            try:
                connection.request(
                    method, path + query, headers={"Authorization": f"Bearer {token}"}
                )
                response = connection.getresponse()
                body = b"" if response.status == 200 else response.read()
                said.note(name, f"{response.status} {response.headers} {body!r}")
            finally:
                connection.close()


def provoke_commands(here: Planted, store: Path, said: Said, monkeypatch) -> None:
    """Give commands that fail, and those that print what the system knows."""
    address = ("--address", here.system.allocator_address)
    bus = here.system.bus.nats_url
    monkeypatch.setenv("SPOTLINE_TOKEN", here.key)
    for words in (
        ("auth", "whoami", *address, "--json"),
        ("auth", "token", "list", "--store", store, "--json"),
        ("auth", "token", "revoke", here.key[:-1], "--store", store),
        ("status", *address, "--json"),
        ("status", "no-such-job", *address),
        ("pause", *address),
        ("store", "check", "--store", store, "--nats-url", bus, "--json"),
        ("store", "check", "--store", store, "--nats-url", f"nats://u:{BUS_PASSWORD}@127.0.0.1:x"),
        ("context", "add", "prod", "--allocator", "h:1", "--token-file", here.key),
        ("audit", "--store", store, "--json"),
        ("audit", "verify", "--store", store, "--json"),
    ):
        ran = CliRunner().invoke(app, [str(word) for word in words])
        said.note(f"spotline {' '.join(map(str, words[:3]))}", ran.output)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            said.note(f"spotline {' '.join(map(str, words[:3]))}", ran.exception)


async def provoke_settings(tmp_path: Path, said: Said) -> None:
    """Name a ledger and issuers that are of no use, with passwords in them."""
    try:
        async with opened_ledger(
            f"postgresql://spotline:{LEDGER_PASSWORD}@127.0.0.1:1/ledger", "a test"
        ):
            raise AssertionError("a ledger was opened where none is")
    except SpotlineError as error:
        said.note("ledger", error)
    issuers = tmp_path / "identity.yaml"
    issuers.write_text(f"issuers: [{{issuer: https://a/, client_secret: {OIDC_SECRET}}}]\n")
    with pytest.raises(SpotlineError) as caught:
        read_issuers(issuers)
    said.note("issuers", caught.value)


def note_files(store: Path, said: Said) -> None:
    """Every file of the store, and of the broker's beside it, but those that are there for keys."""
    for root in (store, store.with_name("another broker")):
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_file() and not name.startswith(KEYS):
                said.note(name, path.read_bytes().decode("utf-8", "replace"))


async def test_no_secret_is_in_anything_that_a_system_says_or_writes(
    tmp_path, capfd, monkeypatch, all_is_logged
):
    store, said = tmp_path / "store", Said()
    monkeypatch.setenv("TRAINING_TOKEN", JOB_SECRET)

    async with planted(store) as here:
        async with JobClient(here.system.allocator_address) as client:
            await submit_until_taken(client, JOBS[0])
        await provoke_grpc(here, said)
        await asyncio.to_thread(provoke_http, here, said)
        await asyncio.to_thread(provoke_commands, here, store, said, monkeypatch)
        await provoke_settings(tmp_path, said)
        secrets = here.secrets
    said.note("logs", "".join(capfd.readouterr()))
    note_files(store, said)

    assert {"ledger", "issuers", "logs", "audit/allocator.jsonl", "ledger.sqlite"} <= set(
        said.texts
    )
    # What is searched is legible: events on the bus, denials in logs and audit.
    assert any(JOBS[0].job_id in text for name, text in said.texts.items() if name.endswith(".blk"))
    assert "caller_denied" in said.texts["logs"]
    assert "UNAUTHENTICATED" in said.texts["audit/allocator.jsonl"]
    assert said.telling(secrets) == []


@pytest.mark.slow
@pytest.mark.parametrize("service", ["allocator", "analytics", "cloud_actuator", "read_model"])
def test_no_service_that_cannot_start_says_a_password(service, tmp_path):
    """Each as a process of its own, with a bus, a ledger and a collector that nobody serves."""
    environment = {
        **os.environ,
        "SPOTLINE_NATS_URL": f"nats://spotline:{BUS_PASSWORD}@127.0.0.1:1",
        "SPOTLINE_LEDGER_URL": f"postgresql://spotline:{LEDGER_PASSWORD}@127.0.0.1:1/ledger",
        "SPOTLINE_OTLP_ENDPOINT": f"http://spotline:{OIDC_SECRET}@127.0.0.1:1",
        "SPOTLINE_IDENTITY_STORE": str(tmp_path),
        "SPOTLINE_LOG_LEVEL": "debug",
        "SPOTLINE_CLOUD": "simulated",
        "TRAINING_TOKEN": JOB_SECRET,
    }
    unknown = {**environment, "SPOTLINE_HEALTH_PORT": MARK}

    for variables in (environment, unknown):
        ran = subprocess.run(
            [sys.executable, "-m", f"services.{service}"],
            env=variables,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode != 0
        assert ran.stderr
        assert MARK not in ran.stdout + ran.stderr
