"""Run the configurator: `python -m services.configurator`."""

from __future__ import annotations

import sys

import structlog

from services.configurator.settings import ConfiguratorSettings
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.bootstrap.servers import serve_configurator

_log = structlog.get_logger(__name__)


async def serve(settings: ConfiguratorSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Listen where the settings say, with the knowledge that they name."""
    await serve_configurator(
        bus,
        address=settings.configurator_address,
        knowledge=settings.knowledge_file,
        stack=settings.knowledge_stack,
        hooks=hooks,
        listening=lambda address: _log.info("listening", address=address),
    )


if __name__ == "__main__":
    sys.exit(main(ConfiguratorSettings, serve, plans=True))
