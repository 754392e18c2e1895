"""What can be held, and what it is quoted at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.canonical import canonical_as
from spotline.domain.units import NS_PER_S


class CapacityType(Enum):
    """How an instance is bought."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


@canonical_as("Provenance")
class Provenance(Enum):
    """How a count is known: no cloud publishes its spare capacity, traces do."""

    OBSERVED = "observed"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """One instance type in one zone of one account.

    `offering_id` is unique in a market; `native_price_unit` and `currency` say in what the
    provider quotes (prices here are always converted to USD per instance-hour).
    """

    offering_id: str
    provider: str
    account: str
    region: str
    zone: str
    instance_type: str
    gpu_model: str
    gpus_per_instance: int
    quota_pool: str
    native_price_unit: str = "usd_per_instance_hour"
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("offering_id", "provider", "region", "zone", "instance_type"):
            if not getattr(self, name):
                raise ValueError(f"{name} of an offering must not be empty")
        if self.gpus_per_instance < 1:
            raise ValueError(f"gpus_per_instance must be >= 1, was {self.gpus_per_instance}")


@canonical_as("Count", "instances provenance")
@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number of instances and how it is known; 0 and meaningless when unknown."""

    instances: int
    provenance: Provenance

    def __post_init__(self) -> None:
        if self.instances < 0:
            raise ValueError(f"instances must be >= 0, was {self.instances}")

    @property
    def known(self) -> bool:
        """Whether the count says anything."""
        return self.provenance is not Provenance.UNKNOWN


UNKNOWN_COUNT = Count(instances=0, provenance=Provenance.UNKNOWN)


@canonical_as(
    "Quote",
    "offering_id ts_event_ns spot_price_micro_usd on_demand_price_micro_usd "
    "spot_available on_demand_available",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """An offering's prices (micro-USD per instance-hour) and availability at a time."""

    offering_id: str
    ts_event_ns: int
    spot_price_micro_usd: int
    on_demand_price_micro_usd: int
    spot_available: Count
    on_demand_available: Count

    def __post_init__(self) -> None:
        for name in ("spot_price_micro_usd", "on_demand_price_micro_usd"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be > 0, was {getattr(self, name)}")

    def age_s(self, now_ns: int) -> int:
        """Seconds between this quote and `now_ns`, at least 0."""
        return max(0, (now_ns - self.ts_event_ns) // NS_PER_S)
