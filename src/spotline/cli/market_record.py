"""`spotline market record`: what a live market was seen to be, as a market file."""

# Imports of what the command uses are inside it: `--help` must not wait for them.

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import answered
from spotline.cli.configuring import ConfigFile, config_of
from spotline.cli.failures import explained, writable
from spotline.cli.market import market_app
from spotline.cli.market_view import print_offerings, summary
from spotline.cli.tables import print_line
from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig
    from spotline.bootstrap.live import FollowedMarket
    from spotline.domain.market.market import Market


def register(app: typer.Typer) -> None:
    """Add the command to those of `spotline market`."""
    market_app.command("record")(record)


def record(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", help="Market file to write (Parquet).")],
    log: Annotated[
        Path | None,
        typer.Argument(metavar="[LOG]", help="Log of a run, STORE/log; it may be running."),
    ] = None,
    config: ConfigFile = None,
    cloud: Annotated[
        str, typer.Option(envvar="SPOTLINE_CLOUD", help="Cloud whose live market is followed.")
    ] = "",
    address: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Allocator of a running system that has seen it."),
    ] = "",
    duration: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="How long to follow it, or of what a running system saw the last, such as 24h.",
        ),
    ] = "24h",
    slot: Annotated[
        int, typer.Option(min=0, help="Slot length to follow it in, seconds; 0: ten minutes.")
    ] = 0,
    store: Annotated[
        Path, typer.Option(metavar="FOLDER", help="What a cloud's client keeps while it follows.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Keep what was seen of a market as a market file, at the prices that everybody pays.

    Of a run, by its LOG; of a running system by its address, as far back as it remembers (192 slots);
    or by the feeds of a cloud, for as long as is said. What nobody said anew is carried forward, and
    is older by then. Ctrl-C ends a recording early.
    """
    with explained(as_json=as_json):
        if log is not None and address:
            raise ContractError("LOG", "expected a log or --address, found both")
        if log is not None:
            market = _of_log(log)
            _write(market, output)
        elif address:
            market = answered(_told(address, _seconds_of(duration)), as_json=as_json)
            _write(market, output)
        else:
            market = _followed(cloud, config_of(context), store, (duration, slot), output)
    said = summary(market, output)
    if as_json:
        import json

        print(json.dumps(said, indent=2))
        return
    print_offerings(market)
    print_line(
        f"{output}: {said['slots']} slots of {said['slot_s']} s, {said['start']} to {said['end']}"
    )


def _of_log(log: Path) -> Market:
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.replay.recorded import market_of_log

    return market_of_log(EventLogReader(log))


def _seconds_of(duration: str) -> int:
    from spotline.adapters.files.units import seconds_of

    seconds = seconds_of(duration)
    if not seconds or seconds < 0:
        raise ContractError("--for", f"expected a duration > 0 such as 24h, found {duration!r}")
    return seconds


async def _told(address: str, last_s: int) -> Market:
    """What a running system tells of the slots that it remembers."""
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.replay.told_market import market_told

    async with JobClient(address) as client:
        status = await client.market(with_offerings=True)
        quotes = {
            offering.offering_id: (await client.market(offering.offering_id)).quotes
            for offering in status.offerings
        }
    return market_told(status, quotes, last_s=last_s)


def _followed(
    cloud: str,
    config: SpotlineConfig | None,
    store: Path,
    asked: tuple[str, int],
    output: Path,
) -> Market:
    from spotline.bootstrap.clouds import cloud_of, run_mode
    from spotline.bootstrap.live import followed_market

    duration, slot_s = asked
    seconds = _seconds_of(duration)
    if not cloud:
        raise ContractError(
            "LOG",
            "expected the log of a run, --address of a running system, or --cloud or --config "
            "whose market is followed",
        )
    followed = followed_market(
        cloud_of(os.environ, cloud, run_mode(cloud), config), store, slot_s=slot_s
    )
    if followed is None:
        raise ContractError("--cloud", f"expected one whose market is live, found {cloud!r}")
    with writable(output):
        output.touch()
    slots = max(1, seconds // followed.market.slot_s)
    return asyncio.run(_recorded(followed, slots, output))


async def _recorded(followed: FollowedMarket, slots: int, output: Path) -> Market:
    from spotline.bootstrap.recording import record_market

    kept: list[Market] = []

    def keep(market: Market) -> None:
        _write(market, output)
        kept.append(market)

    try:
        return await record_market(followed, slots=slots, keep=keep)
    except asyncio.CancelledError:
        if not kept:
            raise
        return kept[-1]


def _write(market: Market, output: Path) -> None:
    from spotline.adapters.market.parquet import write_market

    with writable(output):
        write_market(market, output)
