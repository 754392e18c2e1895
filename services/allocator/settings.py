"""Settings of the allocator, read once at start."""

from __future__ import annotations

from pydantic import Field

from spotline.application.on_demand_quote import DEFAULT_QUOTE_MARGIN
from spotline.runtime.settings import ServiceSettings


class AllocatorSettings(ServiceSettings):
    """`SPOTLINE_*` of the allocator; `allocator_address` is where its gRPC server listens.

    Drafts are completed by the configurator at `configurator_address`; empty: they are refused.
    With `await_admission` a submission is acknowledged once the ledger holds it too: off only where
    no actuator runs, which is what says so. A job that states no value is worth, and may cost,
    (1 + `quote_margin`) x its on-demand quote.
    """

    allocator_address: str = "127.0.0.1:7070"
    configurator_address: str = ""
    await_admission: bool = True
    quote_margin: float = Field(default=DEFAULT_QUOTE_MARGIN, ge=0, le=100, allow_inf_nan=False)
