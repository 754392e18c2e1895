"""Run market_ingest: `python -m services.market_ingest`."""

from __future__ import annotations

import sys
import time

from services.market_ingest.settings import MarketIngestSettings
from spotline.bootstrap.followers import geography_of, serve_market_ingest
from spotline.bootstrap.live import NO_FEEDS
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.notice import sold_by


async def serve(settings: MarketIngestSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Open the slots of the market that the settings name: of a file, or of a cloud as it goes on."""
    recorded, feeds = settings.recorded(), NO_FEEDS
    market: AnyMarket
    if recorded is None:
        followed = settings.followed()
        market = sold_by(followed.market, settings.chosen_cloud().notice_lead_s)
        feeds = followed.feeds
    else:
        market = recorded.beginning_at(time.time_ns()) if settings.wall_clock else recorded
    await serve_market_ingest(
        bus,
        settings.with_reservations(market),
        settings.ingest(market.slot_s, feeds.clock if feeds.feeds else None),
        hooks,
        geography=geography_of(settings.geography_file),
        modes=settings.modes(),
        feeds=feeds,
    )


if __name__ == "__main__":
    sys.exit(main(MarketIngestSettings, serve))
