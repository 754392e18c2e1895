"""The services of docker-compose.yml, each a process with the environment that compose gives it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import ssl
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from spotline.bootstrap.deployed_keys import deploy_keys
from spotline.runtime.broker import server_path
from tests.fakes.composition import Composition, bare_environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
_PATIENCE_S = 180.0
# The actuator sets the streams up; the others are those that have doors, and who only reads.
SERVICES = (
    *("cloud_actuator", "configurator", "allocator", "placer", "analytics", "read_model"),
    "notifier",
)


@asynccontextmanager
async def process(log: Path, *command: str, environment: dict[str, str]):
    with log.open("wb") as file:
        running = await asyncio.create_subprocess_exec(
            *command, stdout=file, stderr=file, env=environment, cwd=log.parent
        )
    try:
        yield
    finally:
        if running.returncode is None:
            running.terminate()
        await running.wait()


def nats_configuration(composition: Composition, folder: Path) -> Path:
    folder.mkdir()
    mounts = composition.mounts("nats")
    text = mounts["/etc/nats/nats.conf"].read_text()
    (folder / "identity").symlink_to(mounts["/etc/nats/identity"])
    text = text.replace("/etc/nats/identity", str(folder / "identity"))
    text = text.replace("store_dir: /data", f"store_dir: {folder}/data")
    text = text.replace("http: 8222 #", "#")
    port = composition.port("nats", "4222")
    text = text.replace("port: 4222", f"host: 127.0.0.1\nport: {port}")
    made = folder / "nats.conf"
    made.write_text(text)
    return made


async def said(*words: str, environment: dict[str, str]) -> tuple[int, str, str]:
    program = "from spotline.cli.main import app; app()"
    asked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    out, err = await asked.communicate()
    return asked.returncode or 0, out.decode(), err.decode()


async def answered(ask):
    """Ask until there is an answer; the test itself is bounded."""
    while True:
        answer = await ask()
        if answer is not None:
            return answer
        await asyncio.sleep(0.2)


def got(port: int, ca: Path, token: str = "") -> tuple[int, dict]:
    trust = ssl.create_default_context(cafile=str(ca))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=30)
    try:
        connection.request(
            "GET", "/v1/system", headers={"Authorization": f"Bearer {token}"} if token else {}
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


async def speak_in_the_clear(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    await writer.drain()
    # What it says is an alert at most, and then nothing more.
    await reader.read()
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def composed(folder: Path, base: dict[str, str]):
    """Broker and services with the keys that each was handed out, until the block is left."""
    deploy_keys(folder)
    composition = Composition(REPOSITORY, {"SPOTLINE_IDENTITY_DIR": str(folder / "identity")})
    logs = folder / "logs"
    logs.mkdir()
    configuration = nats_configuration(composition, folder / "broker")
    async with AsyncExitStack() as stack:
        broker = (str(server_path()), "-c", str(configuration))
        await stack.enter_async_context(process(logs / "nats", *broker, environment=base))
        for service in SERVICES:
            environment = {**base, **composition.environment(service)}
            if "SPOTLINE_STORE" in environment:
                environment["SPOTLINE_STORE"] = str(folder / f"{service}-store")
            command = (sys.executable, "-m", f"services.{service}")
            await stack.enter_async_context(
                process(logs / service, *command, environment=environment)
            )
        yield composition


async def use_context(composition: Composition, own: Path, base: dict[str, str]) -> None:
    """As deploy/README.md says it."""
    allocator, placer, http = (
        f"127.0.0.1:{composition.port(service, port)}"
        for service, port in (("allocator", "7070"), ("placer", "7072"), ("read_model", "7080"))
    )
    added = await said(
        *("context", "add", "compose", "--allocator", allocator, "--placer", placer),
        *("--http", f"https://{http}", "--ca", str(own / "ca.pem")),
        *("--token-file", str(own / "tokens" / "owner.key")),
        environment=base,
    )
    assert added[0] == 0, added
    assert (await said("context", "use", "compose", environment=base))[0] == 0


async def test_the_host_gets_in_by_its_context_and_nobody_without_a_token(tmp_path):
    own, stranger = tmp_path / "identity", str(tmp_path / "none")
    base = {
        **bare_environment(),
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY))),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    async with asyncio.timeout(_PATIENCE_S), composed(tmp_path, base) as composition:
        await use_context(composition, own, base)

        async def known() -> dict | None:
            code, out, _ = await said("auth", "whoami", "--json", environment=base)
            return None if code else json.loads(out)

        assert (await answered(known))["role"] == "service"
        code, _, err = await said(
            *("auth", "whoami", "--address", f"127.0.0.1:{composition.port('allocator', '7070')}"),
            environment={**base, "XDG_CONFIG_HOME": stranger},
        )
        assert code, err

        await speak_in_the_clear(composition.port("allocator", "7070"))
        port = composition.port("read_model", "7080")
        operator = (own / "tokens" / "operator.key").read_text().strip()

        async def served() -> bool | None:
            try:
                status, told = await asyncio.to_thread(got, port, own / "ca.pem", operator)
            except OSError:
                return None  # it does not listen yet
            ready = {each["service"] for each in told.get("services", ()) if each["ready"]}
            return True if status == 200 and "notifier" in ready else None

        assert await answered(served)
        assert (await asyncio.to_thread(got, port, own / "ca.pem"))[0] == 401
        for service in SERVICES:
            log = (tmp_path / "logs" / service).read_text()
            # The last is what gRPC says of each connection that speaks no TLS.
            for word in ("no_identity", "open_bus", "nats_permission_denied", "Handshake failed"):
                assert word not in log, log
