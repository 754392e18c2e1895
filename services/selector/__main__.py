"""Run the selector: `python -m services.selector`."""

from __future__ import annotations

import sys

from services.selector.settings import SelectorSettings
from spotline.adapters.nats.configured import StreamLimits
from spotline.bootstrap.followers import serve_selector
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main


async def serve(settings: SelectorSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Decide through the allocator that the settings name."""
    await serve_selector(
        bus,
        settings.selector,
        allocator_address=settings.allocator_address,
        allocate_timeout_s=settings.allocate_timeout_s,
        hooks=hooks,
        decisions=StreamLimits(
            max_age_s=settings.decisions_max_age_s, max_bytes=settings.decisions_max_bytes
        ),
    )


if __name__ == "__main__":
    sys.exit(main(SelectorSettings, serve, plans=True))
