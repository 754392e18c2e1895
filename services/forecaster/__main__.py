"""Run the forecaster: `python -m services.forecaster`."""

from __future__ import annotations

import sys

from services.forecaster.settings import ForecasterSettings
from spotline.bootstrap.followers import serve_forecaster
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main


async def serve(settings: ForecasterSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Forecast with the forecaster that the settings name."""
    await serve_forecaster(
        bus,
        forecaster=settings.forecaster,
        horizon_slots=settings.horizon_slots,
        priors=settings.priors,
        hooks=hooks,
        learning=settings.learning,
    )


if __name__ == "__main__":
    sys.exit(main(ForecasterSettings, serve))
