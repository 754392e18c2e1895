"""Run market_ingest: `python -m services.market_ingest`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from services.market_ingest.settings import MarketIngestSettings
from spotline.adapters.market.parquet import read_market
from spotline.bootstrap.followers import geography_of, serve_market_ingest
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.domain.market.market import Market


async def serve(settings: MarketIngestSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Replay the market that the settings name."""
    market = read_market(settings.market)
    if settings.wall_clock:
        market = beginning_at(market, time.time_ns())
    await serve_market_ingest(
        bus,
        market,
        settings.ingest(market.slot_s),
        hooks,
        geography=geography_of(settings.geography_file),
    )


def beginning_at(market: Market, start_ns: int) -> Market:
    """The same market, shifted in time to begin at `start_ns`."""
    shift_ns = start_ns - market.start_ns
    return replace(market, start_ns=start_ns, quoted_ns=market.quoted_ns + shift_ns)


if __name__ == "__main__":
    sys.exit(main(MarketIngestSettings, serve))
