"""Run market_ingest: `python -m services.market_ingest`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from services.market_ingest.settings import MarketIngestSettings
from spotline.adapters.market.parquet import read_market
from spotline.bootstrap.followers import geography_of, serve_market_ingest
from spotline.bootstrap.live import NO_FEEDS
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.domain.market.market import Market
from spotline.domain.market.notice import sold_by


async def serve(settings: MarketIngestSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Replay the market that the settings name, or follow a live one."""
    followed = settings.followed()
    market = settings.with_reservations(_begun(settings) if followed is None else followed.market)
    await serve_market_ingest(
        bus,
        sold_by(market, settings.notice_lead_s),
        settings.ingest(market.slot_s),
        hooks,
        geography=geography_of(settings.geography_file),
        modes=settings.modes(),
        feeds=NO_FEEDS if followed is None else followed.feeds,
    )


def _begun(settings: MarketIngestSettings) -> Market:
    recorded = read_market(Path(settings.market))
    return recorded.beginning_at(time.time_ns()) if settings.wall_clock else recorded


if __name__ == "__main__":
    sys.exit(main(MarketIngestSettings, serve))
