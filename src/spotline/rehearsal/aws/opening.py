"""A world is opened on a folder: a new one, or the one that was there before a kill."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spotline.adapters.market.parquet import read_market
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import MarketClock
from spotline.rehearsal.aws.accounts import accounts_of
from spotline.rehearsal.aws.clock import RehearsalClock, RunningClock, StandingClock
from spotline.rehearsal.aws.places import Places
from spotline.rehearsal.aws.state_log import BrokenLog, StateLog, records_of
from spotline.rehearsal.aws.weather import ORDINARY, Weather
from spotline.rehearsal.aws.world import RehearsedWorld

LOG, MARKET = "state.jsonl", "market.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How a world is made: it stands in the first record of its log, and a restart has it again.

    `market_s_per_s` is 0 where time stands until it is advanced. `user_data` is what instances are
    given by their launch template, in base64.
    """

    seed: int = 0
    market_s_per_s: float = 1.0
    weather: Weather = ORDINARY
    user_data: str = ""


@contextmanager
def opened(
    state: Path, making: Making, market: Path | None = None
) -> Iterator[tuple[RehearsedWorld, Making]]:
    """Open a world on its folder; closes its log at the end.

    A world that is there goes on as it was made: `making` and `market` are of a new one.

    Raises
    ------
    ValueError
        The folder holds no world, and no market file is given.
    BrokenLog
        Its log cannot be read.
    ContractError
        The market file cannot be read.
    """
    records = list(records_of(state / LOG))
    if not records and market is None:
        raise ValueError(f"--market must be given: {state} holds no rehearsal yet")
    if not records and market is not None:
        state.mkdir(parents=True, exist_ok=True)
        # A bill must be had from the folder alone, whatever becomes of the file.
        shutil.copyfile(market, state / MARKET)
    traded = read_market(state / MARKET)
    digest = hashlib.sha256((state / MARKET).read_bytes()).hexdigest()
    if records:
        first = records[0]
        if first["kind"] != "started" or first["market_sha256"] != digest:
            raise BrokenLog(f"{state / LOG}: expected the start of a world on {state / MARKET}")
        making = made(first)
        clock = _clock_again(first, making, at_ns=max(record["at_ns"] for record in records))
    else:
        clock = _clock(traded, making)
    with StateLog(state / LOG) as log:
        world = RehearsedWorld(
            _places(traded, making),
            accounts_of((offering.account for offering in traded.offerings), making.seed),
            clock,
            log,
            weather=making.weather,
            seed=making.seed,
        )
        world.restore(records)
        if not records:
            start = {**asdict(making), "market_sha256": digest, "clock": clock.described()}
            world.record("started", clock.now_ns(), **start)
        yield world, making


def made(record: Mapping[str, Any]) -> Making:
    """How the world was made whose first record this is."""
    weather: dict[str, Any] = {
        name: tuple(said) if isinstance(said, list) else said
        for name, said in record["weather"].items()
    }
    return Making(
        seed=record["seed"],
        market_s_per_s=record["market_s_per_s"],
        weather=Weather(**weather),
        user_data=record["user_data"],
    )


def places_of(state: Path, making: Making) -> Places:
    """What is sold in the world of a folder."""
    return _places(read_market(state / MARKET), making)


def _places(market: Market, making: Making) -> Places:
    accounts = accounts_of((offering.account for offering in market.offerings), making.seed)
    ids = {account.name: account.account_id for account in accounts}
    return Places(market, ids, making.weather, making.seed)


def _clock(market: Market, making: Making) -> RehearsalClock:
    if making.market_s_per_s == 0:
        return StandingClock(market.start_ns)
    return RunningClock(
        MarketClock(
            wall_ns=time.time_ns(),
            market_ns=market.start_ns,
            market_s_per_s=making.market_s_per_s,
        )
    )


def _clock_again(first: Mapping[str, Any], making: Making, at_ns: int) -> RehearsalClock:
    """A cloud does not wait for us: its time went on, but for one that is moved by hand."""
    if making.market_s_per_s == 0:
        return StandingClock(at_ns)
    return RunningClock(replace(MarketClock(), **first["clock"]))
