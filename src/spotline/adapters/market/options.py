"""What a caller may add to a source that lacks it, and the interface of an importer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path

from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Additions to a source; None leaves the importer's default.

    Parameters
    ----------
    price
        Spot price: USD per instance-hour, or an AWS spot price history file.
    on_demand_usd
        On-demand price, USD per instance-hour.
    start_ns
        Opening of the first slot, nanoseconds since the epoch.
    instance_type
        Instance type to import, or to look up prices of.
    slot_s
        Slot length in seconds.
    spot_available
        Constant number of available spot instances, for a source without counts.
    zones
        Zones or regions to keep; empty keeps all.
    """

    price: Path | Decimal | None = None
    on_demand_usd: Decimal | None = None
    start_ns: int | None = None
    instance_type: str | None = None
    slot_s: int | None = None
    spot_available: int | None = None
    zones: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("price", "on_demand_usd"):
            usd = getattr(self, name)
            if isinstance(usd, Decimal) and not (usd.is_finite() and usd > 0):
                raise ContractError(FLAGS[name], f"expected USD per instance-hour > 0, found {usd}")
        if self.slot_s is not None and self.slot_s < 1:
            raise ContractError("--slot", f"expected seconds >= 1, found {self.slot_s}")
        if self.spot_available is not None and self.spot_available < 0:
            raise ContractError(
                "--spot-available", f"expected instances >= 0, found {self.spot_available}"
            )

    def given(self) -> list[str]:
        """Names of the options that were set."""
        return [f.name for f in fields(self) if getattr(self, f.name) not in (None, ())]


FLAGS = {
    "price": "--price",
    "on_demand_usd": "--on-demand-usd",
    "start_ns": "--start",
    "instance_type": "--instance-type",
    "slot_s": "--slot",
    "spot_available": "--spot-available",
    "zones": "--zone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Reads one format: `read(files, options)` returns a market or raises ContractError.

    `accepts` names the options that mean something for the format; others are refused.
    """

    name: str
    description: str
    read: Callable[[Sequence[Path], ImportOptions], Market]
    accepts: frozenset[str] = field(default_factory=frozenset)
