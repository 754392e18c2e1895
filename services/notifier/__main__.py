"""Run the notifier: `python -m services.notifier`."""

from __future__ import annotations

import sys

from services.notifier.settings import NotifierSettings
from spotline.bootstrap.notifier import serve_notifier
from spotline.bootstrap.notifying import Notifying
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main


async def serve(settings: NotifierSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Tell the receivers that the file of the settings names."""
    told = Notifying(
        targets=settings.receivers, bus=bus, store=settings.store, selector=settings.selector
    )
    await serve_notifier(told, hooks)


if __name__ == "__main__":
    sys.exit(main(NotifierSettings, serve))
