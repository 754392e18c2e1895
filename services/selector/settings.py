"""Settings of the selector, read once at start."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spotline.application.selector_state import SelectorOptions
from spotline.runtime.settings import ServiceSettings


class SelectorSettings(ServiceSettings):
    """`SPOTLINE_*` of the selector.

    After `forecast_timeout_s` without a forecast a slot is decided without one, after
    `allocate_timeout_s` without an answer the selector decides by itself.
    """

    allocator_address: str = "127.0.0.1:7070"
    allocate_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    forecast_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    rule: Literal["adahedge", "exponentiated_gradient"] = "adahedge"
    rehearsals: int = Field(default=24, ge=0)
    spot_firm: bool = True

    def selector(self) -> SelectorOptions:
        """How the selector decides."""
        return SelectorOptions(
            rule=self.rule,
            forecast_timeout_s=self.forecast_timeout_s,
            rehearsals=self.rehearsals,
            spot_firm=self.spot_firm,
        )
