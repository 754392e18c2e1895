"""Run the allocator: `python -m services.allocator`."""

from __future__ import annotations

import sys

import structlog

from services.allocator.settings import AllocatorSettings
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main
from spotline.bootstrap.servers import AllocatorParts, serve_allocator

_log = structlog.get_logger(__name__)


async def serve(settings: AllocatorSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Listen where the settings say."""
    await serve_allocator(
        bus,
        AllocatorParts(
            configurator_address=settings.configurator_address,
            await_admission=settings.await_admission,
            quote_margin=settings.quote_margin,
            agents=settings.agents(),
            selector=settings.selector,
            outlooks=settings.outlooks,
            callers=settings.callers,
        ),
        address=settings.allocator_address,
        hooks=hooks,
        listening=lambda address: _log.info("listening", address=address),
        agents_listening=lambda address: _log.info("agents_listening", address=address),
    )


if __name__ == "__main__":
    sys.exit(main(AllocatorSettings, serve, plans=True))
