"""A store goes on with the market and the geography that it was made with, and with no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotline.application.market_ingest.handler import IngestOptions
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.bootstrap.system import RunningSystem, SystemOptions, running_system
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ConfigError
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.runtime.broker import EmbeddedBroker
from spotline.runtime.timers import Timer
from tests.eventually import PATIENCE_S

pytestmark = pytest.mark.integration

START_NS = 1_772_323_200 * 10**9  # 2026-03-01T00:00:00Z
GEOGRAPHY = """
regions:
  - {id: virginia, gpus: 32, energy_usd_per_kwh: 0.156}
"""


def market(seed: int = 11, **changed: int) -> Market:
    words = {"slots": 24, "slot_s": 1800, "start_ns": START_NS} | changed
    return generate("mixed", seed=seed, **words)


@asynccontextmanager
async def opened(options: SystemOptions, slots: int) -> AsyncIterator[RunningSystem]:
    """A system whose market stands still once so many slots are open."""
    reached = asyncio.Event()

    async def gate(timer: Timer) -> None:
        if int(timer.timer_id.removeprefix("slot:")) >= slots:
            await asyncio.Event().wait()

    def on_applied(event: Event, envelope: Envelope, seq: int) -> None:
        if isinstance(event, SlotOpened) and event.slot == slots - 1:
            reached.set()

    async with running_system(options, gate=gate, listeners={"allocator": on_applied}) as system:
        await asyncio.wait_for(reached.wait(), PATIENCE_S)
        yield system


def options(store: Path, traded: Market | None = None, **more: Any) -> SystemOptions:
    return SystemOptions(market=traded or market(), store=store, **more)


async def test_a_store_goes_on_with_its_own_market_and_with_no_other(tmp_path: Path) -> None:
    store = tmp_path / "store"
    geography = tmp_path / "geography.yaml"
    geography.write_text(GEOGRAPHY)
    async with opened(options(store), slots=2) as system:
        bus = system.bus
    wrong = {
        "slot length: expected 1800 s, found 600 s": options(store, market(slot_s=600, slots=72)),
        "first slot: expected 2026-03-01T00:00:00Z, found 2026-03-01T01:00:00Z": options(
            store, market(start_ns=START_NS + 3600 * 10**9)
        ),
        "slot 0: expected cloud:east-1a:a100-1x at": options(store, market(seed=12)),
        "offerings: expected cloud:east-1a:a100-1x, ": options(store, other_offerings()),
        "geography: expected none, found virginia of 32 GPUs": options(store, geography=geography),
    }

    stored = await stored_in(store)
    for said, other in wrong.items():
        with pytest.raises(ConfigError) as caught:
            async with running_system(other):
                pass
        assert str(caught.value).startswith(f"market: {said}")
        assert "give the market and geography that it began with" in str(caught.value)
    assert await stored_in(store) == stored

    async with opened(options(store), slots=3) as system:
        assert system.bus != bus


async def test_a_market_that_did_not_begin_by_the_wall_clock_does_not_go_on_by_it(
    tmp_path: Path,
) -> None:
    async with opened(options(tmp_path), slots=1):
        pass

    by_clock = IngestOptions(barrier=False, wall_clock=True)
    with pytest.raises(ConfigError, match="expected one that began by the wall clock"):
        async with running_system(options(tmp_path, ingest=by_clock)):
            pass


async def stored_in(store: Path) -> int:
    async with (
        EmbeddedBroker(store / "broker") as broker,
        open_stream(BusAddress(nats_url=broker.url), name="test") as (_, stream),
    ):
        return await stream.last_seq()


def other_offerings() -> Market:
    whole = market()
    renamed = tuple(
        replace(offering, offering_id=f"{offering.offering_id}-2") for offering in whole.offerings
    )
    return replace(whole, offerings=renamed)
