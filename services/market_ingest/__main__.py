"""Run market_ingest: `python -m services.market_ingest`."""

from __future__ import annotations

import sys
import time

from services.market_ingest.settings import MarketIngestSettings
from spotline.adapters.market.parquet import read_market
from spotline.bootstrap.followers import geography_of, serve_market_ingest
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.domain.market.notice import sold_by


async def serve(settings: MarketIngestSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Replay the market that the settings name."""
    recorded = sold_by(read_market(settings.market), settings.notice_lead_s)
    if settings.wall_clock:
        recorded = recorded.beginning_at(time.time_ns())
    market = settings.with_reservations(recorded)
    await serve_market_ingest(
        bus,
        market,
        settings.ingest(market.slot_s),
        hooks,
        geography=geography_of(settings.geography_file),
        modes=settings.modes(),
    )


if __name__ == "__main__":
    sys.exit(main(MarketIngestSettings, serve))
