"""What was seen of a market, kept as a market file: of a log, and of feeds while they speak."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spotline.adapters.market.parquet import read_market
from spotline.adapters.market.recorded_feed import RecordedFeed
from spotline.bootstrap.clouds import CLOUDS, CloudPlugin, LiveSource
from spotline.bootstrap.live import FollowedMarket, LiveFeeds
from spotline.bootstrap.recording import KEPT_EVERY, record_market
from spotline.cli.main import app
from spotline.contracts.errors import ContractError
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.overrides import PriceOverride, PriceOverrides
from spotline.domain.market.slot_quote import SlotQuote
from spotline.replay.recorded import market_seen
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.recorded_run import recorded_run, small_market, write_log

MARKET = small_market(slots=72)
SPEED = MARKET.slot_s * 40.0
PRICES = ("spot_price_micro_usd", "on_demand_price_micro_usd", "spot_available", "quoted_ns")


class AsyncioClock:
    """Implements `FeedClock` with the loop's time."""

    def now_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def followed(offerings=MARKET.offerings) -> FollowedMarket:
    clock = MarketClock(wall_ns=time.time_ns(), market_ns=MARKET.start_ns, market_s_per_s=SPEED)
    return FollowedMarket(
        market=LiveMarket(
            source="live", offerings=offerings, slot_s=MARKET.slot_s, start_ns=MARKET.start_ns
        ),
        feeds=LiveFeeds(feeds=(RecordedFeed(MARKET, AsyncioClock(), speed=SPEED),), clock=clock),
    )


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["market", "record", *map(str, args)])
    return result.exit_code, result.output


def test_a_log_gives_the_market_that_its_run_saw(tmp_path: Path):
    log, output = tmp_path / "log", tmp_path / "market.parquet"
    write_log(log, recorded_run(MARKET.between(0, 8), ()))

    code, said = run(log, "-o", output, "--json")

    assert code == 0, said
    assert json.loads(said)["slots"] == 8
    found = read_market(output)
    assert found.offerings == MARKET.offerings
    for name in PRICES:
        assert np.array_equal(getattr(found, name), getattr(MARKET, name)[:8]), name


async def test_feeds_give_the_market_that_they_say_and_what_was_seen_is_kept_as_it_goes():
    kept: list[Market] = []

    market = await asyncio.wait_for(
        record_market(followed(), slots=KEPT_EVERY + 3, keep=kept.append), PATIENCE_S
    )

    assert market.slots == KEPT_EVERY + 3
    assert [each.slots for each in kept] == [KEPT_EVERY, KEPT_EVERY + 3]
    # A slot opens as its quotes come: it has them, or those of some slot before.
    for column in range(len(MARKET.offerings)):
        said = set(MARKET.spot_price_micro_usd[:, column].tolist())
        assert set(market.spot_price_micro_usd[:, column].tolist()) <= said
    assert (market.quoted_ns <= market.slot_starts_ns()[:, None]).all()
    assert market.source == "live"


async def test_a_recording_that_is_stopped_keeps_what_it_has_seen():
    kept: list[Market] = []
    recording = asyncio.create_task(record_market(followed(), slots=10**6, keep=kept.append))
    await eventually(lambda: kept)
    recording.cancel()

    with pytest.raises(asyncio.CancelledError):
        await recording
    assert kept[-1].slots >= KEPT_EVERY


def test_what_was_seen_is_at_the_prices_that_everybody_pays_and_leaves_out_what_nobody_said():
    own = PriceOverrides(stated=(PriceOverride(offerings="*", spot_discount_ppm=500_000),))
    first, second, *_ = MARKET.offerings
    opened = MarketOpened(
        offerings=(first, second),
        slot_s=MARKET.slot_s,
        first_slot_start_ns=MARKET.start_ns,
        source="s",
    )
    slots = []
    for number in range(2):
        said, unsaid = (SlotQuote(quote=quote, age_s=0) for quote in MARKET.quotes(number)[:2])
        unsaid = replace(
            unsaid,
            quarantined_spot_price_micro_usd=unsaid.quote.spot_price_micro_usd,
            quarantined_on_demand_price_micro_usd=unsaid.quote.on_demand_price_micro_usd,
        )
        at_ns = MARKET.start_ns + number * MARKET.slot_s * 10**9
        quotes = own.applied((first, second), (said, unsaid), at_ns, {})
        slots.append(
            SlotOpened(slot=number, ts_event_ns=at_ns, slot_s=MARKET.slot_s, quotes=quotes)
        )

    seen = market_seen(opened, slots)

    assert seen.offerings == (first,)
    assert np.array_equal(seen.spot_price_micro_usd[:, 0], MARKET.spot_price_micro_usd[:2, 0])
    with pytest.raises(ContractError, match="no slot"):
        market_seen(opened, [])


def test_the_command_follows_a_cloud_whose_market_is_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    simulated = CLOUDS["simulated"]
    live = followed()
    source = LiveSource(
        offerings=live.market.offerings, feeds=live.feeds.feeds, clock=live.feeds.clock
    )
    monkeypatch.setitem(
        CLOUDS,
        "following",
        CloudPlugin(
            settings=simulated.settings,
            open=simulated.open,
            live=lambda settings, store: source,
        ),
    )
    output = tmp_path / "market.parquet"

    code, said = run("--cloud", "following", "--for", "2h", "--slot", 1800, "-o", output)

    assert code == 0, said
    assert read_market(output).slots == 4


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-o", "m.parquet"], "expected the log of a run, --address"),
        (["--cloud", "simulated", "-o", "m.parquet"], "expected one whose market is live"),
        (["--cloud", "simulated", "--for", "soon", "-o", "m.parquet"], "expected a duration > 0"),
        (["absent", "-o", "m.parquet"], "absent"),
        (["absent", "--address", "h:1", "-o", "m.parquet"], "expected a log or --address, found"),
    ],
)
def test_what_cannot_be_recorded_is_said(args: list[str], said: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code, told = run(*args)

    assert code == 2
    assert said in " ".join(told.split())
    assert not Path("m.parquet").exists()
