"""Regions and the links between them: what there is, and what is free of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """GPUs of one kind in one place, and what an hour of one costs.

    `rent_usd_per_gpu_hour` is what a GPU is rented for (0: it is owned), `energy_usd_per_kwh` what
    its power costs there, `gpu_kw` what it draws while active. `interruptions_per_hour` is how
    often spot capacity of the region is taken back (0: it is not spot). `offering_id` is what its
    GPUs are rented as, `spot` or on demand; empty where nothing has to be provisioned.
    """

    region_id: str
    gpus: int
    energy_usd_per_kwh: float
    rent_usd_per_gpu_hour: float = 0.0
    gpu_kw: float = 0.3
    interruptions_per_hour: float = 0.0
    gpu_model: str = ""
    offering_id: str = ""
    spot: bool = False

    def __post_init__(self) -> None:
        if not self.region_id:
            raise ValueError("region_id must not be empty")
        if self.gpus < 0:
            raise ValueError(f"gpus of {self.region_id} must be >= 0, was {self.gpus}")
        # Electricity may cost less than nothing, for an hour.
        if not math.isfinite(self.energy_usd_per_kwh):
            raise ValueError(
                f"energy_usd_per_kwh of {self.region_id} must be finite, "
                f"was {self.energy_usd_per_kwh}"
            )
        for name in ("rent_usd_per_gpu_hour", "gpu_kw", "interruptions_per_hour"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} of {self.region_id} must be finite and >= 0, was {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction between two regions: `bytes_per_s` of bandwidth, and what a gigabyte costs."""

    source: str
    destination: str
    bytes_per_s: float
    egress_usd_per_gb: float = 0.0

    def __post_init__(self) -> None:
        if self.source == self.destination:
            raise ValueError(f"a link must join two regions, was {self.source} twice")
        for name in ("bytes_per_s", "egress_usd_per_gb"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"{name} of {self.source} -> {self.destination} must be finite and >= 0, "
                    f"was {value}"
                )


class RegionGraph:
    """Regions by id with their links, as arrays; index i is `region_ids[i]`, ids ascending.

    Attributes
    ----------
    gpus
        GPUs there are, shape (R,).
    bytes_per_s, egress_usd_per_gb
        Of the link from row to column, shape (R, R); 0 on the diagonal and where there is none.

    Raises
    ------
    ValueError
        A region or link is given twice, or a link names a region that is not given.
    """

    def __init__(self, regions: Sequence[Region], links: Sequence[Link]) -> None:
        ordered = sorted(regions, key=lambda region: region.region_id)
        self.regions = tuple(ordered)
        self.region_ids = tuple(region.region_id for region in ordered)
        if len(set(self.region_ids)) != len(self.region_ids):
            raise ValueError("regions must have different ids")
        self.index = {region_id: i for i, region_id in enumerate(self.region_ids)}
        count = len(ordered)
        self.gpus: IntArray = np.array([region.gpus for region in ordered], dtype=np.int64)
        self.bytes_per_s: FloatArray = np.zeros((count, count))
        self.egress_usd_per_gb: FloatArray = np.zeros((count, count))
        seen = set()
        for link in links:
            for end in (link.source, link.destination):
                if end not in self.index:
                    raise ValueError(f"link {link.source} -> {link.destination}: no region {end}")
            pair = (self.index[link.source], self.index[link.destination])
            if pair in seen:
                raise ValueError(f"link {link.source} -> {link.destination} is given twice")
            seen.add(pair)
            self.bytes_per_s[pair] = link.bytes_per_s
            self.egress_usd_per_gb[pair] = link.egress_usd_per_gb
