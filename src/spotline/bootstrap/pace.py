"""How fast a market runs: at a speed, by the wall clock, or as fast as slots are decided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from spotline.application.market_ingest.handler import IngestOptions
from spotline.bootstrap.clouds import ChosenCloud
from spotline.contracts.errors import ConfigError
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import MarketClock


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPace:
    """How slots open.

    Parameters
    ----------
    by_time
        Whether time alone opens them, `market_s_per_s` market seconds in one of wall time.
    slots_per_s
        Otherwise how many open in a second at most, 0 for any number.
    wall_clock
        Whether market time is wall time, so that slots which nobody opened are opened at once.
    """

    by_time: bool = False
    market_s_per_s: float = 1.0
    slots_per_s: float = 0.0
    wall_clock: bool = False

    def ingest(self, slot_s: int, *, wait_for_work: bool) -> IngestOptions:
        """The options that open slots of this length so; `ValueError` where they cannot wait."""
        if self.by_time:
            interval_s = slot_s / self.market_s_per_s
        else:
            interval_s = 1.0 / self.slots_per_s if self.slots_per_s else 0.0
        return IngestOptions(
            slot_interval_s=interval_s,
            barrier=not self.by_time,
            wait_for_work=wait_for_work,
            wall_clock=self.wall_clock,
        )


def pace_of(
    *,
    speed: float,
    slots_per_s: float,
    wall_clock: bool,
    own_market: bool,
    in_wall_time: bool,
    live: MarketClock | None = None,
) -> MarketPace:
    """The pace that options ask for; 0 and False are not stated.

    A market that a cloud makes of itself runs at the speed of time unless another is stated, a
    `live` one by its clock.

    Raises
    ------
    ConfigError
        Options exclude each other, or a cloud that lives in wall time has a market that does not.
    """
    if not (math.isfinite(speed) and speed >= 0):
        raise ConfigError(f"--speed must be finite and >= 0, was {speed}")
    stated = [
        option
        for option, given in (
            ("--speed", bool(speed)),
            ("--slots-per-s", bool(slots_per_s)),
            ("--wall-clock", wall_clock),
        )
        if given
    ]
    if "--speed" in stated and len(stated) > 1:
        raise ConfigError(
            f"{', '.join(stated)}: expected one of them, as each says how fast the market runs, "
            f"found {len(stated)}"
        )
    if live is not None:
        if stated:
            raise ConfigError(
                f"{', '.join(stated)}: expected none of them, as the market of this cloud is live "
                "and runs by the clock of its feeds"
            )
        return MarketPace(by_time=True, market_s_per_s=live.market_s_per_s, wall_clock=True)
    if own_market and wall_clock:
        raise ConfigError(
            "--wall-clock shifts a market file to begin now, and there is no --market: leave it "
            "out, the machine's own market runs by time"
        )
    if speed or wall_clock:
        return MarketPace(by_time=True, market_s_per_s=speed or 1.0, wall_clock=wall_clock)
    if own_market and not slots_per_s:
        return MarketPace(by_time=True)
    if in_wall_time:
        raise ConfigError(
            "this cloud's instances live in wall time, so its market must too: give --speed X "
            "(market seconds in a second) or --wall-clock"
        )
    return MarketPace(slots_per_s=slots_per_s)


def own_market(cloud: ChosenCloud, store: Path, *, slot_s: int) -> Market:
    """The market that a cloud has of its own, in slots of that length, 0 for its own.

    Raises
    ------
    ConfigError
        It has none, or the store's market had other slots.
    """
    market = cloud.market(store, slot_s)
    if market is None:
        raise ConfigError(
            f"--market: expected a file with the prices of cloud {cloud.name} "
            "(docs/market-format.md), found nothing"
        )
    return market
