"""Run the analytics: `python -m services.analytics`."""

from __future__ import annotations

import sys

import structlog

from services.analytics.settings import AnalyticsSettings
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.bootstrap.servers import serve_analytics

_log = structlog.get_logger(__name__)


async def serve(settings: AnalyticsSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Listen where the settings say, and issue what they say."""
    await serve_analytics(
        bus,
        settings.parts(),
        address=settings.analytics_address,
        hooks=hooks,
        listening=lambda address: _log.info("listening", address=address),
    )


if __name__ == "__main__":
    sys.exit(main(AnalyticsSettings, serve))
