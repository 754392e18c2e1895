"""Settings of the selector, read once at start."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spotline.application.selector.state import SelectorOptions
from spotline.runtime.settings import ServiceSettings


class SelectorSettings(ServiceSettings):
    """`SPOTLINE_*` of the selector.

    After `forecast_timeout_s` without a forecast a slot is decided without one, after
    `allocate_timeout_s` without an answer the selector decides by itself. `decay`, `horizon_jobs`,
    the utility bounds, `warm_start` (the JSON text that saved weights are), `moves` and the prices
    of egress are as in `SelectorOptions`.
    """

    allocator_address: str = "127.0.0.1:7070"
    allocate_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    forecast_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    rule: Literal["adahedge", "exponentiated_gradient"] = "adahedge"
    rehearsals: int = Field(default=24, ge=0)
    spot_firm: bool = True
    decay: float = Field(default=1.0, gt=0, le=1)
    horizon_jobs: int = Field(default=0, ge=0)
    utility_floor_usd: float = Field(default=0.0, allow_inf_nan=False)
    utility_ceiling_usd: float = Field(default=0.0, allow_inf_nan=False)
    warm_start: str = ""
    moves: bool = True
    egress_usd_per_gb: float = Field(default=0.02, ge=0, allow_inf_nan=False)
    zone_egress_usd_per_gb: float = Field(default=0.01, ge=0, allow_inf_nan=False)

    def selector(self) -> SelectorOptions:
        """How the selector decides."""
        return SelectorOptions(
            rule=self.rule,
            forecast_timeout_s=self.forecast_timeout_s,
            rehearsals=self.rehearsals,
            spot_firm=self.spot_firm,
            decay=self.decay,
            horizon_jobs=self.horizon_jobs,
            utility_floor_usd=self.utility_floor_usd,
            utility_ceiling_usd=self.utility_ceiling_usd,
            warm_start=self.warm_start,
            moves=self.moves,
            egress_usd_per_gb=self.egress_usd_per_gb,
            zone_egress_usd_per_gb=self.zone_egress_usd_per_gb,
        )
