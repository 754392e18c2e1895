"""No statement of the ledger holds up an event loop: not of the actuator, and not of a scrape."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.market.generate import generate
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.exporting import scraped_metrics, shut_down
from spotline.runtime.health import Health, serve_health
from tests.fakes.composed import composed
from tests.integration.test_metrics_endpoint import ask

pytestmark = pytest.mark.integration

MARKET = generate("mixed", seed=3, slots=3, slot_s=1800, start_ns=1_767_571_200_000_000_000)


async def test_ledger_and_its_metrics_are_read_and_written_in_threads(
    broker: EmbeddedBroker, tmp_path: Path, nats_connection: object
) -> None:
    statements: list[tuple[int, str]] = []

    def note(statement: str) -> None:
        statements.append((threading.get_ident(), statement))

    def trace(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_trace_callback(note)

    event.listen(Engine, "connect", trace)
    metrics = scraped_metrics()
    try:
        async with (
            composed(broker.url, tmp_path, MARKET, selector=SelectorOptions()) as system,
            serve_health({"x": lambda: Health(healthy=True)}, metrics=metrics) as port,
            asyncio.timeout(200),
        ):
            system.go.set()
            await system.wait_for(CapacityReported, lambda report: report.slot >= 1)
            before = len(statements)
            _, _, page = await ask(port, "GET /metrics")
            read = [statement for _, statement in statements[before:]]
    finally:
        event.remove(Engine, "connect", trace)
        await asyncio.to_thread(shut_down)

    assert "spotline_instances_held" in page
    assert any("FROM spend" in statement for statement in read)
    assert any(statement.startswith("INSERT INTO answers") for _, statement in statements)
    here = threading.get_ident()
    assert [statement for thread, statement in statements if thread == here] == []
