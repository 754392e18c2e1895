"""What is not well is seen at /readyz, by gRPC, over HTTP and by the command, and why."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.health.conditions import HealthLimits
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.operations.messages import SystemStatus
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap import health
from spotline.bootstrap.system import FREE_ADDRESS, SystemOptions
from spotline.bootstrap.up import run_up
from spotline.cli.main import app
from spotline.domain.market.generate import generate
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S
from tests.fakes.full_broker import leave_no_room, make_room
from tests.fakes.placer import START_NS

pytestmark = pytest.mark.integration

# Many slots, one every 50 ms: the market outlasts the test.
MARKET = generate("mixed", seed=3, slots=20_000, slot_s=600, start_ns=START_NS)
LIMITS = HealthLimits(slot_least_s=2.0, agreement_slots=1_000_000, disk_free_bytes=0)


@dataclass(slots=True)
class Up:
    """A running `spotline up`."""

    addresses: Mapping[str, str] = field(default_factory=dict)

    async def get(self, path: str) -> tuple[int, dict]:
        """Ask the health endpoint."""
        return await asyncio.to_thread(get, self.addresses["health"].replace("/healthz", path))

    async def http(self) -> tuple[int, dict]:
        """Ask the read model for the system."""
        url = self.addresses["HTTP"].replace("/v1/jobs", "/v1/system")
        return await asyncio.to_thread(get, url)

    async def command(self, *options: str) -> tuple[int, str]:
        """Run `spotline status --system`."""
        words = ["status", "--system", "--address", self.addresses["gRPC"], *options]
        ran = await asyncio.to_thread(CliRunner().invoke, app, words)
        return ran.exit_code, ran.stdout

    async def until_ready(self) -> None:
        """Ask the health endpoint until it says so."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.get("/readyz"))[0] != 200:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)

    async def serving(self) -> int:
        """Ask gRPC's health check of the allocator."""
        async with grpc.aio.insecure_channel(self.addresses["gRPC"]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            return (await stub.Check(health_pb2.HealthCheckRequest())).status

    async def until(self, seen: Callable[[SystemStatus], bool]) -> SystemStatus:
        """Ask until the answer is as wanted."""
        async with asyncio.timeout(PATIENCE_S), OperationsClient(self.addresses["gRPC"]) as client:
            while not seen(status := await client.status()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
            return status

    async def until_serving(self, status: int) -> None:
        """Ask gRPC's health check until it says so."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.serving() != status:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)


def get(url: str) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@asynccontextmanager
async def running_up(store: Path, nats_url: str) -> AsyncIterator[Up]:
    told: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    options = SystemOptions(
        market=MARKET,
        store=store,
        nats_url=nats_url,
        http_address=FREE_ADDRESS,
        ingest=IngestOptions(slot_interval_s=0.05),
        selector=SelectorOptions(rehearsals=0),
        health=LIMITS,
    )
    running = asyncio.create_task(run_up(options, health_port=0, told=told.set_result))
    try:
        await asyncio.wait((told, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield Up(addresses=await told)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def condition_of(status: SystemStatus, service: str, name: str) -> str | None:
    """What is said of a condition that is not well, None where it is."""
    for told in status.services:
        for condition in told.conditions:
            if (told.service, condition.name) == (service, name) and not condition.healthy:
                return condition.detail
    return None


def not_stored(status: SystemStatus) -> str:
    """What is said by the service that had something to store first; empty while none does."""
    said = (condition_of(status, told.service, "publishing") for told in status.services)
    return next((detail for detail in said if detail is not None), "")


async def test_all_is_well_then_no_slot_then_no_room_and_well_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LOOK_S", 0.2)
    # However busy the machine is, nobody gives up while there is no room.
    for opened in (NatsEventStream.__init__, NatsEventStream.open.__func__):
        monkeypatch.setitem(opened.__kwdefaults__, "publish_timeout_s", 600.0)
    stopped = False
    due = IngestHandler.due
    monkeypatch.setattr(
        IngestHandler, "due", lambda self, state: () if stopped else due(self, state)
    )

    async with (
        EmbeddedBroker(tmp_path / "nats") as broker,
        running_up(tmp_path / "up", broker.url) as up,
    ):
        # Well: every service is heard, the endpoints and the command agree.
        status = await up.until(lambda status: status.healthy and status.clock is not None)
        assert len(status.services) == 9
        assert status.clock is not None
        await up.until_ready()
        assert (await up.get("/healthz"))[0] == 200
        code, said = await up.command()
        assert code == 0
        assert said.startswith("all is well: 9 services are ready")
        assert (await up.http())[0] == 200

        # The feed stops: the market should go on, and does not.
        stopped = True
        status = await up.until(
            lambda status: condition_of(status, "market_ingest", "slots") is not None
        )
        assert condition_of(status, "market_ingest", "slots").startswith("no slot for ")
        code, said = await up.command()
        assert code == 1
        assert said.startswith("not well: no slot for ")
        ready, body = await up.get("/readyz")
        assert ready == 503
        assert body["services"]["market_ingest.slots"].startswith("no slot for ")
        # What a restart does not mend restarts nothing; the others serve on.
        assert (await up.get("/livez"))[0] == 200
        assert [one.service for one in status.services if not one.ready] == ["market_ingest"]
        assert await up.serving() == health_pb2.HealthCheckResponse.SERVING
        _, body = await up.http()
        assert body["healthy"] is False
        stopped = False
        await up.until(lambda status: status.healthy)

        # There is no room for more, and then there is again.
        await leave_no_room(broker.url)
        status = await up.until(
            lambda status: (
                condition_of(status, "allocator", "storage") is not None
                and not_stored(status) != ""
            )
        )
        assert "maximum bytes exceeded" in not_stored(status)
        assert condition_of(status, "allocator", "storage").startswith("JetStream holds ")
        code, said = await up.command("--json")
        assert code == 1
        assert json.loads(said)["healthy"] is False
        assert (await up.get("/readyz"))[0] == 503
        await up.until_serving(health_pb2.HealthCheckResponse.NOT_SERVING)
        await make_room(broker.url)
        await up.until(lambda status: status.healthy)
        await up.until_serving(health_pb2.HealthCheckResponse.SERVING)
        # The market goes on where it stood.
        stood = status.clock.slot
        await up.until(lambda status: status.healthy and status.clock.slot > stood + 5)
        await up.until_ready()
