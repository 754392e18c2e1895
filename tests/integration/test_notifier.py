"""The notifier as a process of its own: with its own key, killed, it tells nothing twice and leaves nothing out."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import json
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from spotline.adapters.notify.outbox import OUTBOX_FILE, Outbox
from spotline.bootstrap.parts import open_stream
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed, JobOutcome, JobSubmitted
from spotline.domain.market.generate import generate
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.allocator import START_NS, job, market_opened, slot_opened
from tests.fakes.bus_identities import GuardedBus, guarded_bus
from tests.fakes.ports import free_port
from tests.fakes.processes import ServiceProcesses
from tests.fakes.receiver import Receiver, receiving
from tests.fakes.scripted_agent import WrittenLog

pytestmark = pytest.mark.integration

SECRET = "a secret of 32 characters, or so"


def config_in(folder: Path, receiver: Receiver) -> Path:
    folder.mkdir()
    secret = folder / "ops.secret"
    secret.write_text(f"{SECRET}\n", encoding="utf-8")
    secret.chmod(0o600)
    file = folder / "spotline.yaml"
    stated = {"name": "ops", "url": receiver.url, "secret": {"file": "ops.secret"}}
    file.write_text(json.dumps({"notify": [stated]}), encoding="utf-8")
    return file


def readiness(port: int) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["service"]
    finally:
        connection.close()


async def ready(services: ServiceProcesses, port: int) -> Any:
    """Wait until the service has read the log; what it says of itself."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert services.dead() == [], services.said()
            try:
                status, said = await asyncio.to_thread(readiness, port)
            except OSError:
                status = 0
            if status == 200:
                return said
            await asyncio.sleep(0.05)


class Writers:
    """The parts of a job's life, each written by the service whose it is, with its own key."""

    def __init__(self, bus: GuardedBus) -> None:
        self._bus = bus
        self._stack = AsyncExitStack()
        self._logs: dict[str, WrittenLog] = {}

    async def __aenter__(self) -> Writers:
        for service in ("store", "market_ingest", "allocator", "selector"):
            opened = await self._stack.enter_async_context(
                open_stream(self._bus.address, name=service)
            )
            if service == "store":
                # As the actuator's start does.
                await opened[1].claim("an-installation")
            self._logs[service] = WrittenLog(opened[1])
        return self

    async def __aexit__(self, *exit_info: object) -> None:
        await self._stack.aclose()

    async def write(self, service: str, *events: Event) -> None:
        await self._logs[service].write(*events, source=service)

    async def fail_job(self, name: str) -> None:
        mine = job(name)
        await self.write("allocator", JobSubmitted(job=mine, ts_event_ns=START_NS))
        ended = JobClosed(
            job_id=mine.job_id,
            tenant=mine.tenant,
            slot=0,
            outcome=JobOutcome.FAILED,
            policy_id="p",
            cost_micro_usd=3_000_000,
            value_micro_usd=0,
            progress_ppm=500_000,
        )
        await self.write("selector", ended)


def counts(store: Path) -> dict[str, int]:
    with closing(Outbox(store / OUTBOX_FILE)) as outbox:
        return outbox.counts("ops")


def is_ours(secret: str, header: str, body: bytes) -> bool:
    """As docs/notifications.md has it."""
    parts = dict(part.split("=", 1) for part in header.split(","))
    signed = parts["t"].encode() + b"." + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts["v1"])


@pytest.mark.timeout(200)
async def test_a_killed_notifier_tells_the_rest_and_nothing_twice(tmp_path):
    market, port = generate("mixed", seed=1, slots=2, slot_s=600, start_ns=START_NS), free_port()
    with receiving() as receiver:
        async with guarded_bus(tmp_path / "bus") as bus, Writers(bus) as writers:
            await writers.write("market_ingest", market_opened(), slot_opened(0))
            own = bus.identities.of("notifier")
            settings = {
                "SPOTLINE_NATS_SEED": str(own.seed),
                "SPOTLINE_NATS_CA": str(own.ca),
                "SPOTLINE_STORE": str(tmp_path / "notifier"),
                "SPOTLINE_CONFIG": str(config_in(tmp_path / "stated", receiver)),
                "SPOTLINE_HEALTH_PORT": str(port),
            }
            async with ServiceProcesses(bus.url, tmp_path, market) as services:
                await services.start("notifier", **settings)
                said = await ready(services, port)
                await writers.fail_job("first")
                # Before that is noted, a kill has it sent again, with its id.
                await eventually(lambda: counts(tmp_path / "notifier") == {"taken": 1})
                await services.kill("notifier")
                await writers.fail_job("second")
                await services.start("notifier", **settings)
                await eventually(lambda: len(receiver.posted) == 2)
                await writers.fail_job("third")
                await eventually(lambda: len(receiver.posted) == 3)
                wrote = services.said()

    assert said["notifier.receivers"] == 1
    told = [(posted.said["kind"], posted.said["subject"]) for posted in receiver.posted]
    assert told == [("missed", job(name).job_id) for name in ("first", "second", "third")]
    assert len(set(receiver.ids())) == 3
    for posted in receiver.posted:
        assert is_ours(SECRET, posted.headers["Spotline-Signature"], posted.body)
    # What it may not do on the bus it did not try.
    assert "permission" not in wrote.lower()
    assert SECRET not in wrote
