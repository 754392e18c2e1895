"""A store of v0.1.0 whose process was killed goes on: the same bill, and one log that verifies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.market.parquet import read_market
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.parts import open_stream
from spotline.bootstrap.system import LEDGER_OWNER, SystemOptions, running_system
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.market.learning_rules import FIRST_RULES
from spotline.replay.handlers import handlers_of
from spotline.replay.verify import verify
from tests.fakes.recorded_run import environment, manifest_of
from tests.samples.stored_runs import SLOTS, STORED, readable, unpack

pytestmark = pytest.mark.integration


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "step",
    [
        "launch",
        pytest.param("write_intents", marks=pytest.mark.slow),
        pytest.param("terminate", marks=pytest.mark.slow),
    ],
)
async def test_a_store_of_v0_1_0_is_continued_with_the_same_bill(tmp_path: Path, step: str) -> None:
    unpack(STORED / f"up-store-{step}.tar.xz", tmp_path)
    over = asyncio.Event()

    def watch(event, envelope, seq) -> None:
        if isinstance(event, CapacityReported) and event.settled and event.slot == SLOTS - 1:
            over.set()

    # Patient: a service that is late on a busy machine would be decided without.
    options = SystemOptions(
        market=read_market(tmp_path / "market.parquet"),
        store=tmp_path / "store",
        geography=tmp_path / "geography.yaml",
        allocate_timeout_s=90,
        selector=SelectorOptions(forecast_timeout_s=90),
        # As the laws were learned that the store holds: one log is verified by one manifest.
        learning=FIRST_RULES,
    )
    async with running_system(options, listeners={"market_ingest": watch}) as system:
        async with asyncio.timeout(200):
            await over.wait()
        async with open_stream(system.bus, name="test") as (_, stream):
            log = [entry async for entry in stream.read([], last_seq=await stream.last_seq())]
    ledger = SqlLedger(ledger_url(tmp_path / "store" / "ledger.sqlite"), LEDGER_OWNER)
    charges = ledger.comparable()["charges"]
    ledger.close()

    assert charges
    assert readable(charges) == (STORED / "up-bill.json").read_text(encoding="utf-8")
    report = verify(log, handlers_of(options.settings()), manifest_of(log), here=environment())
    assert report.divergences == ()
    assert report.exit_code == 0
