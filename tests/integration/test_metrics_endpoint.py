"""`/metrics` beside `/healthz`: of a server in this process, and of a service as a process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spotline.domain.market.generate import generate
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.health import PROMETHEUS_TEXT, Health, serve_health
from tests.fakes.listed_telemetry import PROMETHEUS_NAMES, scraped_samples
from tests.fakes.processes import ServiceProcesses, free_port

pytestmark = pytest.mark.integration

MARKET = generate("mixed", seed=3, slots=4, slot_s=1800, start_ns=1_767_571_200_000_000_000)


async def ask(port: int, request: str) -> tuple[int, str, str]:
    """Status, content type and body; status 0 while nobody listens."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"{request} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
    except OSError:
        return 0, "", ""
    fields = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    return int(head.split()[1]), fields["Content-Type"], body


@pytest.mark.parametrize(
    ("request_line", "answer"),
    [
        ("GET /metrics", (200, PROMETHEUS_TEXT, "a 1\n")),
        ("GET /metrics?x=1", (200, PROMETHEUS_TEXT, "a 1\n")),
        ("HEAD /metrics", (200, PROMETHEUS_TEXT, "")),
        ("POST /metrics", (405, "application/json", "{}")),
        ("GET /elsewhere", (404, "application/json", "{}")),
    ],
)
async def test_metrics_are_rendered_for_a_scrape(request_line, answer) -> None:
    async with serve_health({"x": lambda: Health(healthy=True)}, metrics=lambda: b"a 1\n") as port:
        assert await ask(port, request_line) == answer


async def test_without_metrics_there_is_no_such_page() -> None:
    async with serve_health({"x": lambda: Health(healthy=True)}) as port:
        assert (await ask(port, "GET /metrics"))[0] == 404


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("wanted", "status"), [("true", 200), ("false", 404)])
async def test_a_service_shows_its_metrics_unless_told_not_to(
    broker: EmbeddedBroker, tmp_path: Path, wanted: str, status: int, nats_connection: object
) -> None:
    port = free_port()
    settings = {"SPOTLINE_HEALTH_PORT": str(port), "SPOTLINE_METRICS": wanted}
    async with (
        ServiceProcesses(broker.url, tmp_path, MARKET, **settings) as processes,
        asyncio.timeout(200),
    ):
        await processes.start("market_ingest")
        while (await ask(port, "GET /healthz"))[0] != 200:
            assert not processes.dead(), processes.said()
            await asyncio.sleep(0.05)
        got, _, text = await ask(port, "GET /metrics")

    assert got == status
    if status == 200:
        samples = scraped_samples(text)
        assert set(samples) <= PROMETHEUS_NAMES
        assert samples["spotline_service_healthy"] == [{"spotline_service": "market_ingest"}]
        assert "process_resident_memory_bytes" in samples
