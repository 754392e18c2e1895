"""List prices of GPU VMs on GCP by region, some once a week: spot and on-demand.

It stands with the market's importers, as these are prices of offerings. Yet it makes no `Market`:
that needs counts of what is available and zones, and the source has neither. What is read are price
curves by region, which is what placing pipelines asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spotline.adapters.market.parse import price_micro_usd, read_csv, time_ns
from spotline.contracts.errors import ContractError
from spotline.domain.units import usd_from_micro_usd

GCP_GPU_FILE = "spot-price-gcp-gpu-weekly/gcp_gpu_spot_prices_2023-05_2026-07.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPrices:
    """Prices of one machine type in one region, from each observation until the next.

    Attributes
    ----------
    ts_ns
        When they were seen, UTC, ascending, shape (N,). They changed somewhat earlier: at most
        since the observation before.
    spot_usd_per_hour, on_demand_usd_per_hour
        Of a whole VM, shape (N,).
    """

    ts_ns: npt.NDArray[np.int64]
    spot_usd_per_hour: npt.NDArray[np.float64]
    on_demand_usd_per_hour: npt.NDArray[np.float64]

    def spot_at(self, ts_ns: int) -> float:
        """Spot price at a time, USD per hour of a VM.

        Raises
        ------
        ValueError
            The first price is later.
        """
        place = int(np.searchsorted(self.ts_ns, ts_ns, side="right")) - 1
        if place < 0:
            raise ValueError("there is no price as early as that")
        return float(self.spot_usd_per_hour[place])


def read_gcp_gpu_prices(path: Path, machine_type: str) -> dict[str, RegionPrices]:
    """Read the prices of a machine type by region, ascending.

    The source carries a price for every region, even where the machine is not offered: the caller
    filters by a list of regions.

    Raises
    ------
    ContractError
        A column is missing, a time or price is not one, or the machine type is not in the file.
    """
    columns = (
        "observed_at", "machine_type", "region", "on_demand_usd_per_hour", "spot_usd_per_hour",
    )  # fmt: skip
    found: dict[str, dict[int, tuple[float, float]]] = {}
    types = set()
    for where, row in read_csv(path, columns):
        types.add(row["machine_type"])
        if row["machine_type"] != machine_type:
            continue
        seen_ns = time_ns(row["observed_at"], f"{where}, field observed_at")
        found.setdefault(row["region"], {})[seen_ns] = (
            _usd(row["spot_usd_per_hour"], f"{where}, field spot_usd_per_hour"),
            _usd(row["on_demand_usd_per_hour"], f"{where}, field on_demand_usd_per_hour"),
        )
    if not found:
        raise ContractError(
            str(path),
            f"expected the machine type {machine_type}, found {', '.join(sorted(types)) or 'none'}",
        )
    prices = {}
    for region in sorted(found):
        times = sorted(found[region])
        prices[region] = RegionPrices(
            ts_ns=np.array(times, dtype=np.int64),
            spot_usd_per_hour=np.array([found[region][ts_ns][0] for ts_ns in times]),
            on_demand_usd_per_hour=np.array([found[region][ts_ns][1] for ts_ns in times]),
        )
    return prices


def _usd(text: str, where: str) -> float:
    return float(usd_from_micro_usd(price_micro_usd(text, where)))
