"""Settings of the selector, read once at start."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from spotline.adapters.nats.configured import DECISIONS_KEPT
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.clouds import SIMULATED
from spotline.bootstrap.explaining import SELECTOR_VARIABLES, SERVED, CloudName, served_options
from spotline.runtime.settings import ServiceSettings


class SelectorSettings(ServiceSettings):
    """`SPOTLINE_*` of the selector.

    `cloud` is the actuator's: where its live market is followed, spot counts are unknown, and a deadline
    does not count on spot (`spot_firm`) unless that is stated. Decisions published beside the log are kept for `decisions_max_age_s`, and `decisions_max_bytes`
    of them at most; 0: all. After `allocate_timeout_s` without an answer the selector decides by itself. `selector` are the
    options of `SelectorOptions`, each by its own name: `SPOTLINE_DECAY`, `SPOTLINE_WARM_START`.
    """

    cloud: CloudName = SIMULATED
    allocator_address: str = "127.0.0.1:7070"
    allocate_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    decisions_max_age_s: float = Field(default=DECISIONS_KEPT.max_age_s, ge=0, allow_inf_nan=False)
    decisions_max_bytes: int = Field(default=DECISIONS_KEPT.max_bytes, ge=0)
    selector: Annotated[SelectorOptions, SELECTOR_VARIABLES, BeforeValidator(served_options)] = (
        Field(default=SERVED, validate_default=True)
    )
