"""Settings of the actuator, read once at start."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pydantic import Field

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.ledger.sqlite import ledger_url
from spotline.application.cloud_actuator.ports import ActuatorMode
from spotline.domain.jobs.program import NOTICE_LEAD_S
from spotline.domain.ledger.caps import Caps
from spotline.domain.units import micro_usd_from_usd
from spotline.runtime.settings import ServiceSettings


class CloudActuatorSettings(ServiceSettings):
    """`SPOTLINE_*` of the actuator.

    `ledger_url` empty means a SQLite file in `store`. Caps left out do not bind. The
    `simulated_*` settings are those of `SimulatedCloudSettings`.
    """

    cloud: str = "simulated"
    mode: ActuatorMode = ActuatorMode.LIVE
    store: Path = Path("spotline-store")
    ledger_url: str = ""
    owner: str = Field(default="default", min_length=1, max_length=200)
    cap_usd_per_job: Decimal | None = Field(default=None, ge=0)
    cap_usd_per_hour: Decimal | None = Field(default=None, ge=0)
    cap_launches_per_minute: int | None = Field(default=None, ge=0)
    simulated_seed: int = 0
    simulated_launch_delay_s: int = Field(default=120, ge=0)
    simulated_notice_lead_s: int = Field(default=NOTICE_LEAD_S, ge=0)
    simulated_refusal_probability: float = Field(default=0.0, ge=0, le=1)
    simulated_interruption_per_instance_hour: float = Field(default=0.0, ge=0, allow_inf_nan=False)

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

    def simulated_cloud(self) -> SimulatedCloudSettings:
        """How the simulated cloud behaves."""
        return SimulatedCloudSettings(
            seed=self.simulated_seed,
            launch_delay_s=self.simulated_launch_delay_s,
            notice_lead_s=self.simulated_notice_lead_s,
            refusal_probability=self.simulated_refusal_probability,
            interruption_per_instance_hour=self.simulated_interruption_per_instance_hour,
        )


def _micro_usd(usd: Decimal | None) -> int | None:
    return None if usd is None else micro_usd_from_usd(usd)
