"""Run the actuator: `python -m services.cloud_actuator`."""

from __future__ import annotations

import sys

from services.cloud_actuator.settings import CloudActuatorSettings
from spotline.bootstrap.followers import ActuatorParts, serve_cloud_actuator
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.process import main


async def serve(settings: CloudActuatorSettings, bus: BusAddress, hooks: PartHooks) -> None:
    """Act on the cloud that the settings name."""
    agents = settings.agents()
    parts = ActuatorParts(
        cloud=settings.chosen_cloud,
        mode=settings.run_mode,
        store=settings.store,
        ledger_url=settings.ledger(),
        owner=settings.owner,
        caps=settings.caps(),
        enrolment=None if agents is None else agents.enrolment(),
        market_s_per_s=settings.market_s_per_s,
        agreement=settings.agreement(),
        lease_s=settings.lease_s(),
    )
    await serve_cloud_actuator(bus, parts, hooks)


if __name__ == "__main__":
    sys.exit(main(CloudActuatorSettings, serve))
