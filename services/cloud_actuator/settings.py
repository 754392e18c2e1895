"""Settings of the actuator, read once at start."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.ledger.sqlite import ledger_url
from spotline.application.cloud_actuator.ports import ActuatorMode
from spotline.domain.ledger.caps import Caps
from spotline.domain.units import micro_usd_from_usd
from spotline.runtime.settings import OptionVariables, ServiceSettings


class CloudActuatorSettings(ServiceSettings):
    """`SPOTLINE_*` of the actuator.

    `ledger_url` empty means a SQLite file in `store`. Caps left out do not bind. `simulated` are
    those of `SimulatedCloudSettings`, from `SPOTLINE_SIMULATED_SEED` on.
    """

    cloud: str = "simulated"
    mode: ActuatorMode = ActuatorMode.LIVE
    store: Path = Path("spotline-store")
    ledger_url: str = ""
    owner: str = Field(default="default", min_length=1, max_length=200)
    cap_usd_per_job: Decimal | None = Field(default=None, ge=0)
    cap_usd_per_hour: Decimal | None = Field(default=None, ge=0)
    cap_launches_per_minute: int | None = Field(default=None, ge=0)
    simulated: Annotated[SimulatedCloudSettings, OptionVariables(prefix="simulated_")] = (
        SimulatedCloudSettings()
    )

    def ledger(self) -> str:
        """The URL of the ledger."""
        return self.ledger_url or ledger_url(self.store / "ledger.sqlite")

    def caps(self) -> Caps:
        """The caps in micro-USD."""
        return Caps(
            micro_usd_per_job=_micro_usd(self.cap_usd_per_job),
            micro_usd_per_hour=_micro_usd(self.cap_usd_per_hour),
            launches_per_minute=self.cap_launches_per_minute,
        )


def _micro_usd(usd: Decimal | None) -> int | None:
    return None if usd is None else micro_usd_from_usd(usd)
