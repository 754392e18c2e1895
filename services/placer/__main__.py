"""Run the placer: `python -m services.placer`."""

from __future__ import annotations

import sys

import structlog

from services.placer.settings import PlacerSettings
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.bootstrap.servers import serve_placer

_log = structlog.get_logger(__name__)


async def serve(settings: PlacerSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Listen where the settings say, and place as they say."""
    await serve_placer(
        bus,
        settings.placement,
        address=settings.placer_address,
        hooks=hooks,
        listening=lambda address: _log.info("listening", address=address),
    )


if __name__ == "__main__":
    sys.exit(main(PlacerSettings, serve))
