"""Which market `spotline up` runs: a file's, a cloud's own, or one that feeds follow."""

# Imports of what the command uses are inside it: `--help` must not wait for them.

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig
    from spotline.bootstrap.clouds import ChosenCloud
    from spotline.bootstrap.live import FollowedMarket, LiveFeeds
    from spotline.bootstrap.pace import MarketPace
    from spotline.domain.market.grid import AnyMarket
    from spotline.domain.market.market import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPace:
    """How fast the market is to run, as options say it; 0 and False are not stated."""

    speed: float
    slots_per_s: float
    wall_clock: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketToRun:
    """A market, how fast it runs, and who quotes it while it goes on."""

    market: AnyMarket
    pace: MarketPace
    feeds: LiveFeeds


def market_of(
    market: Path | None,
    cloud: ChosenCloud,
    store: Path,
    config: SpotlineConfig | None,
    asked: AskedPace,
    *,
    slot_s: int,
) -> MarketToRun:
    """The market of a file, else the cloud's own, followed while it goes on where it is live."""
    from spotline.bootstrap.live import NO_FEEDS
    from spotline.bootstrap.pace import pace_of

    followed = live_market(market, cloud, store, config, slot_s=slot_s)
    pace = pace_of(
        speed=asked.speed,
        slots_per_s=asked.slots_per_s,
        wall_clock=asked.wall_clock,
        own_market=market is None,
        in_wall_time=cloud.in_wall_time,
        live=None if followed is None else followed.feeds.clock,
    )
    if followed is not None:
        return MarketToRun(market=followed.market, pace=pace, feeds=followed.feeds)
    recorded = file_market(market, cloud, store, slot_s=slot_s, from_now=asked.wall_clock)
    return MarketToRun(market=recorded, pace=pace, feeds=NO_FEEDS)


def live_market(
    market: Path | None,
    cloud: ChosenCloud,
    store: Path,
    config: SpotlineConfig | None,
    *,
    slot_s: int,
) -> FollowedMarket | None:
    """The live market of a cloud that has one, where no file is given, at this buyer's prices."""
    from spotline.adapters.files.mistake import Mistake
    from spotline.bootstrap.live import followed_market
    from spotline.domain.market.overrides import NO_OVERRIDES

    overrides = NO_OVERRIDES if config is None else config.price_overrides()
    followed = None
    if market is None:
        followed = followed_market(cloud, store, slot_s=slot_s, overrides=overrides)
    if followed is None and config is not None and overrides.stated:
        # Prices of a file are what they are: private ones belong into it.
        expected = "none beside a market that is not live, whose prices are what they are"
        found = f"{len(overrides.stated)}"
        raise config.wrong([Mistake(field="overrides", expected=expected, found=found)])
    return followed


def with_reserved(market: AnyMarket, file: Path | None, config: SpotlineConfig | None) -> AnyMarket:
    """The market with what is paid for already: by a file of its own, else by that of --config."""
    from spotline.adapters.files.reservations_file import add_reservations

    if file is None and config is not None:
        return config.reserved(market)
    return add_reservations(market, file)


def file_market(
    file: Path | None, cloud: ChosenCloud, store: Path, *, slot_s: int, from_now: bool
) -> Market:
    """The market of a file, in slots of that length (0: its own), maybe moved to begin now.

    Without a file it is the cloud's own.
    """
    import time

    from spotline.adapters.market.parquet import read_market
    from spotline.bootstrap.pace import own_market

    if file is None:
        return own_market(cloud, store, slot_s=slot_s)
    market = read_market(file)
    if slot_s:
        market = market.resampled(slot_s)
    return market.beginning_at(time.time_ns()) if from_now else market
