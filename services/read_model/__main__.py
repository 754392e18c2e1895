"""Run the read model: `python -m services.read_model`."""

from __future__ import annotations

import sys

import structlog

from services.read_model.settings import ReadModelSettings
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.bootstrap.read_model import serve_read_model

_log = structlog.get_logger(__name__)


async def serve(settings: ReadModelSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Listen where the settings say."""
    await serve_read_model(
        bus,
        address=settings.http_address,
        hosts=settings.hosts(),
        allocator_address=settings.allocator_address,
        hooks=hooks,
        listening=lambda address: _log.info("listening", address=address),
    )


if __name__ == "__main__":
    sys.exit(main(ReadModelSettings, serve))
