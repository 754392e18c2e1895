"""Where buying stops, and goes on: `freeze.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.limits.freezes import Freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyingFrozen:
    """Buying stops for what the freeze says."""

    freeze: Freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyingUnfrozen:
    """A freeze is over; `by` is empty where its reason is gone."""

    freeze_id: str
    by: str = ""
    detail: str = ""
    slot: int = -1
    ts_event_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyingExcepted:
    """On-demand was bought against a freeze or a limit, for a hard deadline and within its quote."""

    job_id: str
    tenant: str
    offering_id: str
    slot: int
    instances: int
    against: str
    quote_left_micro_usd: int
