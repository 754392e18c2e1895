"""Settings of the selector, read once at start."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from spotline.adapters.nats.configured import DECISIONS_KEPT
from spotline.application.selector.state import SelectorOptions
from spotline.bootstrap.explaining import SELECTOR_VARIABLES, SERVED, limited_by_default
from spotline.runtime.settings import ServiceSettings


class SelectorSettings(ServiceSettings):
    """`SPOTLINE_*` of the selector.

    Decisions published beside the log are kept for `decisions_max_age_s`, and `decisions_max_bytes`
    of them at most; 0: all. After `allocate_timeout_s` without an answer the selector decides by itself. `selector` are the
    options of `SelectorOptions`, each by its own name: `SPOTLINE_DECAY`, `SPOTLINE_WARM_START`.
    """

    allocator_address: str = "127.0.0.1:7070"
    allocate_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    decisions_max_age_s: float = Field(default=DECISIONS_KEPT.max_age_s, ge=0, allow_inf_nan=False)
    decisions_max_bytes: int = Field(default=DECISIONS_KEPT.max_bytes, ge=0)
    selector: Annotated[
        SelectorOptions, SELECTOR_VARIABLES, BeforeValidator(limited_by_default)
    ] = SERVED
